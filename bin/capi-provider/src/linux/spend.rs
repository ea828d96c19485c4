//! What Linux servers cost, and how much of it may be in use: the cap of `--max-hourly-spend` counts what bears our tags.

use std::sync::Arc;

use russet_api::values::Zone;
use tokio::sync::{Mutex, MutexGuard};

use super::cloud::{Cloud, Offered};
use super::server::TAG;
use super::wanted::Wanted;
use super::zones::Zones;

/// The cap. Cheap to clone; both kinds share one.
#[derive(Clone, Debug, Default)]
pub struct LinuxBudget(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    cap: Option<f64>,
    counting: Mutex<()>,
}

impl LinuxBudget {
    /// With this cap in euros per hour, or none.
    pub fn new(cap: Option<f64>) -> Self {
        Self(Arc::new(Inner {
            cap,
            counting: Mutex::default(),
        }))
    }

    /// From a check to the order that it allows only one machine counts.
    pub(super) async fn counting(&self) -> MutexGuard<'_, ()> {
        self.0.counting.lock().await
    }

    /// Whether another server of this type may be ordered; else a sentence.
    pub(super) async fn check(&self, cloud: &Cloud, zones: &Zones, zone: &Zone, wanted: &Wanted) -> Result<(), String> {
        let Some(cap) = self.0.cap else { return Ok(()) };
        let unknown = || {
            format!(
                "the price of {} in {zone} is not known, and a spend cap is set; it is read again soon, or remove --max-hourly-spend",
                wanted.type_
            )
        };
        let offered = cloud.offered(zone, wanted).await.ok();
        let price = offered.as_ref().and_then(Offered::price).ok_or_else(unknown)?;
        // What is in use is counted fresh: a list of a moment ago may lack what another machine ordered since.
        let mut used = 0.0;
        for (place, _) in zones.all() {
            let servers = cloud.list(&place).await.map_err(|error| error.to_string())?;
            for server in servers.iter().filter(|server| server.tags.iter().any(|tag| tag == TAG)) {
                let same = Wanted {
                    type_: server.type_.clone(),
                    ..wanted.clone()
                };
                let offered = cloud.offered(&place, &same).await.ok();
                used += offered.as_ref().and_then(Offered::price).unwrap_or_default();
            }
        }
        if used + price <= cap {
            return Ok(());
        }
        Err(format!(
            "the servers in use cost {used:.2} EUR per hour, and another {} would exceed --max-hourly-spend={cap:.2}; scale a fleet down or raise the cap",
            wanted.type_
        ))
    }
}
