//! Writing to the API server.
//!
//! [`Applier`] is the one writer of a controller. It stands for four promises:
//!
//! 1. **One field manager.** Objects are written by server-side apply; what we stop wanting is removed, what others wrote stays.
//!    A field that another manager owns is a typed error that names both ([`Error::Owned`]), unless forcing was asked for.
//! 2. **No needless request.** An object that is as we left it is not written again, not once per reconcile and not once
//!    per restart: see [`memory`](self) below.
//! 3. **Nothing vanishes silently.** Every answer is compared with what was sent; see [`Applied::pruned`].
//! 4. **No write without the Lease.** [`Leadership`] is checked before each request.
//!
//! How "as we left it" is known: each object carries a digest of what was applied in an annotation. When the digest is that of
//! the desired object and everything desired is live, there is nothing to do. While the process runs, it also remembers the
//! resourceVersion its own write led to; that covers what comparing cannot (values the server rewrites) and caches that
//! lag behind our own write.

mod desired;
mod error;
mod memory;
mod merge;
mod owner;
mod shared;
mod sync;

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams, ValidationDirective};
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::compare::{self, Flavour};
use crate::leader::{Leadership, NotLeading};
use crate::metrics::ControllerMetrics;

pub(crate) use desired::digest;
pub use desired::{Desired, Target};
pub use error::{Error, FieldConflict};
use error::{conflicts, maybe_undeclared};
pub(crate) use memory::{Known, Memory, Verdict};
pub use merge::{merge_diff, merge_into};
pub use owner::Owner;
pub use shared::{Shared, SharedChange};
pub use sync::{Children, LiveChildren, Synced};

pub use russet_api::annotations::APPLIED_HASH;
pub use russet_api::labels::OWNER_UID;

/// What a write came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It did not exist.
    Created,
    /// It existed and was changed.
    Updated,
    /// It was sent, and the server found nothing to change.
    Unchanged,
    /// Nothing had to be sent.
    Skipped,
}

/// An object as the API server has it after an apply.
#[derive(Debug, Clone)]
pub struct Applied {
    /// The live object.
    pub object: DynamicObject,
    /// What happened.
    pub change: Change,
    /// Paths that were sent and are not stored: the installed CRD is older than this controller. Empty when all is well.
    pub pruned: Vec<String>,
}

impl Applied {
    /// The object with its type.
    pub fn typed<K: serde::de::DeserializeOwned>(&self) -> Result<K, Error> {
        serde_json::to_value(&self.object)
            .and_then(serde_json::from_value)
            .map_err(|error| Error::Render {
                what: self.object.name_any(),
                problem: error.to_string(),
            })
    }
}

/// Whether to take fields from other managers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Force {
    /// Report them as [`Error::Owned`].
    No,
    /// Take them. Right for objects that we make and nobody else has business in, which is most.
    #[default]
    Yes,
}

/// The writer of one controller. Cheap to clone; clones share what they remember.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    manager: Arc<str>,
    force: Force,
    leadership: Leadership,
    metrics: ControllerMetrics,
    memory: Arc<Memory>,
}

impl std::fmt::Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier")
            .field("manager", &self.manager)
            .field("force", &self.force)
            .finish_non_exhaustive()
    }
}

impl Applier {
    /// A writer under the given field manager.
    pub fn new(client: Client, manager: &str, leadership: Leadership, metrics: ControllerMetrics) -> Self {
        Self {
            client,
            manager: manager.into(),
            force: Force::default(),
            leadership,
            metrics,
            memory: Arc::new(Memory::new(memory::PRUNED_RETRY)),
        }
    }

    /// The same writer with another answer to owned fields.
    #[must_use]
    pub fn with_force(mut self, force: Force) -> Self {
        self.force = force;
        self
    }

    /// The same writer with another time after which an object with pruned fields is tried again; it forgets what it remembered.
    #[must_use]
    pub fn with_pruned_retry(mut self, retry: Duration) -> Self {
        self.memory = Arc::new(Memory::new(retry));
        self
    }

    /// The field manager.
    pub fn manager(&self) -> &str {
        &self.manager
    }

    /// The client this writer uses.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Brings one object to the desired state. `live` is the object as far as the caller knows it, say from a cache; without
    /// it the object is read first.
    pub async fn apply(&self, desired: &Desired, live: Option<&DynamicObject>) -> Result<Applied, Error> {
        if live.is_some() {
            return self.apply_over(desired, live).await;
        }
        let live = self.read(desired.target()).await?;
        self.apply_over(desired, live.as_ref()).await
    }

    /// Like [`Applier::apply`] for a caller who has looked: no `live` means that the object does not exist.
    async fn apply_over(&self, desired: &Desired, live: Option<&DynamicObject>) -> Result<Applied, Error> {
        let known = live.map(|live| known(desired, live)).transpose()?;
        let verdict = self
            .memory
            .verdict(desired.target(), desired.hash(), known.as_ref(), Instant::now());
        if let (Verdict::Skip { pruned }, Some(live)) = (verdict, live) {
            return Ok(Applied {
                object: live.clone(),
                change: Change::Skipped,
                pruned,
            });
        }
        let (object, pruned) = self.send(desired, live).await?;
        let change = match live {
            None => Change::Created,
            Some(live) if live.resource_version() == object.resource_version() => Change::Unchanged,
            Some(_) => Change::Updated,
        };
        debug!(object = %desired.target(), ?change, "applied");
        if !pruned.is_empty() {
            warn!(object = %desired.target(), fields = ?pruned, "the API server dropped fields; upgrade the CRDs");
        }
        self.memory
            .remember(desired.target(), desired.hash(), &object, &pruned, Instant::now());
        Ok(Applied { object, change, pruned })
    }

    /// Reads an object.
    pub async fn read(&self, target: &Target) -> Result<Option<DynamicObject>, Error> {
        self.api(target)
            .get_opt(target.name())
            .await
            .map_err(|error| target.failed("read", error))
    }

    /// Sends the object and compares the answer.
    async fn send(
        &self,
        desired: &Desired,
        live: Option<&DynamicObject>,
    ) -> Result<(DynamicObject, Vec<String>), Error> {
        match self.patch(desired.target(), desired.value()).await {
            Ok(object) => {
                let lost = pruned(desired, &object)?;
                Ok((object, lost))
            }
            // Server-side apply refuses an object with a field that the schema does not declare, instead of dropping the field
            // as every other verb does. Which field it was stands only in the message, so the server is asked in a way that
            // does drop it, and the rest is applied: half an update with a loud condition beats none.
            Err(error @ Error::Request { .. }) if desired.flavour() == Flavour::Custom && maybe_undeclared(&error) => {
                let Some(stored) = self.rehearse(desired, live).await? else {
                    return Err(error);
                };
                let lost = pruned(desired, &stored)?;
                if lost.is_empty() {
                    return Err(error);
                }
                let stored = serde_json::to_value(&stored).map_err(|error| desired.target().unreadable(&error))?;
                let mut rest = desired.value().clone();
                compare::remove_paths(&mut rest, &stored, desired.flavour());
                Ok((self.patch(desired.target(), &rest).await?, lost))
            }
            Err(error) => Err(error),
        }
    }

    async fn patch(&self, target: &Target, value: &Value) -> Result<DynamicObject, Error> {
        self.leadership.check()?;
        let params = PatchParams {
            force: self.force == Force::Yes,
            ..PatchParams::apply(&self.manager)
        };
        let result = self
            .api(target)
            .patch(target.name(), &params, &Patch::Apply(value))
            .await;
        self.metrics
            .wrote(&self.manager, "apply", target.kind(), result.is_ok());
        result.map_err(|error| match conflicts(&error) {
            Some(conflicts) => Error::Owned {
                what: target.clone(),
                conflicts,
            },
            None => target.failed("apply", error),
        })
    }

    /// What the server would keep of the object, found out by a dry run of a verb that prunes.
    async fn rehearse(&self, desired: &Desired, live: Option<&DynamicObject>) -> Result<Option<DynamicObject>, Error> {
        self.leadership.check()?;
        let target = desired.target();
        let api = self.api(target);
        let result = if live.is_some() {
            let params = PatchParams {
                dry_run: true,
                field_manager: Some(self.manager.to_string()),
                field_validation: Some(ValidationDirective::Ignore),
                ..PatchParams::default()
            };
            api.patch(target.name(), &params, &Patch::Merge(desired.value())).await
        } else {
            let object: DynamicObject =
                serde_json::from_value(desired.value().clone()).map_err(|error| target.unreadable(&error))?;
            let params = PostParams {
                dry_run: true,
                field_manager: Some(self.manager.to_string()),
            };
            api.create(&params, &object).await
        };
        match result {
            Ok(object) => Ok(Some(object)),
            // The rehearsal failed for a reason of its own; the first error is the one to show.
            Err(error) => {
                debug!(object = %target, %error, "dry run failed as well");
                Ok(None)
            }
        }
    }

    pub(crate) fn api(&self, target: &Target) -> Api<DynamicObject> {
        match target.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, target.resource()),
            None => Api::all_with(self.client.clone(), target.resource()),
        }
    }

    pub(crate) fn check(&self) -> Result<(), NotLeading> {
        self.leadership.check()
    }

    pub(crate) fn wrote(&self, verb: &'static str, target: &Target, ok: bool) {
        self.metrics.wrote(&self.manager, verb, target.kind(), ok);
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }
}

/// The live object as [`Memory`] wants it.
fn known<'a>(desired: &Desired, live: &'a DynamicObject) -> Result<Known<'a>, Error> {
    let value = serde_json::to_value(live).map_err(|error| desired.target().unreadable(&error))?;
    Ok(Known {
        uid: live.metadata.uid.as_deref().unwrap_or_default(),
        version: live.metadata.resource_version.as_deref().unwrap_or_default(),
        hash: live.annotations().get(APPLIED_HASH).map(String::as_str),
        subset: compare::is_subset(desired.value(), &value, desired.flavour()),
    })
}

/// The paths that were sent and did not come back.
fn pruned(desired: &Desired, answer: &DynamicObject) -> Result<Vec<String>, Error> {
    let value = serde_json::to_value(answer).map_err(|error| desired.target().unreadable(&error))?;
    Ok(compare::missing(desired.value(), &value, desired.flavour()))
}
