//! An object and what surrounds it, as a decision needs it.

use jiff::Timestamp;
use russet_api::annotations::KUBELET_CONFIG_HASH;
use russet_api::conditions::{self, types};
use russet_api::labels::PN_IPV4;
use russet_api::machine::{Step, StepState};
use russet_api::values::{ProviderId, ServerId, Zone};

use crate::journal::Unreadable;
use crate::linux::call::Call;
use crate::linux::decide::{Machine, Node, Progress, UserData};
use crate::linux::journal::Journal;
use crate::linux::kind::{LinuxKind, Status};
use crate::linux::situation::SpecProblem;
use crate::registry::Ties;
use crate::surroundings::{Around, holder};

/// The step that says since when a server is up.
pub(super) const UP: &str = "start";
/// The step of the join.
pub(super) const JOIN: &str = "join";

fn step<'a>(status: &'a Status, name: &str) -> Option<&'a Step> {
    let found = status.steps.iter().find(|step| step.name == name);
    found.filter(|step| step.state == StepState::Succeeded)
}

fn done_at(status: &Status, name: &str) -> Option<Timestamp> {
    step(status, name)
        .and_then(|step| step.finished_at.as_ref())
        .map(|at| at.0)
}

fn progress(status: &Status) -> Progress {
    let user_data = match (
        done_at(status, Call::GiveUserData.step()),
        step(status, Call::DropUserData.step()),
    ) {
        (_, Some(_)) => UserData::Gone,
        (Some(at), None) => UserData::Given(at),
        (None, None) => UserData::None,
    };
    let provisioned = status.initialization.as_ref().and_then(|init| init.provisioned);
    Progress {
        user_data,
        up_since: done_at(status, UP),
        script_ran: done_at(status, JOIN),
        install_asked: done_at(status, Call::Install.step()),
        switched_on: done_at(status, Call::PowerOn.step()),
        switched_off: done_at(status, Call::PowerOff.step()),
        provisioned: provisioned == Some(true),
        joined: conditions::is_true(&status.conditions, types::BOOTSTRAPPED),
        moved: status
            .steps
            .iter()
            .filter(|step| step.state == StepState::Succeeded)
            .filter_map(|step| step.finished_at.as_ref())
            .map(|at| at.0)
            .max(),
    }
}

/// The object as a decision needs it.
pub(super) fn view<K: LinuxKind>(object: &K, around: &Around, cleaned_up: bool) -> Result<Machine, Unreadable> {
    let status = object.status();
    let journal = status.intent.as_ref().map(Journal::try_from).transpose()?;
    let (zone, zone_problem) = zone(object, around);
    let wanted = match zone_problem {
        Some(problem) => Err(problem),
        None => object.wanted(),
    };
    let server: Option<ServerId> = status.server_id.as_deref().and_then(|id| id.parse().ok());
    let provider_server = object.provider_id().ok().flatten().map(|id| id.server().clone());
    let node = node::<K>(around, server.as_ref().or(provider_server.as_ref()), &zone);
    Ok(Machine {
        holder: holder(object),
        product: K::PRODUCT,
        zone,
        wanted,
        standing: around.standing(object, K::FINALIZER, cleaned_up),
        server,
        provider_server,
        journal,
        progress: progress(&status),
        node,
    })
}

fn node<K: LinuxKind>(around: &Around, server: Option<&ServerId>, zone: &Zone) -> Node {
    let (Some(node), Some(server)) = (&around.node, server) else {
        return Node::Missing;
    };
    let expected = ProviderId::new(K::PROVIDER, zone.clone(), server.clone()).to_string();
    let said = node.spec.provider_id.clone().unwrap_or_default();
    if said != expected {
        let provider_id = if said.is_empty() {
            "it has no provider id".to_owned()
        } else {
            said
        };
        return Node::Foreign { provider_id };
    }
    Node::Joined {
        ready: node.is_ready(),
        private_address: node
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(PN_IPV4))
            .cloned(),
        config_hash: node
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(KUBELET_CONFIG_HASH))
            .cloned(),
    }
}

/// What has to wake this machine.
pub(super) fn ties(machine: &Machine, around: &Around) -> Ties {
    let worked_on = machine.journal.as_ref().and_then(Journal::server);
    Ties {
        cluster: around.cluster_name.clone(),
        servers: [machine.server.as_ref(), machine.provider_server.as_ref(), worked_on]
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
        pool: None,
    }
}

/// The zone of the server. One that exists stays where it is, whatever the spec says by now.
fn zone<K: LinuxKind>(object: &K, around: &Around) -> (Zone, Option<SpecProblem>) {
    let chosen = match object.provider_id() {
        Ok(Some(id)) => return (id.zone().clone(), None),
        Ok(None) => match around.failure_domain() {
            Some(domain) => Zone::try_from(domain).map_err(|error| SpecProblem::Zone {
                why: format!("spec.failureDomain of the Machine: {error}"),
            }),
            None => object.zone().map_err(|error| SpecProblem::Zone {
                why: format!("spec.zone: {error}"),
            }),
        },
        Err(error) => Err(SpecProblem::Field {
            why: format!("spec.providerID: {error}"),
        }),
    };
    match chosen {
        Ok(zone) => (zone, None),
        // With a problem in the spec nothing is asked of the zone.
        Err(problem) => (Zone::default(), Some(problem)),
    }
}
