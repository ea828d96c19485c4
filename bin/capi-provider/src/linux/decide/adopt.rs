//! Taking an installed server instead of ordering one.
//!
//! ```text
//!  choose (write the id) ─► claim (under it) ─► tag ─► record
//!        ▲                                     │
//!        └── taken by another, or not as it was: forget, choose again
//! ```

use russet_api::values::PoolPrefix;
use russet_scaleway::ProjectId;

use super::{Action, Decision, Machine, Need, Seen, ensure_claim, fly, look};
use crate::claims::Claims;
use crate::host::Inventory;
use crate::linux::call::{Call, Target};
use crate::linux::journal::{Journal, Work};
use crate::linux::server::{Server, State};
use crate::linux::situation::{Shortage, Situation};
use crate::linux::wanted::{Catalog, Wanted};

pub(super) fn go_on(machine: &Machine, wanted: &Wanted, prefix: &PoolPrefix, seen: &Seen<'_>) -> Decision {
    let images = match seen.catalog {
        None => return Decision::Look(Need::Catalog),
        Some(Catalog::Available { images, .. }) => images,
        Some(other) => {
            return Decision::Rest(Situation::NotOffered {
                catalog: Box::new(other.clone()),
                wanted: Box::new(wanted.clone()),
            });
        }
    };
    if let Some(Journal {
        work: Work::Adopt(server),
        ..
    }) = &machine.journal
    {
        match ensure_claim(machine, server, seen) {
            Ok(()) => {}
            Err(Decision::Rest(_)) => return forget(),
            // Under the id that was written down, so that a claim nobody knows is void.
            Err(Decision::Act(Action::TakeClaim { server, .. })) => {
                let id = machine.journal.as_ref().map(|journal| journal.id.clone());
                return Decision::Act(Action::TakeClaim {
                    server,
                    id: id.unwrap_or_default(),
                });
            }
            Err(first) => return first,
        }
        return match look(server, seen) {
            Err(look) => look,
            Ok(Some(found)) if fit(found, wanted, images, prefix, seen.project).is_ok() => {
                fly(machine, Call::Tag, Target::Server(server.clone()), seen)
            }
            Ok(_) => forget(),
        };
    }
    let Some(inventory) = seen.inventory else {
        return Decision::Look(Need::Inventory);
    };
    let uid = &machine.holder.uid;
    let fits = |server: &Server| fit(server, wanted, images, prefix, seen.project);
    match choose(inventory, seen.claims, fits, uid) {
        Ok(server) => Decision::Act(Action::WriteJournal(Some(Box::new(Journal::new(
            server.id.to_string(),
            seen.fresh,
            Work::Adopt(server.id.clone()),
            seen.now,
        ))))),
        Err(shortage) => Decision::Rest(Situation::NoAdoptableServer {
            shortage,
            wanted: Box::new(wanted.clone()),
            prefix: prefix.clone(),
        }),
    }
}

fn forget() -> Decision {
    Decision::Act(Action::WriteJournal(None))
}

/// Why a server of the prefix will not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unfit {
    Name,
    Type,
    Os,
    Taken,
    Busy,
}

fn fit(
    server: &Server,
    wanted: &Wanted,
    images: &[String],
    prefix: &PoolPrefix,
    project: &ProjectId,
) -> Result<(), Unfit> {
    if server.project != *project || !prefix.matches(&server.name) {
        return Err(Unfit::Name);
    }
    if server.type_ != wanted.type_ {
        return Err(Unfit::Type);
    }
    if !server.os.as_ref().is_some_and(|os| images.contains(os)) {
        return Err(Unfit::Os);
    }
    if server.owner().is_some() {
        return Err(Unfit::Taken);
    }
    if server.state != State::Running {
        return Err(Unfit::Busy);
    }
    Ok(())
}

fn choose<'a>(
    inventory: &'a Inventory<Server>,
    claims: &Claims,
    fits: impl Fn(&Server) -> Result<(), Unfit>,
    uid: &str,
) -> Result<&'a Server, Shortage> {
    let mut shortage = Shortage::default();
    let mut best: Option<(u64, &Server)> = None;
    for server in &inventory.hosts {
        match fits(server) {
            Err(Unfit::Name) => continue,
            Err(Unfit::Type) => shortage.other_type += 1,
            Err(Unfit::Os) => shortage.other_os += 1,
            Err(Unfit::Taken) => shortage.taken += 1,
            Err(Unfit::Busy) => shortage.busy += 1,
            Ok(()) if claims.get(&server.id).is_some_and(|claim| claim.holder.uid != uid) => shortage.taken += 1,
            Ok(()) => {
                let rank = crate::candidates::rank(uid, server.id.as_str());
                if best.is_none_or(|(least, _)| rank < least) {
                    best = Some((rank, server));
                }
            }
        }
        shortage.found += 1;
    }
    best.map(|(_, server)| server).ok_or(shortage)
}
