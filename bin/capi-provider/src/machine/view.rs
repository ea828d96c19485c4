//! An object and what surrounds it, as a decision needs it.

use kube::ResourceExt as _;
use russet_api::annotations::cluster_api::{DELETE_FOR_MOVE, PAUSED};
use russet_api::conditions::{self, types};
use russet_api::finalizers::APPLE_SILICON_MACHINE;
use russet_api::groups::CLUSTER_API;
use russet_api::labels::cluster_api::CLUSTER_NAME;
use russet_api::machine::StepState;
use russet_api::values::{PoolPrefix, ServerId, Zone};

use super::{Context, Mac};
use crate::candidates::Wanted;
use crate::capi;
use crate::claims::Holder;
use crate::decide::{Machine, Setup, Standing};
use crate::journal::{Journal, Unreadable};
use crate::registry::{Key, Ties};
use crate::situation::SpecProblem;

/// The step that says that the credentials of the host are stored.
pub(super) const CREDENTIALS_STEP: &str = "credentials";

/// The objects around one of ours.
#[derive(Clone, Debug, Default)]
pub(super) struct Around {
    pub(super) machine: Option<capi::Machine>,
    pub(super) cluster: Option<capi::Cluster>,
}

pub(super) fn key(mac: &Mac) -> Key {
    Key {
        namespace: mac.namespace().unwrap_or_default(),
        name: mac.name_any(),
    }
}

/// Name of the Machine that owns this object.
fn owner(mac: &Mac) -> Option<&str> {
    let owners = mac.owner_references().iter();
    owners
        .filter(|owner| owner.kind == "Machine" && owner.api_version.split('/').next() == Some(CLUSTER_API))
        .map(|owner| owner.name.as_str())
        .next()
}

impl Context {
    /// Reads what surrounds an object, from the caches.
    pub(super) fn around(&self, mac: &Mac) -> Around {
        let namespace = mac.namespace();
        let machine = owner(mac).and_then(|name| self.machines.get(namespace.as_deref(), name));
        let cluster = match &machine {
            Some(machine) => Some(machine.spec.cluster_name.clone()),
            // While it is deleted the Machine may be gone already.
            None => mac.labels().get(CLUSTER_NAME).cloned(),
        };
        let cluster = cluster.and_then(|name| self.clusters.get(namespace.as_deref(), &name));
        Around { machine, cluster }
    }
}

/// The group whose SSH key a machine uses: its fleet, or one of its own.
pub(crate) fn key_group(mac: &Mac) -> String {
    match mac.spec.fleet_name.as_deref().filter(|fleet| !fleet.is_empty()) {
        Some(fleet) => fleet.to_owned(),
        None => format!("{}-{}", mac.namespace().unwrap_or_default(), mac.name_any()),
    }
}

/// The object as a decision needs it.
pub(super) fn view(
    mac: &Mac,
    around: &Around,
    default_pool: Option<&PoolPrefix>,
    cleaned_up: bool,
) -> Result<Machine, Unreadable> {
    let status = mac.status.clone().unwrap_or_default();
    let journal = status.intent.as_ref().map(Journal::try_from).transpose()?;
    let (zone, zone_problem) = zone(mac, around);
    let wanted = match zone_problem {
        Some(problem) => Err(problem),
        None => wanted(mac, default_pool),
    };
    let bootstrapped = conditions::is_true(&status.conditions, types::BOOTSTRAPPED);
    let stored = status
        .steps
        .iter()
        .any(|step| step.name == CREDENTIALS_STEP && step.state == StepState::Succeeded);
    Ok(Machine {
        holder: Holder {
            uid: mac.uid().unwrap_or_default(),
            namespace: mac.namespace().unwrap_or_default(),
            name: mac.name_any(),
        },
        zone,
        wanted,
        standing: standing(mac, around, cleaned_up),
        server: status.server_id.as_deref().and_then(|id| id.parse().ok()),
        provider_server: provider_server(mac),
        journal,
        setup: Setup {
            credentials: stored || bootstrapped,
            bootstrapped,
            provisioned: status.initialization.is_some_and(|init| init.provisioned == Some(true)),
            attempts: status
                .bootstrap_attempts
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(0),
            rebooted: status.bootstrap_reboot_issued == Some(true),
        },
    })
}

/// What has to wake this machine.
pub(super) fn ties(mac: &Mac, machine: &Machine, around: &Around) -> Ties {
    let worked_on = machine.journal.as_ref().map(|journal| &journal.server);
    Ties {
        cluster: match &around.machine {
            Some(machine) => Some(machine.spec.cluster_name.clone()),
            None => mac.labels().get(CLUSTER_NAME).cloned(),
        },
        servers: [machine.server.as_ref(), machine.provider_server.as_ref(), worked_on]
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
        pool: machine.wanted.as_ref().ok().map(|wanted| wanted.pool.clone()),
    }
}

fn provider_server(mac: &Mac) -> Option<ServerId> {
    mac.spec.provider_id().ok()?.map(|id| id.server().clone())
}

/// The zone of the host. A host that exists stays where it is, whatever the spec says by now.
fn zone(mac: &Mac, around: &Around) -> (Zone, Option<SpecProblem>) {
    let field = |why: String| SpecProblem::Field { why };
    let chosen = match mac.spec.provider_id() {
        Ok(Some(id)) => return (id.zone().clone(), None),
        Ok(None) => {
            let domain = around
                .machine
                .as_ref()
                .and_then(|machine| machine.spec.failure_domain.as_deref());
            match domain.filter(|domain| !domain.is_empty()) {
                Some(domain) => {
                    Zone::try_from(domain).map_err(|error| field(format!("spec.failureDomain of the Machine: {error}")))
                }
                None => mac
                    .spec
                    .zone_or_default()
                    .map_err(|error| field(format!("spec.zone: {error}"))),
            }
        }
        Err(error) => Err(field(format!("spec.providerID: {error}"))),
    };
    match chosen {
        Ok(zone) => (zone, None),
        // With a problem in the spec nothing is asked of the zone.
        Err(problem) => (Zone::default(), Some(problem)),
    }
}

fn wanted(mac: &Mac, default_pool: Option<&PoolPrefix>) -> Result<Wanted, SpecProblem> {
    let field = |name: &str, error: russet_api::values::Invalid| SpecProblem::Field {
        why: format!("spec.{name}: {error}"),
    };
    let pool = mac
        .spec
        .adopt_pool_prefix()
        .map_err(|error| field("adoptPoolPrefix", error))?;
    mac.spec.fleet_name().map_err(|error| field("fleetName", error))?;
    Ok(Wanted {
        type_: mac.spec.type_or_default().to_owned(),
        os: mac.spec.os_or_default().to_owned(),
        pool: pool.or_else(|| default_pool.cloned()).ok_or(SpecProblem::NoPool)?,
    })
}

fn standing(mac: &Mac, around: &Around, cleaned_up: bool) -> Standing {
    let annotated = |key: &str| mac.annotations().contains_key(key);
    let data = around
        .machine
        .as_ref()
        .and_then(|machine| machine.spec.bootstrap.data_secret_name.as_ref());
    Standing {
        paused: annotated(PAUSED) || around.cluster.as_ref().is_some_and(capi::Cluster::is_paused),
        deleting: mac.metadata.deletion_timestamp.is_some(),
        moved_away: annotated(DELETE_FOR_MOVE),
        finalizer: mac.finalizers().iter().any(|name| name == APPLE_SILICON_MACHINE),
        owned: owner(mac).is_some(),
        cluster_ready: around.cluster.as_ref().is_some_and(capi::Cluster::is_ready),
        bootstrap_data: data.is_some_and(|name| !name.is_empty()),
        cleaned_up,
    }
}
