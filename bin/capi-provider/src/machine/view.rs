//! An object and what surrounds it, as a decision needs it.

use russet_api::conditions::{self, types};
use russet_api::finalizers::APPLE_SILICON_MACHINE;
use russet_api::machine::StepState;
use russet_api::values::{PoolPrefix, ServerId, Zone};

use super::Mac;
use crate::candidates::Wanted;
use crate::decide::{Machine, Setup};
use crate::journal::{Journal, Unreadable};
use crate::registry::Ties;
use crate::situation::SpecProblem;
use crate::surroundings::{self, Around, holder};

/// The step that says that the credentials of the host are stored.
pub(super) const CREDENTIALS_STEP: &str = "credentials";

/// The group whose SSH key a machine uses.
pub(crate) fn key_group(mac: &Mac) -> String {
    surroundings::key_group(mac, mac.spec.fleet_name.as_deref())
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
        holder: holder(mac),
        zone,
        wanted,
        standing: around.standing(mac, APPLE_SILICON_MACHINE, cleaned_up),
        server: status.server_id.as_deref().and_then(|id| id.parse().ok()),
        provider_server: provider_server(mac),
        given_back: status.given_back.iter().filter_map(|id| id.parse().ok()).collect(),
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
pub(super) fn ties(machine: &Machine, around: &Around) -> Ties {
    let worked_on = machine.journal.as_ref().map(|journal| &journal.server);
    Ties {
        cluster: around.cluster_name.clone(),
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
        Ok(None) => match around.failure_domain() {
            Some(domain) => {
                Zone::try_from(domain).map_err(|error| field(format!("spec.failureDomain of the Machine: {error}")))
            }
            None => mac
                .spec
                .zone_or_default()
                .map_err(|error| field(format!("spec.zone: {error}"))),
        },
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
