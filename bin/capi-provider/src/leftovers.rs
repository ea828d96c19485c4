//! What machines that are gone have left behind besides hosts: keys, Secrets, signing requests, Services.
//!
//! All of it is removed with its machine; what is found here outlived a finalizer that was removed by force, or a fleet. It is
//! reported and never touched: a key or a Service may have been put to another use. Bootstrap tokens are not listed, since that
//! would mean reading every Secret of kube-system: their names follow from the machine, so those of machines of which
//! anything else was seen, now or earlier, are asked for one by one. The others expire within a day by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::api::{Api, ListParams, ObjectMeta};
use kube::{Client, ResourceExt as _};
use russet_api::ScalewayAppleSiliconMachine;
use russet_api::labels::{MACMINI_EGRESS, MANAGED_BY, MANAGED_BY_CAPI, OWNER_UID};
use russet_controller::Scope;
use russet_scaleway::iam::SshKey;
use tracing::{debug, warn};

use crate::identity::{self, BOOTSTRAP_GROUP};
use crate::journal::later;
use crate::machine::key_group;
use crate::metrics::ProviderMetrics;
use crate::pages;

/// End of the public keys we make; the fleet follows.
const KEY_COMMENT: &str = "tuist-capi-";
/// Kind of the owner of credential Secrets.
const MACHINE_KIND: &str = "ScalewayAppleSiliconMachine";

/// What was left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An SSH key at Scaleway of a fleet without machines.
    SshKey,
    /// The credentials of a host.
    CredentialSecret,
    /// A request for a certificate of a Node.
    SigningRequest,
    /// The way to a host over the tailnet.
    EgressService,
    /// What a Node may join with.
    BootstrapToken,
}

impl Kind {
    /// Every one, for reports that must fall to zero.
    pub const ALL: [Self; 5] = [
        Self::SshKey,
        Self::CredentialSecret,
        Self::SigningRequest,
        Self::EgressService,
        Self::BootstrapToken,
    ];

    /// Value of a label `kind`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SshKey => "ssh_key",
            Self::CredentialSecret => "credential_secret",
            Self::SigningRequest => "signing_request",
            Self::EgressService => "egress_service",
            Self::BootstrapToken => "bootstrap_token",
        }
    }

    /// What to do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::SshKey => {
                "no machine of the fleet is left: delete the key in the Scaleway console (IAM, SSH keys) and the Secret <fleet>-ssh, \
                 or keep both for a fleet that comes back"
            }
            Self::CredentialSecret => "the machine is gone: delete the Secret",
            Self::SigningRequest => "the machine is gone: delete the request, or let Kubernetes do it within a day",
            Self::EgressService => "the machine is gone: delete the Service",
            Self::BootstrapToken => "the machine is gone: delete the Secret, or let Kubernetes do it within a day",
        }
    }
}

/// One thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leftover {
    /// What it is.
    pub kind: Kind,
    /// Its name, with its namespace if it has one.
    pub name: String,
}

/// The machines there are.
#[derive(Clone, Debug, Default)]
struct Living {
    uids: BTreeSet<String>,
    groups: BTreeSet<String>,
}

impl Living {
    fn add(&mut self, mac: &ScalewayAppleSiliconMachine) {
        self.uids.extend(mac.metadata.uid.clone());
        self.groups.insert(key_group(mac));
    }

    fn lacks(&self, uid: &str) -> bool {
        !self.uids.contains(uid)
    }
}

/// Something in the cluster that belongs to machines.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thing {
    name: String,
    machines: Vec<String>,
}

/// Where to look.
#[derive(Clone)]
pub struct Leftovers {
    /// Kubernetes.
    pub client: Client,
    /// Scaleway.
    pub scaleway: russet_scaleway::Client,
    /// Where our machines are.
    pub scope: Scope,
    /// Where claims and keys are.
    pub secrets_namespace: String,
    /// Where egress Services are, if any are made.
    pub egress_namespace: Option<String>,
    /// Metrics.
    pub metrics: ProviderMetrics,
    /// How long something must be there before it counts.
    pub patience: Duration,
}

impl std::fmt::Debug for Leftovers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leftovers").finish_non_exhaustive()
    }
}

/// What is remembered between two looks.
#[derive(Debug, Default)]
pub struct Known {
    /// Namespaces in which there were machines.
    namespaces: BTreeSet<String>,
    /// Machines whose token may be there.
    uids: BTreeSet<String>,
    since: BTreeMap<Leftover, Timestamp>,
    told: BTreeSet<Leftover>,
}

impl Leftovers {
    /// One look; `holders` are machines that have a claim. A kind that cannot be listed keeps its last count.
    pub async fn look(&self, known: &mut Known, holders: BTreeSet<String>, now: Timestamp) -> Result<(), kube::Error> {
        let mut found = Vec::new();
        let mut unseen = BTreeSet::new();
        let mut note = |kind: Kind, list: Result<Vec<String>, String>| match list {
            Ok(names) => found.extend(names.into_iter().map(|name| Leftover { kind, name })),
            Err(error) => {
                debug!(kind = kind.as_str(), error, "what is left behind could not be listed");
                unseen.insert(kind);
            }
        };
        // Things first, machines last: whatever is made for a machine is made after it.
        let keys = self.scaleway.list_ssh_keys().await.map_err(|error| error.to_string());
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let requests = listed(&requests, &ListParams::default(), signing_request).await;
        let secrets = self.credentials(known).await;
        let services = match &self.egress_namespace {
            Some(namespace) => {
                let api: Api<Service> = Api::namespaced(self.client.clone(), namespace);
                let ours = ListParams::default().labels(&format!("{MACMINI_EGRESS}=true"));
                listed(&api, &ours, egress_service).await
            }
            None => Ok(Vec::new()),
        };
        // Of all namespaces: other providers make the same things.
        let machines: Api<ScalewayAppleSiliconMachine> = Api::all(self.client.clone());
        let mut living = Living::default();
        let mut ours = BTreeSet::new();
        pages::each(&machines, &ListParams::default(), |mac| {
            living.add(&mac);
            let namespace = mac.metadata.namespace.clone();
            if let Some(namespace) = namespace.filter(|namespace| self.scope.contains(namespace)) {
                ours.extend(mac.metadata.uid.clone());
                known.namespaces.insert(namespace);
            }
        })
        .await?;
        known.uids.extend(holders);
        let things = [&secrets, &requests, &services].into_iter().flatten().flatten();
        known
            .uids
            .extend(things.flat_map(|thing| thing.machines.iter().cloned()));
        let tokens = self.tokens(&mut known.uids, &living).await;
        known.uids.extend(ours);
        note(Kind::BootstrapToken, tokens);
        note(Kind::SshKey, keys.map(|keys| ssh_keys(&keys, &living)));
        note(Kind::CredentialSecret, secrets.map(|all| left(all, &living)));
        note(Kind::SigningRequest, requests.map(|all| left(all, &living)));
        note(Kind::EgressService, services.map(|all| left(all, &living)));
        self.tell(known, found, &unseen, now);
        Ok(())
    }

    /// The Secrets with credentials of hosts; what is in them is not read.
    async fn credentials(&self, known: &Known) -> Result<Vec<Thing>, String> {
        let ours = ListParams::default().labels(&format!("{MANAGED_BY}={MANAGED_BY_CAPI}"));
        let mut all = Vec::new();
        for namespace in self.namespaces(known) {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
            let listed = pages::each_metadata(&api, &ours, |metadata| all.extend(credential(&metadata))).await;
            listed.map_err(|error| error.to_string())?;
        }
        Ok(all)
    }

    /// The tokens of machines that are gone. One without a token is forgotten.
    async fn tokens(&self, uids: &mut BTreeSet<String>, living: &Living) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        let gone: Vec<String> = uids.iter().filter(|uid| living.lacks(uid)).cloned().collect();
        for uid in gone {
            let left = identity::tokens_of(&self.client, &uid).await;
            let left = left.map_err(|error| error.to_string())?;
            if left.is_empty() {
                uids.remove(&uid);
            }
            found.extend(left);
        }
        Ok(found)
    }

    /// Where credentials may be: where machines are or were. Not everywhere: the chart grants Secrets by namespace.
    fn namespaces(&self, known: &Known) -> BTreeSet<String> {
        let named = self.scope.places();
        let named = named
            .iter()
            .filter_map(|place| place.namespace().map(ToOwned::to_owned));
        let all = named.chain(known.namespaces.iter().cloned());
        all.chain([self.secrets_namespace.clone()]).collect()
    }

    fn tell(&self, known: &mut Known, found: Vec<Leftover>, unseen: &BTreeSet<Kind>, now: Timestamp) {
        let old = std::mem::take(&mut known.since);
        let kept = old.iter().filter(|(leftover, _)| unseen.contains(&leftover.kind));
        known.since = kept.map(|(leftover, since)| (leftover.clone(), *since)).collect();
        for leftover in found {
            let since = old.get(&leftover).copied().unwrap_or(now);
            known.since.insert(leftover, since);
        }
        let due: BTreeSet<Leftover> = known
            .since
            .iter()
            .filter(|(_, since)| now >= later(**since, self.patience))
            .map(|(leftover, _)| leftover.clone())
            .collect();
        for Leftover { kind, name } in due.difference(&known.told) {
            warn!(
                kind = kind.as_str(),
                name,
                advice = kind.advice(),
                "something of a machine that is gone was left behind"
            );
        }
        for kind in Kind::ALL {
            let count = due.iter().filter(|leftover| leftover.kind == kind).count();
            self.metrics.leftovers(kind.as_str(), count);
        }
        known.told = due;
    }
}

async fn listed<K>(api: &Api<K>, params: &ListParams, thing: impl Fn(&K) -> Option<Thing>) -> Result<Vec<Thing>, String>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut all = Vec::new();
    let listed = pages::each(api, params, |object| all.extend(thing(&object))).await;
    listed.map_err(|error| error.to_string())?;
    Ok(all)
}

/// Names of things one of whose machines is gone.
fn left(things: Vec<Thing>, living: &Living) -> Vec<String> {
    let gone = |thing: &Thing| thing.machines.iter().any(|uid| living.lacks(uid));
    things.into_iter().filter(gone).map(|thing| thing.name).collect()
}

/// The fleet a public key of ours was made for.
fn fleet_of(key: &SshKey) -> Option<&str> {
    key.public_key.trim().rsplit(' ').next()?.strip_prefix(KEY_COMMENT)
}

fn ssh_keys(keys: &[SshKey], living: &Living) -> Vec<String> {
    keys.iter()
        .filter(|key| fleet_of(key).is_some_and(|fleet| !living.groups.contains(fleet)))
        .map(|key| format!("{} ({})", key.name, key.id))
        .collect()
}

fn credential(metadata: &ObjectMeta) -> Option<Thing> {
    let name = metadata.name.as_deref().filter(|name| name.ends_with("-bootstrap"))?;
    let owners = metadata.owner_references.iter().flatten();
    Some(Thing {
        name: full_name(metadata.namespace.as_deref(), name),
        machines: owners
            .filter(|owner| owner.kind == MACHINE_KIND)
            .map(|owner| owner.uid.clone())
            .collect(),
    })
}

fn signing_request(request: &CertificateSigningRequest) -> Option<Thing> {
    let machine = |group: &String| Some(group.strip_prefix(BOOTSTRAP_GROUP)?.strip_prefix(':')?.to_owned());
    let machines: Vec<String> = request.spec.groups.iter().flatten().filter_map(machine).collect();
    (!machines.is_empty()).then(|| Thing {
        name: request.name_any(),
        machines,
    })
}

/// Those of older releases do not say whose they are.
fn egress_service(service: &Service) -> Option<Thing> {
    let uid = service.labels().get(OWNER_UID)?;
    Some(Thing {
        name: full_name(service.namespace().as_deref(), &service.name_any()),
        machines: vec![uid.clone()],
    })
}

fn full_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn living(uids: &[&str]) -> Living {
        Living {
            uids: uids.iter().map(|uid| (*uid).to_owned()).collect(),
            groups: BTreeSet::new(),
        }
    }

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn credentials_are_told_by_name_and_owner_alone() {
        let owner = |kind: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "mac-1", "uid": "u-1"}]);
        let secret = |name: &str, kind: &str| {
            let metadata = json!({"name": name, "namespace": "fleet", "ownerReferences": owner(kind)});
            credential(&read(metadata)).into_iter().collect::<Vec<_>>()
        };
        let ours = secret("mac-1-bootstrap", MACHINE_KIND);
        assert_eq!(left(ours.clone(), &living(&["u-1"])), Vec::<String>::new());
        assert_eq!(left(ours, &living(&["u-2"])), ["fleet/mac-1-bootstrap"]);
        assert_eq!(left(secret("other", MACHINE_KIND), &living(&[])), Vec::<String>::new());
        assert_eq!(left(secret("a-bootstrap", "Pod"), &living(&[])), Vec::<String>::new());
    }

    #[test]
    fn a_signing_request_belongs_to_the_machine_whose_token_asked() {
        let request = |groups: Value| {
            let spec = json!({"request": "", "signerName": "s", "groups": groups});
            signing_request(&read(json!({"metadata": {"name": "csr-1"}, "spec": spec})))
        };
        assert_eq!(request(json!(["system:nodes", "system:authenticated"])), None);
        let ours = request(json!(["system:bootstrappers", format!("{BOOTSTRAP_GROUP}:u-1")]));
        let ours: Vec<Thing> = ours.into_iter().collect();
        assert_eq!(left(ours.clone(), &living(&["u-1"])), Vec::<String>::new());
        assert_eq!(left(ours, &living(&[])), ["csr-1"]);
    }
}
