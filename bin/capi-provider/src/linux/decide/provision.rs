//! A machine on its way to a server that is up.

use russet_api::values::ServerId;
use russet_scaleway::PrivateNetworkId;

use super::{
    Action, Decision, Machine, Need, Seen, UserData, adopt, drop_claim, due, ensure_claim, fly, is_fresh, join, listed,
    look, network_claim,
};
use crate::linux::call::{Call, Guard, Target};
use crate::linux::server::{Attachment, AttachmentState, Networking, Product, Server, State};
use crate::linux::situation::Situation;
use crate::linux::wanted::{Catalog, Network, NetworkSight, Source, Wanted};

/// A machine without a server.
pub(super) fn begin(machine: &Machine, seen: &Seen<'_>) -> Decision {
    if let Some(server) = &machine.provider_server {
        return find_again(machine, server, seen);
    }
    let wanted = match &machine.wanted {
        Ok(wanted) => wanted,
        Err(problem) => return Decision::Rest(Situation::Spec(problem.clone())),
    };
    // A call that was lost may have made one.
    let Some(mine) = seen.mine else {
        return Decision::Look(Need::Mine);
    };
    let mut mine: Vec<&Server> = mine.iter().collect();
    mine.sort_by_key(|server| &server.id);
    if let Some(server) = mine.first() {
        if server.is_adopted()
            && let Err(first) = ensure_claim(machine, &server.id, seen)
        {
            return first;
        }
        return Decision::Act(Action::RecordServer(server.id.clone()));
    }
    // Before money is spent: is there a network to put it on, and is it offered at all?
    if let Err(first) = network(machine, wanted, seen) {
        return first;
    }
    match &wanted.source {
        Source::Adopt(prefix) => adopt::go_on(machine, wanted, prefix, seen),
        Source::Order => match seen.catalog {
            None => Decision::Look(Need::Catalog),
            Some(Catalog::Available { .. }) => fly(machine, Call::Create, Target::Mine, seen),
            Some(other) => Decision::Rest(Situation::NotOffered {
                catalog: Box::new(other.clone()),
                wanted: Box::new(wanted.clone()),
            }),
        },
    }
}

/// After `clusterctl move`: the server is the one in the provider id, and only it.
fn find_again(machine: &Machine, server: &ServerId, seen: &Seen<'_>) -> Decision {
    match look(server, seen) {
        Err(look) => look,
        Ok(None) => Decision::Rest(Situation::ServerGone),
        Ok(Some(found)) if found.project != *seen.project => Decision::Rest(Situation::ForeignProject),
        Ok(Some(found)) => {
            if found.is_adopted()
                && let Err(first) = ensure_claim(machine, server, seen)
            {
                return first;
            }
            Decision::Act(Action::RecordServer(server.clone()))
        }
    }
}

/// The claim under which a machine may make its network.
pub(super) fn wanted_network_claim(machine: &Machine) -> Option<ServerId> {
    if machine.standing.deleting {
        return None;
    }
    match machine.wanted.as_ref().ok()?.network.as_ref()? {
        Network::Name { name, .. } => network_claim(&machine.zone, name),
        Network::Id(_) => None,
    }
}

/// The Private Network, if the machine wants one; else what to do first.
fn network(machine: &Machine, wanted: &Wanted, seen: &Seen<'_>) -> Result<Option<PrivateNetworkId>, Decision> {
    let Some(network) = &wanted.network else {
        return Ok(None);
    };
    let claim = wanted_network_claim(machine);
    let held = claim.as_ref().and_then(|claim| {
        let held = seen.claims.held(claim, &machine.holder.uid)?;
        Some((claim, held.id.clone()))
    });
    match seen.network {
        None => Err(Decision::Look(Need::Network)),
        Some(NetworkSight::Found(id)) => match held {
            // Others may make the next one of this name.
            Some((claim, held)) => Err(drop_claim(claim, &held)),
            None => Ok(Some(id.clone())),
        },
        Some(NetworkSight::Elsewhere) => Err(Decision::Rest(Situation::NetworkElsewhere {
            network: network.label().to_owned(),
            region: machine.zone.region(),
        })),
        Some(NetworkSight::Several(ids)) => Err(Decision::Rest(Situation::NetworkAmbiguous {
            network: network.label().to_owned(),
            ids: ids.clone(),
        })),
        Some(NetworkSight::Missing) => {
            let Some(claim) = claim else {
                return Err(Decision::Rest(Situation::NetworkElsewhere {
                    network: network.label().to_owned(),
                    region: machine.zone.region(),
                }));
            };
            match ensure_claim(machine, &claim, seen) {
                Ok(()) => Err(fly(machine, Call::CreateNetwork, Target::Network, seen)),
                Err(Decision::Rest(_)) => Err(Decision::Rest(Situation::NetworkBeingMade {
                    network: network.label().to_owned(),
                })),
                Err(first) => Err(first),
            }
        }
    }
}

/// A machine that has a server.
pub(super) fn go_on(machine: &Machine, id: &ServerId, seen: &Seen<'_>) -> Decision {
    let server = match find(machine, id, seen) {
        Ok(server) => server,
        Err(other) => return other,
    };
    let guard = Guard {
        uid: machine.holder.uid.clone(),
        project: seen.project.clone(),
        named: machine.provider_server.as_ref() == Some(id),
    };
    if server.project != *seen.project {
        return Decision::Rest(Situation::ForeignProject);
    }
    if let Err(why) = guard.is_ours(server) {
        return Decision::Rest(Situation::ServerTaken { why });
    }
    if server.is_adopted()
        && let Err(first) = ensure_claim(machine, id, seen)
    {
        return first;
    }
    match &server.state {
        State::Locked => return Decision::Rest(Situation::Locked),
        State::Deleting => return Decision::Rest(Situation::ServerGone),
        State::Failed(word) => return Decision::Rest(Situation::ServerFailed { word: word.clone() }),
        State::Ordered => return Decision::Rest(Situation::Ordered),
        State::Installing => return Decision::Rest(Situation::Installing),
        State::Busy(word) => return Decision::Rest(Situation::Busy { word: word.clone() }),
        State::Bare | State::Stopped | State::Starting | State::Running | State::Stopping => {}
    }
    if machine.progress.up_since.is_none() {
        return bring_up(machine, server, seen);
    }
    match &server.state {
        State::Running => {}
        State::Stopped if machine.progress.joined => return Decision::Rest(Situation::Stopped),
        State::Stopped => return fly(machine, Call::PowerOn, Target::Server(id.clone()), seen),
        State::Starting => return Decision::Rest(Situation::Starting),
        other => {
            return Decision::Rest(Situation::Busy {
                word: format!("{other:?}").to_lowercase(),
            });
        }
    }
    if machine.provider_server.is_none() {
        return Decision::Act(Action::SetProviderId(id.clone()));
    }
    if !machine.progress.provisioned {
        return Decision::Act(Action::MarkProvisioned);
    }
    join::go_on(machine, server, seen)
}

/// The server, from the shared poll if that shows it as it should be, or that it is waited for: a machine that serves or waits
/// costs no call of its own.
fn find<'a>(machine: &Machine, id: &ServerId, seen: &Seen<'a>) -> Result<&'a Server, Decision> {
    if let Some((looked, sight)) = seen.server {
        return match sight {
            Some(server) if looked == id => Ok(server),
            None if looked == id => Err(Decision::Rest(Situation::ServerGone)),
            _ => Err(Decision::Look(Need::Server(id.clone()))),
        };
    }
    let Some(inventory) = seen.inventory else {
        return Err(Decision::Look(Need::Inventory));
    };
    let ours = |server: &Server| {
        // After `clusterctl move` the tag has the uid of the object that was left behind.
        server.owner() == Some(machine.holder.uid.as_str()) || machine.provider_server.as_ref() == Some(id)
    };
    let known = match inventory.get(id).filter(|server| ours(server)) {
        Some(server) if waits_for_long(machine, server) => Some(server),
        _ => listed(id, seen).filter(|server| ours(server) && waits_shortly(machine, server, seen)),
    };
    known.ok_or_else(|| Decision::Look(Need::Server(id.clone())))
}

/// Whether a server serves, or does something that takes minutes.
fn waits_for_long(machine: &Machine, server: &Server) -> bool {
    match server.state {
        State::Running => machine.progress.up_since.is_some(),
        State::Ordered | State::Installing => true,
        _ => false,
    }
}

/// Whether a server does something that takes seconds, or has just done it.
fn waits_shortly(machine: &Machine, server: &Server, seen: &Seen<'_>) -> bool {
    let progress = &machine.progress;
    match server.state {
        State::Starting | State::Stopping | State::Busy(_) => true,
        // What was never asked for is asked for only of a server that was looked at.
        State::Running => server.networking != Networking::Off,
        State::Bare => {
            server.networking == Networking::Enabling
                || is_fresh(progress.install_asked, seen.rules.install_begins, seen)
        }
        State::Stopped => is_fresh(progress.switched_on, seen.rules.power_shows, seen),
        _ => false,
    }
}

/// Network, script, power: in this order, because what runs at the first boot needs the other two.
fn bring_up(machine: &Machine, server: &Server, seen: &Seen<'_>) -> Decision {
    let wanted = match &machine.wanted {
        Ok(wanted) => wanted,
        Err(problem) => return Decision::Rest(Situation::Spec(problem.clone())),
    };
    let here = || Target::Server(server.id.clone());
    let attachment = match attach(machine, wanted, server, seen) {
        Ok(attachment) => attachment,
        Err(first) => return first,
    };
    let running = server.state == State::Running;
    if !running && !server.is_adopted() {
        match gives_script(wanted, seen) {
            Err(look) => return look,
            Ok(false) => {}
            Ok(true) => match machine.progress.user_data {
                UserData::Given(at) if due(at, seen.rules.user_data_for, seen.now).is_err() => {}
                _ => return fly(machine, Call::GiveUserData, here(), seen),
            },
        }
    }
    match &server.state {
        State::Bare => match machine.progress.install_asked {
            // The API shows an installation some time after it took the call.
            Some(at) if due(at, seen.rules.install_begins, seen.now).is_err() => Decision::Rest(Situation::Installing),
            _ => fly(machine, Call::Install, here(), seen),
        },
        State::Stopped if is_fresh(machine.progress.switched_on, seen.rules.power_shows, seen) => {
            Decision::Rest(Situation::Starting)
        }
        State::Stopped => fly(machine, Call::PowerOn, here(), seen),
        State::Running if server.address.is_none() => Decision::Rest(Situation::NoAddress),
        State::Running => Decision::Act(Action::RecordUp {
            server: Box::new(server.clone()),
            attachment: attachment.map(|attachment| Box::new(attachment.clone())),
        }),
        _ => Decision::Rest(Situation::Starting),
    }
}

/// Whether the server takes a script at its first boot.
fn gives_script(wanted: &Wanted, seen: &Seen<'_>) -> Result<bool, Decision> {
    match (wanted.product, seen.catalog) {
        (Product::Instance, _) => Ok(true),
        (Product::Metal, None) => Err(Decision::Look(Need::Catalog)),
        // That no other can be had says nothing about the one that was ordered.
        (Product::Metal, Some(Catalog::Available { cloud_init, .. } | Catalog::OutOfStock { cloud_init })) => {
            Ok(*cloud_init)
        }
        // What it runs is not offered any more: it is set up over SSH.
        (Product::Metal, Some(Catalog::NoSuchType { .. } | Catalog::NoSuchImage { .. })) => Ok(false),
    }
}

/// The server's place on its network; else what to do first.
fn attach<'a>(
    machine: &Machine,
    wanted: &Wanted,
    server: &Server,
    seen: &Seen<'a>,
) -> Result<Option<&'a Attachment>, Decision> {
    let Some(network) = network(machine, wanted, seen)? else {
        return Ok(None);
    };
    let here = || Target::Server(server.id.clone());
    // A network card that is attached before this is dark.
    match server.networking {
        Networking::On => {}
        Networking::Off => return Err(fly(machine, Call::EnableNetworking, here(), seen)),
        Networking::Enabling => return Err(Decision::Rest(Situation::NetworkPending)),
        Networking::Failed => return Err(Decision::Rest(Situation::NetworkFailed)),
    }
    let Some(attachments) = seen.attachments else {
        return Err(Decision::Look(Need::Attachments(server.id.clone())));
    };
    match attachments.iter().find(|attachment| attachment.network == network) {
        None => Err(fly(machine, Call::Attach(network), here(), seen)),
        Some(attachment) => match attachment.state {
            AttachmentState::Attached => Ok(Some(attachment)),
            AttachmentState::Pending | AttachmentState::Leaving => Err(Decision::Rest(Situation::NetworkPending)),
            AttachmentState::Failed => Err(Decision::Rest(Situation::NetworkFailed)),
        },
    }
}
