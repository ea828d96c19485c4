//! The SSH key of a fleet: in a Secret for us, in IAM for Scaleway, and the same in both.
//!
//! ```text
//!   Secret <fleet>-ssh ── create or get: one winner ──▶ the key ── list ──▶ registered? ── no ──▶ register
//!          ▲                                                                    │ yes                │
//!          └────────────── annotation: id, under the version that was read ─────┴────────────────────┘
//! ```
//!
//! Scaleway puts the keys of a project on a Mac only when it installs it, so a key that differs between the two places locks
//! a whole fleet out (incident `fleet-key-race`). The Secret is therefore made first, by a creation that only one of
//! several callers can win, and IAM always follows the Secret, never the other way round.
//!
//! Operators may bring their own Secret; ours carries the label `tuist.dev/managed-by`. Only for ours is an older registration
//! under the same name removed, only in our project, and only after the new one is in place.

mod error;
mod key;
mod register;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::ResourceExt as _;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use russet_api::annotations::SSH_KEY_ID;
use russet_api::labels::{FLEET, MANAGED_BY, MANAGED_BY_CAPI};
use russet_scaleway::{Kind, ProjectId, SshKeyId};
use russet_telemetry::Secret;
use serde_json::json;
use tokio::time::Instant;
use tracing::{info, warn};

pub use error::Error;
pub use key::Malformed;
use key::Stored;
use register::{Plan, Wanted};

/// How long a registration that was seen is believed to be still there.
const BELIEVED: Duration = Duration::from_mins(10);

/// How often to start over when others write at the same time. Each round means that somebody else got further.
const ROUNDS: u32 = 6;

/// The key of a fleet, registered.
#[derive(Clone, Debug)]
pub struct FleetKey {
    /// The private key in OpenSSH form.
    pub private: Secret<String>,
    /// The public key, one line.
    pub public: String,
    /// Password of the administrator on the fleet's hosts, if the operator set one for all.
    pub sudo_password: Option<Secret<String>>,
    /// Its id in IAM.
    pub key_id: SshKeyId,
}

/// The keys of all fleets. Cheap to clone; clones share what was seen.
#[derive(Clone)]
pub struct FleetKeys {
    client: kube::Client,
    scaleway: russet_scaleway::Client,
    namespace: String,
    project: ProjectId,
    slots: Arc<Mutex<HashMap<String, Slot>>>,
}

/// What was last seen of one fleet. Held while a key is made and registered, so one process does it once.
type Slot = Arc<tokio::sync::Mutex<Option<Seen>>>;

/// A registration that was seen in IAM.
#[derive(Clone, Debug)]
struct Seen {
    public: String,
    id: SshKeyId,
    at: Instant,
}

impl std::fmt::Debug for FleetKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FleetKeys")
            .field("namespace", &self.namespace)
            .field("project", &self.project)
            .finish_non_exhaustive()
    }
}

impl FleetKeys {
    /// Keys in Secrets of this namespace, registered in this project.
    pub fn new(client: kube::Client, scaleway: russet_scaleway::Client, namespace: String, project: ProjectId) -> Self {
        Self {
            client,
            scaleway,
            namespace,
            project,
            slots: Arc::default(),
        }
    }

    /// The key of a fleet: made if there is none, and registered with Scaleway when this returns.
    pub async fn ensure(&self, fleet: &str) -> Result<FleetKey, Error> {
        let name = secret_name(fleet)?;
        if *self.scaleway.project() != self.project {
            return Err(Error::Project {
                wanted: self.project.clone(),
                got: self.scaleway.project().clone(),
            });
        }
        let slot = self.slot(fleet);
        let mut seen = slot.lock().await;
        let mut made = Vec::new();
        for _ in 0..ROUNDS {
            let secret = self.read_or_create(fleet, &name).await?;
            let stored = Stored::read(&secret).map_err(|problem| Error::Malformed {
                namespace: self.namespace.clone(),
                name: name.clone(),
                problem,
            })?;
            let recorded = recorded(&secret);
            if let Some(seen) = &*seen
                && seen.public == stored.public
                && recorded.as_ref() == Some(&seen.id)
                && seen.at.elapsed() < BELIEVED
            {
                return Ok(stored.registered(seen.id.clone()));
            }
            *seen = None;
            let Some((id, surplus)) = self.register(fleet, &secret, &stored, &mut made).await? else {
                continue;
            };
            if recorded.as_ref() != Some(&id) && !self.record(&name, &secret, &id).await? {
                continue;
            }
            if self.remove(fleet, &surplus).await {
                *seen = Some(Seen {
                    public: stored.public.clone(),
                    id: id.clone(),
                    at: Instant::now(),
                });
            }
            return Ok(stored.registered(id));
        }
        Err(Error::Restless {
            fleet: fleet.to_owned(),
        })
    }

    fn slot(&self, fleet: &str) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(fleet.to_owned()).or_default())
    }

    fn secrets(&self) -> Api<KubeSecret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn failed(&self, verb: &'static str, name: &str) -> impl FnOnce(kube::Error) -> Error {
        let (namespace, name) = (self.namespace.clone(), name.to_owned());
        move |source| Error::Secret {
            verb,
            namespace,
            name,
            source: Box::new(source),
        }
    }

    /// The Secret, made if it is not there. Whoever creates it first decides the key for everybody.
    async fn read_or_create(&self, fleet: &str, name: &str) -> Result<KubeSecret, Error> {
        let secrets = self.secrets();
        if let Some(secret) = secrets.get_opt(name).await.map_err(self.failed("read", name))? {
            return Ok(secret);
        }
        let pair = Stored::generate(fleet).map_err(|_| Error::Generate)?;
        let secret = KubeSecret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels(fleet)),
                ..ObjectMeta::default()
            },
            string_data: Some(pair.string_data()),
            type_: Some("Opaque".to_owned()),
            ..KubeSecret::default()
        };
        match secrets.create(&PostParams::default(), &secret).await {
            Ok(secret) => {
                info!(fleet, secret = name, "made the SSH key of a fleet");
                Ok(secret)
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                secrets.get(name).await.map_err(self.failed("read", name))
            }
            Err(error) => Err(self.failed("create", name)(error)),
        }
    }

    /// Finds or makes the registration, and says which others are in its place. None means: look again.
    async fn register(
        &self,
        fleet: &str,
        secret: &KubeSecret,
        stored: &Stored,
        made: &mut Vec<SshKeyId>,
    ) -> Result<Option<(SshKeyId, Vec<SshKeyId>)>, Error> {
        let iam = |verb| {
            move |source| Error::Iam {
                verb,
                fleet: fleet.to_owned(),
                source: Box::new(source),
            }
        };
        let keys = self.scaleway.list_ssh_keys().await.map_err(iam("list"))?;
        let wanted = Wanted {
            project: &self.project,
            name: fleet,
            public: &stored.public,
            recorded: recorded(secret),
            ours: is_ours(secret),
            made,
        };
        match register::plan(&keys, &wanted) {
            Plan::Keep { id, surplus } => Ok(Some((id, surplus))),
            Plan::Disabled { id } => Err(Error::Disabled {
                fleet: fleet.to_owned(),
                id,
            }),
            Plan::Create { surplus } => match self.scaleway.create_ssh_key(fleet, &stored.public).await {
                Ok(key) => {
                    info!(fleet, id = %key.id, "registered the SSH key of a fleet");
                    made.push(key.id.clone());
                    Ok(Some((key.id, surplus)))
                }
                // It is there already, or may be: what IAM lists next decides.
                Err(error) if matches!(error.kind, Kind::Conflict { .. } | Kind::Unknown { .. }) => Ok(None),
                Err(error) => Err(iam("register")(error)),
            },
        }
    }

    /// Writes the id to the Secret, unless the Secret changed since it was read.
    async fn record(&self, name: &str, secret: &KubeSecret, id: &SshKeyId) -> Result<bool, Error> {
        let patch = json!({"metadata": {
            "resourceVersion": secret.resource_version(),
            "uid": secret.uid(),
            "annotations": { SSH_KEY_ID: id },
        }});
        match self
            .secrets()
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
        {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(false),
            Err(error) => Err(self.failed("write the key id to", name)(error)),
        }
    }

    /// Removes registrations that this key replaces. One that stays does no harm today, so it is only reported, and tried again.
    async fn remove(&self, fleet: &str, surplus: &[SshKeyId]) -> bool {
        let mut all = true;
        for id in surplus {
            match self.scaleway.delete_ssh_key(id).await {
                Ok(()) => info!(fleet, %id, "removed a registration that the fleet's key replaces"),
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    warn!(fleet, %id, %error, "could not remove a registration that the fleet's key replaces");
                    all = false;
                }
            }
        }
        all
    }
}

/// The name of a fleet's Secret.
fn secret_name(fleet: &str) -> Result<String, Error> {
    let name = format!("{fleet}-ssh");
    let edge = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().copied().is_some_and(edge)
            && bytes.last().copied().is_some_and(edge)
            && bytes.iter().all(|c| edge(*c) || *c == b'-')
    };
    if name.len() <= 253 && name.split('.').all(part) {
        Ok(name)
    } else {
        Err(Error::Name {
            fleet: fleet.to_owned(),
        })
    }
}

fn labels(fleet: &str) -> std::collections::BTreeMap<String, String> {
    let mut labels = std::collections::BTreeMap::from([(MANAGED_BY.to_owned(), MANAGED_BY_CAPI.to_owned())]);
    // A machine without a fleet is one of its own, whose name may be too long for a label.
    if fleet.len() <= 63 {
        labels.insert(FLEET.to_owned(), fleet.to_owned());
    }
    labels
}

fn is_ours(secret: &KubeSecret) -> bool {
    secret.labels().get(MANAGED_BY).is_some_and(|by| by == MANAGED_BY_CAPI)
}

fn recorded(secret: &KubeSecret) -> Option<SshKeyId> {
    secret.annotations().get(SSH_KEY_ID)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_whose_secret_could_not_be_named_is_refused() {
        assert_eq!(secret_name("macs").unwrap(), "macs-ssh");
        assert_eq!(secret_name("default-mac.1").unwrap(), "default-mac.1-ssh");
        for bad in ["", "-a", "A", "a_b", "a..b", "a/b", &"a".repeat(250)] {
            assert!(matches!(secret_name(bad), Err(Error::Name { .. })), "{bad}");
        }
    }
}
