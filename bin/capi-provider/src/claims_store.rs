//! Claims as Leases: `mac-<server id>` or `linux-<server id>` in one namespace, whoever the machine is.
//!
//! A Lease is used because it is small, not watched by everybody, and made to say who holds something. It never expires:
//! `leaseDurationSeconds` stays empty, and only whoever has the claim, or the report of dead claims, removes it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt as _, utils::Backoff};
use kube::{Client, ResourceExt as _};
use russet_api::labels;
use russet_api::values::ServerId;
use russet_controller::health::Check;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::claims::{Claimed, Claims, Holder};
use crate::pages;

/// What is claimed. The claims of one family know nothing of those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Macs.
    Mac,
    /// Elastic Metal servers, and the making of Private Networks.
    Linux,
}

impl Family {
    /// Label value by which claims are told from other Leases of the namespace.
    const fn component(self) -> &'static str {
        match self {
            Self::Mac => "mac-claim",
            Self::Linux => "linux-claim",
        }
    }

    fn selector(self) -> String {
        format!("{}={}", labels::APP_COMPONENT, self.component())
    }

    fn object_name(self, server: &ServerId) -> String {
        let prefix = match self {
            Self::Mac => "mac",
            Self::Linux => "linux",
        };
        format!("{prefix}-{}", server.as_str().to_ascii_lowercase())
    }
}

pub(crate) const SERVER: &str = "scaleway.tuist.dev/server-id";
const CLAIM: &str = "scaleway.tuist.dev/claim-id";
const NAMESPACE: &str = "scaleway.tuist.dev/machine-namespace";
const NAME: &str = "scaleway.tuist.dev/machine-name";

/// The claims in the API server, and a copy of them at hand. Cheap to clone.
#[derive(Clone)]
pub struct ClaimStore {
    family: Family,
    api: Api<Lease>,
    copy: Arc<RwLock<Copy>>,
    freed: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>,
}

impl std::fmt::Debug for ClaimStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimStore").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Copy {
    filled: bool,
    claims: Claims,
}

/// How taking a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is ours.
    Yes,
    /// There is one already.
    Exists,
}

pub(crate) fn selector() -> String {
    Family::Mac.selector()
}

impl ClaimStore {
    /// The claims of this namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self::of(Family::Mac, client, namespace)
    }

    /// The claims of a family.
    pub fn of(family: Family, client: Client, namespace: &str) -> Self {
        Self {
            family,
            api: Api::namespaced(client, namespace),
            copy: Arc::default(),
            freed: Arc::default(),
        }
    }

    /// Calls this whenever a claim is gone: its host may be free. Only the first counts.
    pub fn when_freed(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.freed.set(Box::new(call));
    }

    /// The copy, once it was filled; hold it for a decision only.
    pub fn copy(&self) -> Option<impl std::ops::Deref<Target = Claims> + '_> {
        let copy = self.read();
        copy.filled.then(|| CopyGuard(copy))
    }

    /// The objects themselves.
    pub(crate) fn api(&self) -> &Api<Lease> {
        &self.api
    }

    /// The claims as they are, past the copy.
    pub async fn live(&self) -> Result<Claims, kube::Error> {
        let ours = ListParams::default().labels(&self.family.selector());
        let mut claims = Claims::default();
        pages::each(&self.api, &ours, |lease| add(&mut claims, &lease)).await?;
        Ok(claims)
    }

    /// Creates a claim, which only one can do.
    pub async fn take(&self, server: &ServerId, holder: &Holder, id: &str) -> Result<Taken, kube::Error> {
        let lease = render_of(self.family, server, holder, id, Timestamp::now());
        match self.api.create(&PostParams::default(), &lease).await {
            Ok(made) => {
                self.change(|claims| add(claims, &made));
                Ok(Taken::Yes)
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                // The copy did not know, or knew another.
                if let Some(there) = self.api.get_opt(&self.family.object_name(server)).await? {
                    self.change(|claims| replace(claims, &there));
                }
                Ok(Taken::Exists)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes the claim for this host if it has this id. One that is gone, or is another by now, is fine.
    pub async fn remove(&self, server: &ServerId, id: &str) -> Result<(), kube::Error> {
        let name = self.family.object_name(server);
        let Some(lease) = self.api.get_opt(&name).await? else {
            self.change(|claims| claims.remove(server, id));
            return Ok(());
        };
        if lease.annotations().get(CLAIM).map(String::as_str) != Some(id) {
            self.change(|claims| replace(claims, &lease));
            return Ok(());
        }
        let this_one = DeleteParams::default().preconditions(Preconditions {
            uid: lease.uid(),
            resource_version: lease.resource_version(),
        });
        match self.api.delete(&name, &this_one).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error),
        }
        self.change(|claims| claims.remove(server, id));
        Ok(())
    }

    /// Keeps the copy up to date until `stop`.
    pub async fn run(self, check: Check, stop: CancellationToken) {
        let config = watcher::Config::default().labels(&self.family.selector());
        let mut events = std::pin::pin!(watcher(self.api.clone(), config).backoff(Pause).into_stream());
        let mut fresh = Claims::default();
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.try_next() => event,
            };
            match event {
                Ok(None) => return,
                Ok(Some(Event::Init)) => fresh = Claims::default(),
                Ok(Some(Event::InitApply(lease))) => add(&mut fresh, &lease),
                Ok(Some(Event::InitDone)) => {
                    let mut copy = self.copy.write().unwrap_or_else(PoisonError::into_inner);
                    copy.claims = std::mem::take(&mut fresh);
                    copy.filled = true;
                    check.pass();
                    debug!("claims listed");
                }
                Ok(Some(Event::Apply(lease))) => self.change(|claims| replace(claims, &lease)),
                Ok(Some(Event::Delete(lease))) => {
                    if let Some((server, claim)) = parse(&lease) {
                        self.change(|claims| claims.remove(&server, &claim.id));
                    }
                    if let Some(freed) = self.freed.get() {
                        freed();
                    }
                }
                Err(error) => {
                    warn!(%error, "cannot watch the claims, trying again");
                    if !self.read().filled {
                        check.fail("the claims cannot be listed and watched");
                    }
                }
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Copy> {
        self.copy.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Claims)) {
        change(&mut self.copy.write().unwrap_or_else(PoisonError::into_inner).claims);
    }
}

struct CopyGuard<'a>(RwLockReadGuard<'a, Copy>);

impl std::ops::Deref for CopyGuard<'_> {
    type Target = Claims;

    fn deref(&self) -> &Claims {
        &self.0.claims
    }
}

/// A watch that fails is tried again every few seconds.
#[derive(Debug, Default)]
struct Pause;

impl Iterator for Pause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_secs(2))
    }
}

impl Backoff for Pause {
    fn reset(&mut self) {}
}

pub(crate) fn render(server: &ServerId, holder: &Holder, id: &str, now: Timestamp) -> Lease {
    render_of(Family::Mac, server, holder, id, now)
}

fn render_of(family: Family, server: &ServerId, holder: &Holder, id: &str, now: Timestamp) -> Lease {
    let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    Lease {
        metadata: ObjectMeta {
            name: Some(family.object_name(server)),
            labels: Some(BTreeMap::from([
                text(labels::APP_COMPONENT, family.component()),
                text(labels::MANAGED_BY, labels::MANAGED_BY_CAPI),
            ])),
            annotations: Some(BTreeMap::from([
                text(SERVER, server.as_str()),
                text(CLAIM, id),
                text(NAMESPACE, &holder.namespace),
                text(NAME, &holder.name),
            ])),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.uid.clone()),
            acquire_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}

/// A Lease that somebody edited until it says nothing is none of ours; the host looks free to us and is not, since no claim can
/// be created under its name.
fn parse(lease: &Lease) -> Option<(ServerId, Claimed)> {
    let annotations = lease.annotations();
    let text = |key: &str| annotations.get(key).cloned();
    let server = text(SERVER)?.parse().ok()?;
    let holder = Holder {
        uid: lease.spec.as_ref()?.holder_identity.clone()?,
        namespace: text(NAMESPACE)?,
        name: text(NAME)?,
    };
    Some((
        server,
        Claimed {
            holder,
            id: text(CLAIM)?,
        },
    ))
}

fn add(claims: &mut Claims, lease: &Lease) {
    if let Some((server, claim)) = parse(lease) {
        // Names are unique, so there is never a second one.
        drop(claims.take(server, claim.holder, claim.id));
    } else {
        warn!(
            lease = lease.name_any(),
            "a claim cannot be read; remove it if its host is free"
        );
    }
}

fn replace(claims: &mut Claims, lease: &Lease) {
    if let Some((server, _)) = parse(lease) {
        if let Some(old) = claims.get(&server).map(|claim| claim.id.clone()) {
            claims.remove(&server, &old);
        }
        add(claims, lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_survives_the_api_server() {
        let holder = Holder {
            uid: "u-1".into(),
            namespace: "fleets".into(),
            name: "mac-1".into(),
        };
        let server: ServerId = "2F1c-9".parse().unwrap();
        let lease = render(&server, &holder, "id-1", Timestamp::UNIX_EPOCH);
        assert_eq!(
            lease.metadata.name.as_deref(),
            Some("mac-2f1c-9"),
            "names are lower case"
        );
        let text = serde_json::to_string(&lease).unwrap();
        let read: Lease = serde_json::from_str(&text).unwrap();
        let mut claims = Claims::default();
        add(&mut claims, &read);
        let claim = claims.held(&server, "u-1").unwrap();
        assert_eq!((claim.id.as_str(), &claim.holder), ("id-1", &holder));
        let next = render(&server, &holder, "id-2", Timestamp::UNIX_EPOCH);
        replace(&mut claims, &next);
        assert_eq!(claims.get(&server).unwrap().id, "id-2");
    }

    #[test]
    fn a_lease_that_says_nothing_is_no_claim() {
        assert!(parse(&Lease::default()).is_none());
    }
}
