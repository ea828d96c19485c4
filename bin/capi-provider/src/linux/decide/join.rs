//! A server that is up: its Node, and keeping it.

use super::{Action, Decision, Machine, Need, Node, Seen, UserData, due, fly};
use crate::journal::later;
use crate::linux::call::{Call, Target};
use crate::linux::server::Server;
use crate::linux::situation::Situation;

pub(super) fn go_on(machine: &Machine, server: &Server, seen: &Seen<'_>) -> Decision {
    match &machine.node {
        Node::Missing if machine.progress.joined => Decision::Rest(Situation::NodeMissing),
        Node::Missing => wait(machine, server, seen),
        Node::Foreign { provider_id } => Decision::Rest(Situation::NodeTaken {
            provider_id: provider_id.clone(),
        }),
        Node::Joined {
            ready,
            private_address,
            config_hash,
        } => settle(
            machine,
            server,
            *ready,
            private_address.as_deref(),
            config_hash.as_deref(),
            seen,
        ),
    }
}

fn wait(machine: &Machine, server: &Server, seen: &Seen<'_>) -> Decision {
    if let Some(ran) = machine.progress.script_ran
        && let Err(until) = due(ran, seen.rules.inspect_after, seen.now)
    {
        return Decision::Rest(Situation::WaitingForNode { until });
    }
    let UserData::Given(_) = machine.progress.user_data else {
        return Decision::Act(Action::Join(Box::new(server.clone())));
    };
    let since = machine.progress.up_since.unwrap_or(seen.now);
    match due(since, seen.rules.inspect_after, seen.now) {
        Err(until) => Decision::Rest(Situation::WaitingForNode { until }),
        Ok(()) => Decision::Act(Action::Inspect(Box::new(server.clone()))),
    }
}

/// Whether a server should have joined long ago.
pub(crate) fn is_overdue(machine: &Machine, rules: &super::Rules, now: jiff::Timestamp) -> bool {
    let since = machine.progress.up_since;
    since.is_some_and(|since| now >= later(since, rules.join_deadline))
}

/// The script first: there is a token in it. Then what the Node cannot say of itself.
fn settle(
    machine: &Machine,
    server: &Server,
    ready: bool,
    label: Option<&str>,
    hash: Option<&str>,
    seen: &Seen<'_>,
) -> Decision {
    if matches!(machine.progress.user_data, UserData::Given(_)) {
        return fly(machine, Call::DropUserData, Target::Server(server.id.clone()), seen);
    }
    let networked = machine.wanted.as_ref().is_ok_and(|wanted| wanted.network.is_some());
    let address = if networked && label.is_none() {
        match private_address(server, seen) {
            Ok(address) => Some(address),
            Err(first) => return first,
        }
    } else {
        None
    };
    if address.is_some() || hash.is_none() {
        return Decision::Act(Action::DressNode {
            private_address: address,
            stamp: hash.is_none(),
        });
    }
    if !machine.progress.joined {
        return Decision::Act(Action::MarkJoined);
    }
    match (hash, seen.config_hash) {
        (Some(_), None) => Decision::Look(Need::ConfigHash),
        (Some(has), Some(wants)) if has != wants => Decision::Act(Action::Update(Box::new(server.clone()))),
        _ => Decision::Rest(Situation::Serving { ready }),
    }
}

fn private_address(server: &Server, seen: &Seen<'_>) -> Result<std::net::IpAddr, Decision> {
    let network = match seen.network {
        Some(crate::linux::wanted::NetworkSight::Found(id)) => id,
        Some(_) => return Err(Decision::Rest(Situation::WaitingForPrivateAddress)),
        None => return Err(Decision::Look(Need::Network)),
    };
    match seen.private_address {
        None => Err(Decision::Look(Need::PrivateAddress(server.id.clone(), network.clone()))),
        Some(None) => Err(Decision::Rest(Situation::WaitingForPrivateAddress)),
        Some(Some(address)) => Ok(address),
    }
}
