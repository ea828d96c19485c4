//! What Linux servers in use cost: all that bear our tag, for the cap of [`crate::spend`].

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use russet_api::values::{ServerId, Zone};
use tokio::time::Instant;

use super::cloud::Cloud;
use super::server::TAG;
use super::zones::Zones;
use crate::spend::{Budget, Tally, unknown};

/// A list may lack for a while what was ordered a moment ago.
const LISTED_AFTER: Duration = Duration::from_mins(5);

/// The servers of one product.
#[derive(Debug)]
pub struct LinuxTally {
    cloud: Cloud,
    /// Where machines of either product are.
    zones: [Zones; 2],
    recent: Mutex<HashMap<ServerId, (Instant, f64)>>,
}

impl LinuxTally {
    /// Counts what is in any of these zones, against this budget.
    pub fn included(budget: &Budget, cloud: Cloud, zones: [Zones; 2]) -> Arc<Self> {
        let tally = Arc::new(Self {
            cloud,
            zones,
            recent: Mutex::default(),
        });
        budget.include(Arc::downgrade(&tally) as _);
        tally
    }

    /// The price of another server.
    pub async fn price(&self, zone: &Zone, type_: &str) -> Option<f64> {
        self.cloud.price(zone, type_).await.ok().flatten()
    }

    /// This one was ordered just now.
    pub fn ordered(&self, server: &ServerId, price: Option<f64>) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|_, (at, _)| at.elapsed() < LISTED_AFTER);
        if let Some(price) = price {
            recent.insert(server.clone(), (Instant::now(), price));
        }
    }

    async fn count(&self) -> Result<f64, String> {
        let places: BTreeSet<Zone> = self.zones.iter().flat_map(Zones::all).map(|(zone, _)| zone).collect();
        let mut used: HashMap<ServerId, f64> = HashMap::new();
        for place in places {
            // Fresh: what the shared poll saw may lack what another machine ordered since.
            let listed = match self.cloud.list(&place).await {
                Ok(servers) => servers,
                // Not every product is in every zone.
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.to_string()),
            };
            for server in listed.iter().filter(|server| server.tags.iter().any(|tag| tag == TAG)) {
                let price = self.cloud.price(&place, &server.type_).await;
                let price = price.map_err(|error| error.to_string())?;
                let price = price.ok_or_else(|| unknown(&place, &server.type_))?;
                used.insert(server.id.clone(), price);
            }
        }
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        for (server, (at, price)) in recent.iter() {
            if at.elapsed() < LISTED_AFTER {
                used.entry(server.clone()).or_insert(*price);
            }
        }
        Ok(used.values().sum())
    }
}

impl Tally for LinuxTally {
    fn used(&self) -> BoxFuture<'_, Result<f64, String>> {
        self.count().boxed()
    }
}
