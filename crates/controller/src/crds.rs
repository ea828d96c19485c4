//! Waiting for kinds that are not served yet.
//!
//! Charts install controllers and CRDs in any order, and CRDs can be deleted under a running controller. Neither is a reason
//! to crash: a crash loop hides the cause behind a back-off. The controller waits, says for what, and goes on.
//!
//! Whether a kind is served is asked of discovery, which every authenticated user may read and which lists a CRD only once it
//! is Established. Reading the CRD object itself would need a cluster-wide right that a namespaced Role cannot give.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use kube::{Client, Resource};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::backoff::{self, Limits};
use crate::compare::Flavour;
use crate::health::Check;
use crate::metrics::ControllerMetrics;

const LIMITS: Limits = Limits {
    floor: Duration::from_millis(250),
    base: Duration::from_millis(500),
    max: Duration::from_secs(3),
};

/// How often a running controller looks whether its kinds are still served.
const WATCH_PERIOD: Duration = Duration::from_secs(30);

/// A kind that has to be served.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needed {
    group: String,
    version: String,
    plural: String,
}

impl Needed {
    /// The kind, if it comes from a CRD; kinds of Kubernetes itself are always there.
    pub fn of<K: Resource<DynamicType = ()>>() -> Option<Self> {
        let needed = Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
        };
        (Flavour::of_group(&needed.group) == Flavour::Custom).then_some(needed)
    }

    fn group_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }
}

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} ({})", self.plural, self.group, self.version)
    }
}

/// Those of the kinds that are not served now.
pub async fn missing(client: &Client, needed: &[Needed]) -> Result<Vec<Needed>, kube::Error> {
    let mut served: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for kind in needed {
        let group_version = kind.group_version();
        if served.contains_key(&group_version) {
            continue;
        }
        let names = match client.list_api_group_resources(&group_version).await {
            Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => return Err(error),
        };
        served.insert(group_version, names);
    }
    let is_served = |kind: &&Needed| {
        served
            .get(&kind.group_version())
            .is_some_and(|names| names.contains(&kind.plural))
    };
    Ok(needed.iter().filter(|kind| !is_served(kind)).cloned().collect())
}

/// How waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// All kinds are served.
    Served,
    /// We were asked to stop.
    Stopped,
}

/// Waits until all kinds are served. Each missing kind is logged once and named in the readiness check.
pub async fn wait(
    client: &Client,
    needed: &[Needed],
    check: &Check,
    metrics: &ControllerMetrics,
    stop: &CancellationToken,
) -> Waited {
    let mut attempt = 0;
    let mut told: Vec<Needed> = Vec::new();
    loop {
        match missing(client, needed).await {
            Ok(missing) => {
                report(needed, &missing, &mut told, check, metrics);
                if missing.is_empty() {
                    return Waited::Served;
                }
            }
            Err(error) => {
                warn!(%error, "cannot ask which kinds are served, trying again");
                check.fail("cannot ask the API server which kinds are served");
            }
        }
        let pause = backoff::delay(attempt, &LIMITS, &mut rand::rng());
        attempt = attempt.saturating_add(1);
        tokio::select! {
            () = stop.cancelled() => return Waited::Stopped,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Keeps the readiness check true while a controller runs. Never ends before `stop`; watches recover by themselves.
pub async fn keep_watch(
    client: &Client,
    needed: &[Needed],
    check: &Check,
    metrics: &ControllerMetrics,
    stop: &CancellationToken,
) {
    let mut told = Vec::new();
    loop {
        let pause = backoff::jittered(WATCH_PERIOD, &mut rand::rng());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        match missing(client, needed).await {
            Ok(missing) => report(needed, &missing, &mut told, check, metrics),
            // Watches report an API server that does not answer.
            Err(error) => debug!(%error, "cannot ask which kinds are served"),
        }
    }
}

fn report(needed: &[Needed], missing: &[Needed], told: &mut Vec<Needed>, check: &Check, metrics: &ControllerMetrics) {
    for kind in needed {
        metrics.crd_missing(&kind.to_string(), missing.contains(kind));
    }
    for kind in missing.iter().filter(|kind| !told.contains(kind)) {
        warn!(kind = %kind, "waiting for a CRD that is not installed or not Established; install chart russet-crds");
    }
    for kind in told.iter().filter(|kind| !missing.contains(kind)) {
        info!(kind = %kind, "the CRD is there now");
    }
    *told = missing.to_vec();
    if missing.is_empty() {
        check.pass();
    } else {
        let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
        check.fail(&format!("waiting for CRD {}", names.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn only_kinds_from_crds_are_waited_for() {
        assert_eq!(Needed::of::<ConfigMap>(), None);
        let pool = Needed::of::<russet_api::RunnerPool>().unwrap();
        assert_eq!(pool.to_string(), "runnerpools.tuist.dev (v1alpha1)");
    }
}
