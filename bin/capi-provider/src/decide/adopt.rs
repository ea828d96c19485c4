//! Taking a host from the pool.
//!
//! ```text
//!  choose (write the id) ─► claim (under it) ─► mark (tuist-claim-pending-<id>) ─► settle ─► name ─► verify ─► record
//!        ▲                                                                              │
//!        └───────────── anything unexpected: over, drop the claim, forget ──────────────┘
//! ```

use russet_api::values::ServerId;

use super::{Action, Decision, Machine, Need, Seen, ensure_claim, look, name_looks_pooled, release};
use crate::candidates::{choose, fit};
use crate::flight::{Guard, HostCall, Plan};
use crate::host::{Host, Sight};
use crate::journal::{Claim, Journal, Step, Work, later};
use crate::names::claim_marker;
use crate::situation::{Situation, SpecProblem};

/// A machine without a host.
pub(super) fn begin(machine: &Machine, seen: &Seen<'_>) -> Decision {
    if let Some(server) = &machine.provider_server {
        return find_again(machine, server, seen);
    }
    let wanted = match &machine.wanted {
        Ok(wanted) => wanted,
        Err(problem) => return Decision::Rest(Situation::Spec(problem.clone())),
    };
    if let Err(problem) = SpecProblem::check_os(&wanted.os) {
        return Decision::Rest(Situation::Spec(problem));
    }
    if name_looks_pooled(machine, wanted) {
        return Decision::Rest(Situation::Spec(SpecProblem::NameInPool {
            pool: wanted.pool.clone(),
        }));
    }
    let Some(inventory) = seen.inventory else {
        return Decision::Look(Need::Inventory);
    };
    let uid = &machine.holder.uid;
    match choose(inventory, seen.claims, wanted, seen.project, uid, &machine.given_back) {
        Ok(host) => {
            let (pool, from) = (wanted.pool.clone(), host.name.clone());
            let claim = Claim {
                pool,
                from,
                marked_at: None,
                naming: false,
            };
            Decision::write(Journal::new(&host.id, seen.fresh, Work::Claim(claim), seen.now))
        }
        Err(shortage) => Decision::Rest(Situation::NoAvailableHost {
            shortage: Box::new(shortage),
            wanted: Box::new(wanted.clone()),
        }),
    }
}

/// A machine in the middle of taking a host.
pub(super) fn go_on(machine: &Machine, journal: &Journal, claim: &Claim, seen: &Seen<'_>) -> Decision {
    // Once a call was made the claim is there and stays, whatever a cache that lags behind shows.
    if journal.attempts == 0
        && let Some(first) = take_claim(machine, journal, seen)
    {
        return first;
    }
    let settled = claim.marked_at.map(|at| later(at, seen.rules.settle));
    if let Some(until) = settled.filter(|until| seen.now < *until) {
        return Decision::Rest(Situation::Settling { until });
    }
    // Nothing was done to the host yet: the shared poll knows enough, since it is read right before the call anyway.
    if journal.attempts == 0 && seen.host.is_none() {
        match seen.inventory {
            None => return Decision::Look(Need::Inventory),
            Some(inventory) => match inventory.get(&journal.server) {
                Some(host) if host.name == claim.from && is_fit(machine, host, seen) => {
                    return mark(journal.clone(), host, seen);
                }
                _ => {}
            },
        }
    }
    let sight = match look(&journal.server, seen) {
        Ok(sight) => sight,
        Err(look) => return look,
    };
    let host = match sight {
        Sight::There(host) if host.project == *seen.project => host,
        _ => return release::over(journal, "the host is gone"),
    };
    // Only a name we gave is a name that says something: a machine of another cluster may be called the same.
    if host.name == machine.holder.name && claim.naming {
        return Decision::Act(Action::RecordHost(host.clone()));
    }
    if host.name == claim_marker(&journal.id) {
        if settled.is_none() && !seen.rules.settle.is_zero() {
            let claim = Claim {
                marked_at: Some(seen.now),
                ..claim.clone()
            };
            return Decision::write(journal.with(Work::Claim(claim)));
        }
        let journal = journal.with(Work::Claim(Claim {
            naming: true,
            ..claim.clone()
        }));
        let call = HostCall::Rename {
            to: machine.holder.name.clone(),
        };
        let guard = Guard {
            project: seen.project.clone(),
            name: host.name.clone(),
            ready: false,
        };
        return Decision::Fly(Box::new(Plan::new(journal, Step::Name, call, guard, seen)));
    }
    if host.name == claim.from && claim.marked_at.is_none() && is_fit(machine, host, seen) {
        return mark(journal.clone(), host, seen);
    }
    // Somebody else was faster, or the host is not what it was. Nothing of ours is on it.
    release::over(journal, "the host is not free any more")
}

/// What to do before the claim is ours.
fn take_claim(machine: &Machine, journal: &Journal, seen: &Seen<'_>) -> Option<Decision> {
    let server = &journal.server;
    match seen.claims.get(server) {
        Some(held) if held.holder.uid != machine.holder.uid => {
            Some(release::over(journal, "another machine was faster"))
        }
        // Of an earlier try.
        Some(held) if held.id != journal.id => Some(Decision::drop_claim(server, &held.id)),
        Some(_) => None,
        None => Some(Decision::Act(Action::TakeClaim {
            server: server.clone(),
            id: journal.id.clone(),
        })),
    }
}

fn is_fit(machine: &Machine, host: &Host, seen: &Seen<'_>) -> bool {
    machine
        .wanted
        .as_ref()
        .is_ok_and(|wanted| fit(host, wanted, seen.project).is_ok())
}

fn mark(journal: Journal, host: &Host, seen: &Seen<'_>) -> Decision {
    let call = HostCall::Rename {
        to: claim_marker(&journal.id),
    };
    let guard = Guard {
        project: seen.project.clone(),
        name: host.name.clone(),
        ready: true,
    };
    Decision::Fly(Box::new(Plan::new(journal, Step::Mark, call, guard, seen)))
}

/// A machine that knows its host by `spec.providerID` alone: `clusterctl move` carries no status.
fn find_again(machine: &Machine, server: &ServerId, seen: &Seen<'_>) -> Decision {
    if let Err(first) = ensure_claim(machine, server, seen) {
        return first;
    }
    let sight = match look(server, seen) {
        Ok(sight) => sight,
        Err(look) => return look,
    };
    match sight {
        Sight::There(host) if host.project != *seen.project => Decision::Rest(Situation::ForeignProject),
        Sight::There(host) if host.name == machine.holder.name => Decision::Act(Action::RecordHost(host.clone())),
        Sight::There(host) => Decision::Rest(Situation::HostRenamed {
            name: host.name.clone(),
        }),
        Sight::Gone => Decision::Rest(Situation::HostGone),
    }
}
