//! Where the API server is by now, for hosts that were told once and would never ask again.
//!
//! A cluster gets another load balancer, or another port: whoever looked the address up at each connection would not notice, but a
//! Mac keeps what it was set up with. So the address is part of what hosts are set up with, and is looked at again now and then; a
//! host that was told another one has drifted, and is told anew over SSH like any other.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use russet_bootstrap::mac;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::api_server::{ApiServer, Error, Settings};
use crate::registry::Registry;

/// How often it is looked up, unless the flags say everything.
const PERIOD: Duration = Duration::from_secs(30);

/// The place of the API server, as far as it is known. Cheap to clone.
#[derive(Clone)]
pub struct Whereabouts(Arc<Inner>);

struct Inner {
    client: kube::Client,
    settings: Settings,
    /// What was found last stays: a ConfigMap that is gone or damaged for a moment is no reason to roll a fleet.
    known: Mutex<Option<Arc<mac::ApiServer>>>,
}

impl fmt::Debug for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Whereabouts").field(&self.known()).finish()
    }
}

impl Whereabouts {
    /// Nothing is known yet.
    pub fn new(client: kube::Client, settings: Settings) -> Self {
        Self(Arc::new(Inner {
            client,
            settings,
            known: Mutex::default(),
        }))
    }

    /// Where it was when somebody looked last.
    pub fn known(&self) -> Option<Arc<mac::ApiServer>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks it up, unless it is known.
    pub async fn learn(&self) -> Result<(), Error> {
        if self.known().is_none() {
            self.look().await?;
        }
        Ok(())
    }

    /// Looks it up. Whether it is elsewhere than before.
    async fn look(&self) -> Result<bool, Error> {
        let ApiServer { url, ca_pem } = ApiServer::find(&self.0.client, &self.0.settings).await?;
        let found = mac::ApiServer { url, ca_pem };
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.as_deref();
        if before == Some(&found) {
            return Ok(false);
        }
        let moved = before.is_some();
        if let Some(before) = before {
            info!(
                from = before.url,
                to = found.url,
                "the API server is elsewhere, or others vouch for it"
            );
        }
        *known = Some(Arc::new(found));
        Ok(moved)
    }

    /// Looks again now and then until `stop`, and wakes all machines when it moved. What the flags say does not move.
    pub async fn run(self, registry: Registry, stop: CancellationToken) {
        self.follow(PERIOD, &registry, &stop).await;
    }

    async fn follow(&self, period: Duration, registry: &Registry, stop: &CancellationToken) {
        let Settings { url, ca_pem } = &self.0.settings;
        if url.is_some() && ca_pem.is_some() {
            stop.cancelled().await;
            return;
        }
        let mut said: Option<String> = None;
        while stop.run_until_cancelled(tokio::time::sleep(period)).await.is_some() {
            let looked = self.look().await;
            let error = looked.as_ref().err().map(ToString::to_string);
            if error.is_some() && error != said {
                warn!(
                    error,
                    "hosts that serve are left as they are until the API server's address is known"
                );
            }
            said = error;
            if matches!(looked, Ok(true)) {
                for key in registry.keys() {
                    registry.wake(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
