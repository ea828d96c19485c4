//! What machines cost, and how much of it may be in use.
//!
//! One cap, `--max-hourly-spend`, for all products together: whoever sets it means the bill, not a part of it. Macs are never ordered
//! here, so of them it bounds what fleets take into use; Linux servers are not ordered or taken once it is reached. What people
//! ordered besides, and volumes and addresses, do not count.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use russet_api::values::Zone;
use tokio::sync::{Mutex, MutexGuard};

use crate::claims_store::ClaimStore;
use crate::inventory::Inventories;
use crate::metrics::ProviderMetrics;

/// Reason of a machine that waits because of the cap.
pub const SPEND_CAP_REACHED: &str = "SpendCapReached";

/// Prices per hour, in euros.
type Prices = BTreeMap<(Zone, String), f64>;

/// Who knows what is in use of a product.
pub trait Tally: Send + Sync {
    /// What that costs per hour, in euros; else a sentence that says why nobody knows.
    fn used(&self) -> BoxFuture<'_, Result<f64, String>>;
}

/// What machines cost and may cost. Cheap to clone.
#[derive(Clone, Default)]
pub struct Budget(Arc<Inner>);

#[derive(Default)]
struct Inner {
    cap: Option<f64>,
    prices: RwLock<Prices>,
    /// Whoever counts keeps them: some of them keep this.
    tallies: RwLock<Vec<Weak<dyn Tally>>>,
    counting: Mutex<()>,
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("cap", &self.0.cap)
            .finish_non_exhaustive()
    }
}

impl Budget {
    /// With this cap in euros per hour, or none.
    pub fn new(cap: Option<f64>) -> Self {
        Self(Arc::new(Inner {
            cap,
            ..Inner::default()
        }))
    }

    /// Whether anybody counts at all.
    pub fn is_capped(&self) -> bool {
        self.0.cap.is_some()
    }

    /// From now on this counts, too, as long as somebody keeps it.
    pub fn include(&self, tally: Weak<dyn Tally>) {
        let mut tallies = self.0.tallies.write().unwrap_or_else(PoisonError::into_inner);
        tallies.push(tally);
    }

    /// From a check to what it allows only one machine counts. Without a cap nobody does.
    pub async fn counting(&self) -> Option<MutexGuard<'_, ()>> {
        match self.0.cap {
            Some(_) => Some(self.0.counting.lock().await),
            None => None,
        }
    }

    /// The prices of the Macs of a zone, as they are now.
    pub fn set_prices(&self, zone: &Zone, prices: impl IntoIterator<Item = (String, f64)>) {
        let mut all = self.0.prices.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(other, _), _| other != zone);
        all.extend(prices.into_iter().map(|(type_, price)| ((zone.clone(), type_), price)));
    }

    /// The price of a Mac.
    pub fn price(&self, zone: &Zone, type_: &str) -> Option<f64> {
        let prices = self.0.prices.read().unwrap_or_else(PoisonError::into_inner);
        prices.get(&(zone.clone(), type_.to_owned())).copied()
    }

    /// Whether another of this type at this price may be taken into use; else a sentence.
    pub async fn check(&self, zone: &Zone, type_: &str, price: Option<f64>) -> Result<(), String> {
        let Some(cap) = self.0.cap else { return Ok(()) };
        let price = price.ok_or_else(|| unknown(zone, type_))?;
        let tallies = self.0.tallies.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut used = 0.0;
        for tally in tallies.iter().filter_map(Weak::upgrade) {
            used += tally.used().await?;
        }
        if used + price <= cap {
            return Ok(());
        }
        Err(format!(
            "the machines in use cost {used:.2} EUR per hour, and another {type_} would exceed --max-hourly-spend={cap:.2}; scale a fleet down or raise the cap"
        ))
    }

    /// Shows what all Macs of the project cost.
    pub fn show(&self, inventories: &Inventories, metrics: &ProviderMetrics) {
        let all = hosts(inventories).filter_map(|(zone, type_, _)| self.price(&zone, &type_));
        metrics.spend(all.sum());
    }
}

/// What is said of a price nobody knows.
pub(crate) fn unknown(zone: &Zone, type_: &str) -> String {
    format!(
        "the price of {type_} in {zone} is not known, and a spend cap is set; it is read again soon, or remove --max-hourly-spend"
    )
}

/// Macs that are claimed.
#[derive(Debug)]
pub struct MacTally {
    budget: Budget,
    inventories: Inventories,
    claims: ClaimStore,
}

impl MacTally {
    /// Counts what is claimed of these, against this budget.
    pub fn included(budget: &Budget, inventories: Inventories, claims: ClaimStore) -> Arc<Self> {
        let tally = Arc::new(Self {
            budget: budget.clone(),
            inventories,
            claims,
        });
        budget.include(Arc::downgrade(&tally) as _);
        tally
    }
}

impl Tally for MacTally {
    fn used(&self) -> BoxFuture<'_, Result<f64, String>> {
        async {
            let Some(claims) = self.claims.copy() else {
                return Err("the claims for Macs are not known yet; they are listed soon".to_owned());
            };
            let claimed = hosts(&self.inventories).filter(|(_, _, id)| claims.get(id).is_some());
            Ok(claimed
                .filter_map(|(zone, type_, _)| self.budget.price(&zone, &type_))
                .sum())
        }
        .boxed()
    }
}

fn hosts(inventories: &Inventories) -> impl Iterator<Item = (Zone, String, russet_api::values::ServerId)> {
    inventories.all().into_iter().flat_map(|(zone, cell)| {
        let state = cell.read();
        let hosts = state
            .inventory()
            .map(|inventory| inventory.hosts.as_slice())
            .unwrap_or_default();
        hosts
            .iter()
            .map(|host| (zone.clone(), host.type_.clone(), host.id.clone()))
            .collect::<Vec<_>>()
    })
}
