//! Giving a host back: wiped, verified, then pooled.
//!
//! ```text
//!  own name ─► mark (tuist-releasing-<id>) ─► wipe ─► seen wiping ─► ready again ─► pool ─► over ─► drop the claim
//! ```
//!
//! The marker is what the wipe is guarded by: no host that is in use bears it. The claim is held to the end, so nobody of
//! ours takes the host before all of this is over. That it is over is written down before the claim is dropped; from then
//! on the host may be another machine's, and nothing is done to it for this one again.

use russet_api::values::ServerId;
use russet_scaleway::apple_silicon::ServerStatus;

use super::{Action, Decision, Machine, Need, Seen, ensure_claim, look};
use crate::flight::{Guard, HostCall, Plan};
use crate::host::{Host, Sight};
use crate::images::{Choice, newest};
use crate::journal::{Claim, Journal, Release, Step, Wipe, Work, later};
use crate::names::{claim_marker, is_pooled, release_marker};
use crate::situation::{Situation, SpecProblem};

/// A machine that is being deleted and has nothing under way.
pub(super) fn delete(machine: &Machine, seen: &Seen<'_>) -> Decision {
    let Some(server) = machine.server.as_ref().or(machine.provider_server.as_ref()) else {
        return finish(machine, seen);
    };
    match ensure_claim(machine, server, seen) {
        Ok(()) => {}
        // A cache that lags behind may show the claim of whoever had the host before.
        Err(Decision::Rest(Situation::ClaimedByAnother { .. })) if !seen.claims_are_live => {
            return Decision::Look(Need::Claims);
        }
        Err(Decision::Rest(Situation::ClaimedByAnother { .. })) => {
            return skip(server, "another machine has the claim for the host and keeps it", seen);
        }
        Err(first) => return first,
    }
    match look(server, seen) {
        Err(look) => look,
        Ok(Sight::Gone) => skip(server, "the host is gone", seen),
        Ok(Sight::There(host)) => begin(machine, server, host, seen),
    }
}

/// The last steps of a deletion. Whatever is still claimed was never touched: a claim alone changes nothing on a host.
pub(super) fn finish(machine: &Machine, seen: &Seen<'_>) -> Decision {
    if let Some((server, claim)) = seen.claims.of(&machine.holder.uid).next() {
        return Decision::drop_claim(server, &claim.id);
    }
    if !machine.standing.cleaned_up {
        return Decision::Act(Action::CleanUp);
    }
    Decision::Act(Action::RemoveFinalizer)
}

/// A host that is not given back, because it is not ours to touch. If it is paid for, the orphan report names it.
fn skip(server: &ServerId, why: &str, seen: &Seen<'_>) -> Decision {
    over(&Journal::new(server, seen.fresh, Work::Over, seen.now), why)
}

pub(super) fn over(journal: &Journal, why: &str) -> Decision {
    let mut journal = journal.with(Work::Over);
    journal.message = Some(why.to_owned());
    Decision::write(journal)
}

/// What follows when nothing is done to the host any more.
pub(super) fn after(machine: &Machine, journal: &Journal, seen: &Seen<'_>) -> Decision {
    if machine.standing.deleting {
        return finish(machine, seen);
    }
    if let Some(claim) = seen.claims.held(&journal.server, &machine.holder.uid) {
        return Decision::drop_claim(&journal.server, &claim.id);
    }
    Decision::Act(Action::ForgetHost)
}

/// Begins to give back a host that we hold.
pub(super) fn begin(machine: &Machine, server: &ServerId, host: &Host, seen: &Seen<'_>) -> Decision {
    let wanted = match &machine.wanted {
        Ok(wanted) => wanted,
        Err(SpecProblem::NoPool) => return skip(server, "no pool is named to which the host could go back", seen),
        Err(problem) => return Decision::Rest(Situation::Spec(problem.clone())),
    };
    let ours =
        host.project == *seen.project && (host.name == machine.holder.name || is_pooled(&wanted.pool, &host.name));
    if !ours {
        return skip(
            server,
            "the host bears a name or project that is not ours; a wipe could destroy work",
            seen,
        );
    }
    let Some(images) = seen.images else {
        return Decision::Look(Need::Images);
    };
    let image = match newest(images, &wanted.os) {
        Choice::Image(id) => Some(id),
        Choice::Default => None,
    };
    let release = Release {
        pool: wanted.pool.clone(),
        from: host.name.clone(),
        wipe: Wipe::Needed,
        image,
    };
    let journal = Journal::new(server, seen.fresh, Work::Release(release), seen.now);
    rename(journal, Step::Mark, host, release_marker(seen.fresh), seen)
}

fn rename(journal: Journal, step: Step, host: &Host, to: String, seen: &Seen<'_>) -> Decision {
    let ready = step == Step::Pool && !matches!(&journal.work, Work::Release(r) if r.wipe == Wipe::NotNeeded);
    let guard = Guard {
        project: seen.project.clone(),
        name: host.name.clone(),
        ready,
    };
    Decision::Fly(Box::new(Plan::new(journal, step, HostCall::Rename { to }, guard, seen)))
}

/// A machine that is deleted while it takes a host. Nobody logged in to it, so it needs no wipe.
pub(super) fn undo_claim(machine: &Machine, journal: &Journal, claim: &Claim, seen: &Seen<'_>) -> Decision {
    let sight = match look(&journal.server, seen) {
        Ok(sight) => sight,
        Err(look) => return look,
    };
    match sight {
        Sight::There(host)
            if host.project == *seen.project
                && (host.name == claim_marker(&journal.id) || claim.naming && host.name == machine.holder.name) =>
        {
            let (pool, from) = (claim.pool.clone(), host.name.clone());
            let to = pool.name(&journal.id);
            let release = Release {
                pool,
                from,
                wipe: Wipe::NotNeeded,
                image: None,
            };
            rename(journal.with(Work::Release(release)), Step::Pool, host, to, seen)
        }
        _ => over(journal, "the host was not taken"),
    }
}

/// A machine in the middle of giving a host back.
pub(super) fn go_on(journal: &Journal, release: &Release, seen: &Seen<'_>) -> Decision {
    // A wipe takes minutes, and the shared poll sees its end as well as anybody.
    if matches!(release.wipe, Wipe::Seen(_)) && seen.host.is_none() {
        let Some(inventory) = seen.inventory else {
            return Decision::Look(Need::Inventory);
        };
        if inventory
            .get(&journal.server)
            .is_some_and(|host| host.status == ServerStatus::Reinstalling)
        {
            return Decision::Rest(Situation::Wiping);
        }
    }
    let sight = match look(&journal.server, seen) {
        Ok(sight) => sight,
        Err(look) => return look,
    };
    let host = match sight {
        Sight::There(host) if host.project == *seen.project => host,
        _ => return over(journal, "the host is gone"),
    };
    let pooled = release.pool.name(&journal.id);
    let marker = release_marker(&journal.id);
    match (&host.name, release.wipe) {
        (name, Wipe::NotNeeded | Wipe::Seen(_)) if *name == pooled => over(journal, "the host is in the pool"),
        (name, Wipe::NotNeeded) if *name == release.from => rename(journal.clone(), Step::Pool, host, pooled, seen),
        (name, Wipe::Needed | Wipe::Seen(_)) if *name == marker => wipe_or_pool(journal, release, host, pooled, seen),
        (name, Wipe::Needed | Wipe::Seen(_)) if *name == release.from => {
            rename(journal.clone(), Step::Mark, host, marker, seen)
        }
        _ => over(
            journal,
            "the host was renamed by somebody else; a wipe could destroy work",
        ),
    }
}

fn wipe_or_pool(journal: &Journal, release: &Release, host: &Host, pooled: String, seen: &Seen<'_>) -> Decision {
    match (&host.status, release.wipe) {
        (ServerStatus::Reinstalling, Wipe::Needed) => {
            let release = Release {
                wipe: Wipe::Seen(seen.now),
                ..release.clone()
            };
            Decision::write(journal.with(Work::Release(release)))
        }
        (ServerStatus::Reinstalling, _) => Decision::Rest(Situation::Wiping),
        (ServerStatus::Ready, Wipe::Seen(at)) if seen.now < later(at, seen.rules.min_wipe) => {
            Decision::Rest(Situation::Wiping)
        }
        (ServerStatus::Ready, Wipe::Seen(_)) => rename(journal.clone(), Step::Pool, host, pooled, seen),
        (ServerStatus::Ready, _) => {
            let call = HostCall::Reinstall {
                image: release.image.clone(),
            };
            let guard = Guard {
                project: seen.project.clone(),
                name: host.name.clone(),
                ready: true,
            };
            Decision::Fly(Box::new(Plan::new(journal.clone(), Step::Wipe, call, guard, seen)))
        }
        (ServerStatus::Error | ServerStatus::Locked, _) => Decision::Rest(Situation::HostBroken {
            status: host.status.clone(),
        }),
        (status, _) => Decision::Rest(Situation::HostBusy { status: status.clone() }),
    }
}
