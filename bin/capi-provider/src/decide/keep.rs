//! A machine that has a host: handing it over to the cluster, and keeping it.

use russet_api::values::ServerId;
use russet_scaleway::apple_silicon::ServerStatus;

use super::{Action, Decision, Machine, Need, Seen, ensure_claim, look, release};
use crate::flight::{Guard, HostCall, Plan};
use crate::host::{Host, PasswordState, Sight};
use crate::journal::{Journal, Step, Work};
use crate::names::{is_marker, is_pooled};
use crate::situation::Situation;

pub(super) fn keep(machine: &Machine, server: &ServerId, seen: &Seen<'_>) -> Decision {
    if let Err(first) = ensure_claim(machine, server, seen) {
        return first;
    }
    // What follows the set-up changes nothing on the host, so nothing has to be known about it.
    if machine.setup.bootstrapped && machine.provider_server.is_none() {
        return Decision::Act(Action::SetProviderId(server.clone()));
    }
    if machine.setup.bootstrapped && !machine.setup.provisioned {
        return Decision::Act(Action::MarkProvisioned);
    }
    let host = match find(machine, server, seen) {
        Ok(host) => host,
        Err(other) => return other,
    };
    if host.project != *seen.project {
        return Decision::Rest(Situation::ForeignProject);
    }
    if host.name != machine.holder.name {
        return wrong_name(machine, host, seen);
    }
    match &host.status {
        ServerStatus::Ready => hand_over(machine, host, seen),
        ServerStatus::Error | ServerStatus::Locked => Decision::Rest(Situation::HostBroken {
            status: host.status.clone(),
        }),
        status => Decision::Rest(Situation::HostBusy { status: status.clone() }),
    }
}

/// The host, from the shared poll if that shows it as it should be: a machine that is set up, or serves, costs no call of
/// its own.
fn find<'a>(machine: &Machine, server: &ServerId, seen: &Seen<'a>) -> Result<&'a Host, Decision> {
    if let Some(sight) = seen.host {
        return match sight {
            Sight::There(host) if host.id == *server => Ok(host),
            Sight::There(_) => Err(Decision::Look(Need::Host(server.clone()))),
            Sight::Gone => Err(Decision::Rest(Situation::HostGone)),
        };
    }
    let Some(inventory) = seen.inventory else {
        return Err(Decision::Look(Need::Inventory));
    };
    match inventory.get(server) {
        // The list may lag behind: only what it shows as expected is believed.
        Some(host) if host.name == machine.holder.name && host.status == ServerStatus::Ready => Ok(host),
        _ => Err(Decision::Look(Need::Host(server.clone()))),
    }
}

/// A host in use that looks free to others is put right at once. One with any other name is left alone: whoever gave it
/// that name knows something we do not.
fn wrong_name(machine: &Machine, host: &Host, seen: &Seen<'_>) -> Decision {
    let Ok(wanted) = &machine.wanted else {
        return Decision::Rest(Situation::HostRenamed {
            name: host.name.clone(),
        });
    };
    if !is_pooled(&wanted.pool, &host.name) || is_marker(&host.name) {
        return Decision::Rest(Situation::HostRenamed {
            name: host.name.clone(),
        });
    }
    let from = host.name.clone();
    let journal = Journal::new(&host.id, seen.fresh, Work::Restore { from }, seen.now);
    rename_back(machine, journal, &host.name, seen)
}

fn rename_back(machine: &Machine, journal: Journal, from: &str, seen: &Seen<'_>) -> Decision {
    let call = HostCall::Rename {
        to: machine.holder.name.clone(),
    };
    let guard = Guard {
        project: seen.project.clone(),
        name: from.to_owned(),
        ready: false,
    };
    Decision::Fly(Box::new(Plan::new(journal, Step::Name, call, guard, seen)))
}

/// A name that is being put right.
pub(super) fn restore(machine: &Machine, journal: &Journal, from: &str, seen: &Seen<'_>) -> Decision {
    match look(&journal.server, seen) {
        Err(look) => look,
        Ok(Sight::There(host)) if host.project == *seen.project && host.name == from => {
            rename_back(machine, journal.clone(), from, seen)
        }
        Ok(_) => Decision::drop_journal(),
    }
}

/// Credentials, then the set-up over SSH.
fn hand_over(machine: &Machine, host: &Host, seen: &Seen<'_>) -> Decision {
    let setup = &machine.setup;
    if !setup.credentials {
        return match host.password {
            PasswordState::Known => Decision::Act(Action::StoreCredentials(host.id.clone())),
            PasswordState::Sealed | PasswordState::Missing => Decision::Rest(Situation::MissingPassword),
        };
    }
    if !setup.bootstrapped {
        return set_up(machine, host, seen);
    }
    Decision::Rest(Situation::Serving)
}

fn set_up(machine: &Machine, host: &Host, seen: &Seen<'_>) -> Decision {
    let (setup, rules) = (&machine.setup, seen.rules);
    let reached = |limit: u32| limit > 0 && setup.attempts >= limit;
    if reached(rules.give_back_after) && machine.provider_server.is_none() {
        return release::begin(machine, &host.id, host, seen);
    }
    if reached(rules.reboot_after) && !setup.rebooted {
        let journal = Journal::new(&host.id, seen.fresh, Work::Reboot, seen.now);
        let guard = Guard {
            project: seen.project.clone(),
            name: host.name.clone(),
            ready: true,
        };
        return Decision::Fly(Box::new(Plan::new(
            journal,
            Step::Reboot,
            HostCall::Reboot,
            guard,
            seen,
        )));
    }
    Decision::Act(Action::Bootstrap(Box::new(host.clone())))
}
