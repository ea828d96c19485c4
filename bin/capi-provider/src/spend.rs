//! What Macs cost, and how much of it may be in use.
//!
//! The provider never orders a Mac, so the bill of the project is what people made it. What it can bound is what the fleets take into
//! use: with a cap, no machine takes a host once the hosts in use cost that much per hour.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use russet_api::values::Zone;
use tokio::sync::{Mutex, MutexGuard};

use crate::claims::Claims;
use crate::inventory::Inventories;
use crate::metrics::ProviderMetrics;

/// Reason of a machine that waits because of the cap.
pub const SPEND_CAP_REACHED: &str = "SpendCapReached";

/// Prices per hour, in euros.
type Prices = BTreeMap<(Zone, String), f64>;

/// What hosts cost and may cost. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Budget(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    cap: Option<f64>,
    prices: RwLock<Prices>,
    counting: Mutex<()>,
}

impl Budget {
    /// With this cap in euros per hour, or none.
    pub fn new(cap: Option<f64>) -> Self {
        Self(Arc::new(Inner {
            cap,
            ..Inner::default()
        }))
    }

    /// From a check to the claim that it allows only one machine counts.
    pub async fn counting(&self) -> MutexGuard<'_, ()> {
        self.0.counting.lock().await
    }

    /// The prices of a zone, as they are now.
    pub fn set_prices(&self, zone: &Zone, prices: impl IntoIterator<Item = (String, f64)>) {
        let mut all = self.0.prices.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(other, _), _| other != zone);
        all.extend(prices.into_iter().map(|(type_, price)| ((zone.clone(), type_), price)));
    }

    /// Whether another host of this type may be taken into use; else a sentence.
    pub fn check(&self, inventories: &Inventories, claims: &Claims, zone: &Zone, type_: &str) -> Result<(), String> {
        let Some(cap) = self.0.cap else { return Ok(()) };
        let prices = self.prices();
        let Some(price) = prices.get(&(zone.clone(), type_.to_owned())) else {
            return Err(format!(
                "the price of {type_} in {zone} is not known, and a spend cap is set; it is read again soon, or remove --max-hourly-spend"
            ));
        };
        let used: f64 = hosts(inventories)
            .filter(|(_, _, id)| claims.get(id).is_some())
            .filter_map(|(zone, type_, _)| prices.get(&(zone, type_)))
            .sum();
        if used + price <= cap {
            return Ok(());
        }
        Err(format!(
            "the hosts in use cost {used:.2} EUR per hour, and another {type_} would exceed --max-hourly-spend={cap:.2}; scale a fleet down or raise the cap"
        ))
    }

    /// Shows what all Macs of the project cost.
    pub fn show(&self, inventories: &Inventories, metrics: &ProviderMetrics) {
        let prices = self.prices();
        let all = hosts(inventories).filter_map(|(zone, type_, _)| prices.get(&(zone, type_)));
        metrics.spend(all.sum());
    }

    fn prices(&self) -> Prices {
        self.0.prices.read().unwrap_or_else(PoisonError::into_inner).clone()
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
