//! Which host of a pool a machine takes.

use std::fmt;

use russet_api::values::PoolPrefix;
use russet_scaleway::ProjectId;
use russet_scaleway::apple_silicon::ServerStatus;

use crate::claims::Claims;
use crate::host::{Host, Inventory};
use crate::images::is_of_family;
use crate::names::is_pooled;

/// What a machine wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Hardware.
    pub type_: String,
    /// macOS family.
    pub os: String,
    /// The pool it comes from and goes back to.
    pub pool: PoolPrefix,
}

/// Why a host of the pool will not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Not of our project, or not free in the pool.
    NotInPool,
    /// Other hardware.
    Type,
    /// Another macOS.
    Os,
    /// Not ready, or not delivered.
    Busy,
    /// It will be deleted.
    Leaving,
}

/// Whether a machine may take this host, claims aside.
pub fn fit(host: &Host, wanted: &Wanted, project: &ProjectId) -> Result<(), Unfit> {
    if host.project != *project || !is_pooled(&wanted.pool, &host.name) {
        return Err(Unfit::NotInPool);
    }
    if host.type_ != wanted.type_ {
        return Err(Unfit::Type);
    }
    if !host.os.as_ref().is_some_and(|os| is_of_family(os, &wanted.os)) {
        return Err(Unfit::Os);
    }
    if host.leaving {
        return Err(Unfit::Leaving);
    }
    if host.status != ServerStatus::Ready || !host.delivered {
        return Err(Unfit::Busy);
    }
    Ok(())
}

/// Why the pool has no host for a machine: how many it has, and what is wrong with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Hosts in the pool.
    pub pooled: usize,
    /// Fit, but another machine is taking them.
    pub claimed: usize,
    /// Of other hardware.
    pub other_type: usize,
    /// With another macOS.
    pub other_os: usize,
    /// Not ready.
    pub busy: usize,
    /// About to be deleted.
    pub leaving: usize,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pooled == 0 {
            return f.write_str("the pool is empty");
        }
        write!(f, "the pool has {} hosts:", self.pooled)?;
        let parts = [
            (self.claimed, "taken by other machines"),
            (self.other_type, "of another type"),
            (self.other_os, "with another macOS"),
            (self.busy, "not ready"),
            (self.leaving, "about to be deleted"),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!(" {count} {what}"))
            .collect();
        f.write_str(&parts.join(","))
    }
}

/// The host this machine takes. Machines that choose at the same time prefer different ones, so that few collide: each
/// ranks the hosts by a hash of its own.
pub fn choose<'a>(
    inventory: &'a Inventory,
    claims: &Claims,
    wanted: &Wanted,
    project: &ProjectId,
    uid: &str,
) -> Result<&'a Host, Shortage> {
    let mut shortage = Shortage::default();
    let mut best: Option<(u64, &Host)> = None;
    for host in &inventory.hosts {
        match fit(host, wanted, project) {
            Err(Unfit::NotInPool) => continue,
            Err(Unfit::Type) => shortage.other_type += 1,
            Err(Unfit::Os) => shortage.other_os += 1,
            Err(Unfit::Busy) => shortage.busy += 1,
            Err(Unfit::Leaving) => shortage.leaving += 1,
            Ok(()) if claims.get(&host.id).is_some_and(|claim| claim.holder.uid != uid) => shortage.claimed += 1,
            Ok(()) => {
                let rank = rank(uid, host.id.as_str());
                if best.is_none_or(|(least, _)| rank < least) {
                    best = Some((rank, host));
                }
            }
        }
        shortage.pooled += 1;
    }
    best.map(|(_, host)| host).ok_or(shortage)
}

/// FNV-1a: stable between releases and replicas, which a randomly seeded hash is not.
pub(crate) fn rank(uid: &str, server: &str) -> u64 {
    uid.bytes()
        .chain([0])
        .chain(server.bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}
