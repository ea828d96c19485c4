//! Giving a server up: stopped, off its network, deleted with its volumes and addresses; or, if it was taken, wiped and freed.
//!
//! ```text
//!  begin (write down what belongs to it) ─► power off ─► detach ─► delete ─► gone ─► volumes, addresses ─► forget
//!                                        └► detach ─► networking as it was ─► wipe ─► seen wiping ─► up again ─► untag ─► forget
//! ```

use super::{Action, Decision, Machine, Need, Seen, drop_claim, due, ensure_claim, fly_under, is_fresh, listed, look};
use crate::journal::later;
use crate::linux::call::{Call, Guard, Target};
use crate::linux::journal::{How, Journal, Release, Wipe, Work};
use crate::linux::server::{AttachmentState, Networking, Product, Server, State};
use crate::linux::situation::Situation;

/// A machine that is being deleted.
pub(super) fn delete(machine: &Machine, seen: &Seen<'_>) -> Decision {
    if let Some(journal) = &machine.journal
        && let Work::Release(release) = &journal.work
    {
        return go_on(machine, journal, release, seen);
    }
    // Whatever bears our tag, whether or not anybody wrote its id down.
    let Some(mine) = seen.mine else {
        return Decision::Look(Need::Mine);
    };
    if let Some(server) = mine.first() {
        return begin(machine, server, seen);
    }
    for id in [&machine.server, &machine.provider_server].into_iter().flatten() {
        match look(id, seen) {
            Err(look) => return look,
            Ok(Some(server)) if is_still_ours(machine, server, seen) => return begin(machine, server, seen),
            Ok(_) => {}
        }
    }
    if machine.server.is_some() {
        return Decision::Act(Action::ForgetServer);
    }
    finish(machine, seen)
}

/// Whether a server that does not bear our tag is ours to give up all the same.
fn is_still_ours(machine: &Machine, server: &Server, seen: &Seen<'_>) -> bool {
    let claimed = seen.claims.held(&server.id, &machine.holder.uid).is_some();
    let named = machine.provider_server.as_ref() == Some(&server.id);
    server.project == *seen.project
        && match server.owner() {
            Some(owner) if owner == machine.holder.uid => true,
            // After `clusterctl move` the tag has the uid of the object that was left behind. One that was taken is another's by
            // now, unless we hold the claim for it.
            Some(_) => named && (claimed || !server.is_adopted()),
            // Somebody removed the tags of the server we wrote down. One that we freed has none either, but is written down
            // nowhere except in the provider id, or we still hold its claim.
            None => machine.server.as_ref() == Some(&server.id) && !claimed,
        }
}

/// The last steps of a deletion.
pub(super) fn finish(machine: &Machine, seen: &Seen<'_>) -> Decision {
    if let Some((server, claim)) = seen.claims.of(&machine.holder.uid).next() {
        return drop_claim(server, &claim.id);
    }
    if !machine.standing.cleaned_up {
        return Decision::Act(Action::CleanUp);
    }
    Decision::Act(Action::RemoveFinalizer)
}

fn begin(machine: &Machine, server: &Server, seen: &Seen<'_>) -> Decision {
    let adopted = server.is_adopted() || seen.claims.held(&server.id, &machine.holder.uid).is_some();
    if adopted && let Err(first) = ensure_claim(machine, &server.id, seen) {
        return first;
    }
    let release = Release {
        server: server.id.clone(),
        how: if adopted { How::Free(Wipe::Needed) } else { How::Delete },
        volumes: server.volumes.clone(),
        ips: server.ips.clone(),
    };
    let journal = Journal::new(server.id.to_string(), seen.fresh, Work::Release(release), seen.now);
    Decision::Act(Action::WriteJournal(Some(Box::new(journal))))
}

fn go_on(machine: &Machine, journal: &Journal, release: &Release, seen: &Seen<'_>) -> Decision {
    // A wipe takes up to an hour, and the shared poll sees its end as well as anybody.
    if matches!(release.how, How::Free(Wipe::Seen(_))) && seen.server.is_none() {
        let Some(inventory) = seen.inventory else {
            return Decision::Look(Need::Inventory);
        };
        let known = inventory.get(&release.server);
        if known.is_some_and(|server| server.state == State::Installing) {
            return Decision::Rest(Situation::Wiping);
        }
    }
    if release.how == How::Delete
        && seen.server.is_none()
        && let Some(server) = listed(&release.server, seen)
        && let Some(situation) = on_its_way(machine, server, seen)
    {
        return Decision::Rest(situation);
    }
    let server = match look(&release.server, seen) {
        Err(look) => return look,
        Ok(None) => return clear(machine, journal, release, seen),
        Ok(Some(server)) => server,
    };
    let guard = Guard {
        uid: machine.holder.uid.clone(),
        project: seen.project.clone(),
        named: machine.provider_server.as_ref() == Some(&server.id),
    };
    if guard.is_ours(server).is_err() {
        return Decision::Act(Action::ForgetServer);
    }
    match release.how {
        How::Delete => destroy(machine, journal, release, server, seen),
        How::Free(wipe) => free(machine, journal, release, wipe, server, seen),
    }
}

/// What is waited for while a server is deleted, as far as the shared poll can tell.
fn on_its_way(machine: &Machine, server: &Server, seen: &Seen<'_>) -> Option<Situation> {
    match server.state {
        State::Deleting => Some(Situation::Leaving),
        _ if machine.product == Product::Metal => None,
        State::Running if is_fresh(machine.progress.switched_off, seen.rules.power_shows, seen) => {
            Some(Situation::Stopping)
        }
        State::Starting | State::Stopping | State::Busy(_) => Some(Situation::Stopping),
        _ => None,
    }
}

/// What is left of a server that is gone.
fn clear(machine: &Machine, journal: &Journal, release: &Release, seen: &Seen<'_>) -> Decision {
    let call = match (release.volumes.first(), release.ips.first()) {
        (Some(volume), _) => Call::DeleteVolume(volume.clone()),
        (None, Some(ip)) => Call::DeleteIp(ip.clone()),
        (None, None) => return Decision::Act(Action::ForgetServer),
    };
    fly_under(machine, journal.clone(), call, Target::Nothing, seen)
}

fn destroy(machine: &Machine, journal: &Journal, release: &Release, server: &Server, seen: &Seen<'_>) -> Decision {
    let here = || Target::Server(server.id.clone());
    let fly = |call| fly_under(machine, journal.clone(), call, here(), seen);
    // More may belong to it than when this began: an address comes with the first boot.
    let more = |release: &Release| {
        let volumes = server.volumes.iter().any(|volume| !release.volumes.contains(volume));
        let ips = server.ips.iter().any(|ip| !release.ips.contains(ip));
        volumes || ips
    };
    if more(release) {
        let mut release = release.clone();
        for volume in &server.volumes {
            if !release.volumes.contains(volume) {
                release.volumes.push(volume.clone());
            }
        }
        for ip in &server.ips {
            if !release.ips.contains(ip) {
                release.ips.push(ip.clone());
            }
        }
        let journal = journal.with(Work::Release(release));
        return Decision::Act(Action::WriteJournal(Some(Box::new(journal))));
    }
    let metal = machine.product == Product::Metal;
    match &server.state {
        State::Deleting => Decision::Rest(Situation::Leaving),
        State::Locked => Decision::Rest(Situation::Locked),
        // Bare metal is deleted from any state that Scaleway lets it be deleted from.
        _ if metal => match detach(machine, release, seen) {
            Err(look) => look,
            Ok(Some(call)) => fly(call),
            Ok(None) => fly(Call::Delete),
        },
        State::Running if is_fresh(machine.progress.switched_off, seen.rules.power_shows, seen) => {
            Decision::Rest(Situation::Stopping)
        }
        State::Running => fly(Call::PowerOff),
        State::Stopped | State::Failed(_) | State::Bare => match detach(machine, release, seen) {
            Err(look) => look,
            Ok(Some(call)) => fly(call),
            Ok(None) => fly(Call::Delete),
        },
        State::Ordered | State::Installing | State::Starting | State::Stopping | State::Busy(_) => {
            Decision::Rest(Situation::Stopping)
        }
    }
}

/// The call that takes a server off a network, if it is on one. One that is being ended is waited for: a second call is refused.
fn detach(machine: &Machine, release: &Release, seen: &Seen<'_>) -> Result<Option<Call>, Decision> {
    let Some(attachments) = seen.attachments else {
        return Err(Decision::Look(Need::Attachments(release.server.clone())));
    };
    let mut there = attachments.iter();
    if let Some(attachment) = there.find(|it| it.state != AttachmentState::Leaving) {
        return Ok(Some(Call::Detach(match machine.product {
            Product::Instance => attachment.id.clone(),
            Product::Metal => attachment.network.to_string(),
        })));
    }
    if attachments.is_empty() {
        return Ok(None);
    }
    Err(Decision::Rest(Situation::Busy {
        word: "being taken off its Private Network".to_owned(),
    }))
}

fn free(
    machine: &Machine,
    journal: &Journal,
    release: &Release,
    wipe: Wipe,
    server: &Server,
    seen: &Seen<'_>,
) -> Decision {
    let here = || Target::Server(server.id.clone());
    let fly = |call| fly_under(machine, journal.clone(), call, here(), seen);
    let note = |wipe| {
        let release = Release {
            how: How::Free(wipe),
            ..release.clone()
        };
        Decision::Act(Action::WriteJournal(Some(Box::new(
            journal.with(Work::Release(release)),
        ))))
    };
    if server.owner().is_none() {
        // It is free already, and may be another's any moment.
        return match wipe {
            Wipe::Seen(_) => Decision::Act(Action::ForgetServer),
            Wipe::Needed | Wipe::Asked(_) => Decision::Rest(Situation::ServerTaken {
                why: "somebody removed its tags; a wipe could destroy work".to_owned(),
            }),
        };
    }
    match (&server.state, wipe) {
        (State::Installing, Wipe::Needed | Wipe::Asked(_)) => note(Wipe::Seen(seen.now)),
        // The API shows an installation some time after it took the call; it is believed to be over only when it was seen, or
        // when it must have begun long ago.
        (_, Wipe::Asked(at)) if due(at, seen.rules.install_begins, seen.now).is_err() => {
            Decision::Rest(Situation::Wiping)
        }
        (State::Running, Wipe::Asked(_)) => note(Wipe::Seen(seen.now)),
        (State::Installing, Wipe::Seen(_)) => Decision::Rest(Situation::Wiping),
        (State::Running, Wipe::Seen(at)) if seen.now < later(at, seen.rules.calls.min_wipe) => {
            Decision::Rest(Situation::Wiping)
        }
        (State::Running, Wipe::Seen(_)) => fly(Call::Untag),
        (State::Running | State::Stopped | State::Bare, Wipe::Needed) => match detach(machine, release, seen) {
            Err(look) => look,
            Ok(Some(call)) => fly(call),
            Ok(None) if server.has_networking_for_us() => match server.networking {
                Networking::Enabling => Decision::Rest(Situation::NetworkPending),
                _ => fly(Call::DisableNetworking),
            },
            Ok(None) => fly(Call::Wipe),
        },
        (State::Failed(word), _) => Decision::Rest(Situation::ServerFailed { word: word.clone() }),
        (State::Locked, _) => Decision::Rest(Situation::Locked),
        (State::Deleting, _) => Decision::Rest(Situation::Leaving),
        (other, _) => Decision::Rest(Situation::Busy {
            word: format!("{other:?}").to_lowercase(),
        }),
    }
}
