//! Which host of a pool a machine takes.

use std::fmt;

use russet_api::values::{PoolPrefix, ServerId};
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
/// ranks the hosts by a hash of its own. Hosts it gave back come last, the one it tried longest ago first: whatever was wrong with
/// them may have survived the wipe.
pub fn choose<'a>(
    inventory: &'a Inventory,
    claims: &Claims,
    wanted: &Wanted,
    project: &ProjectId,
    uid: &str,
    given_back: &[ServerId],
) -> Result<&'a Host, Shortage> {
    let mut shortage = Shortage::default();
    let mut best: Option<((Option<usize>, u64), &Host)> = None;
    for host in &inventory.hosts {
        match fit(host, wanted, project) {
            Err(Unfit::NotInPool) => continue,
            Err(Unfit::Type) => shortage.other_type += 1,
            Err(Unfit::Os) => shortage.other_os += 1,
            Err(Unfit::Busy) => shortage.busy += 1,
            Err(Unfit::Leaving) => shortage.leaving += 1,
            Ok(()) if claims.get(&host.id).is_some_and(|claim| claim.holder.uid != uid) => shortage.claimed += 1,
            Ok(()) => {
                let tried = given_back.iter().rposition(|id| *id == host.id);
                let rank = (tried, rank(uid, host.id.as_str()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Image, PasswordState};

    fn host(id: &str) -> Host {
        Host {
            id: id.parse().unwrap(),
            name: format!("tuist-pool-{id}"),
            project: "ours".parse().unwrap(),
            type_: "M2-L".into(),
            os: Some(Image {
                id: "os-tahoe".parse().unwrap(),
                name: "macos-tahoe-26.3".into(),
                family: "Tahoe".into(),
                version: "26.3".into(),
                is_beta: false,
            }),
            status: ServerStatus::Ready,
            delivered: true,
            leaving: false,
            address: None,
            password: PasswordState::Known,
        }
    }

    fn chosen(free: &[&str], given_back: &[&str], uid: &str) -> String {
        let inventory = Inventory {
            at: None,
            hosts: free.iter().map(|id| host(id)).collect(),
        };
        let wanted = Wanted {
            type_: "M2-L".into(),
            os: "Tahoe".into(),
            pool: "tuist-pool-".parse().unwrap(),
        };
        let given_back: Vec<ServerId> = given_back.iter().map(|id| id.parse().unwrap()).collect();
        let project = "ours".parse().unwrap();
        let host = choose(&inventory, &Claims::default(), &wanted, &project, uid, &given_back);
        host.unwrap().id.to_string()
    }

    /// A Mac that could not be set up went back to the pool, and the machine that had given it up took it again, since its own order
    /// of the hosts had not changed: with a host whose fault survives a wipe it never got another.
    #[test]
    fn a_machine_takes_the_host_it_gave_back_only_when_no_other_is_free() {
        for number in 0..50 {
            let uid = format!("uid-{number}");
            assert_eq!(chosen(&["a", "b"], &["a"], &uid), "b");
            assert_eq!(chosen(&["a", "b"], &["b"], &uid), "a");
            assert_eq!(chosen(&["a"], &["a"], &uid), "a", "better than none");
            assert_eq!(chosen(&["a", "b"], &["b", "a"], &uid), "b", "the one of long ago");
            assert_eq!(chosen(&["a", "b"], &["a", "b", "a"], &uid), "b", "the last time counts");
        }
        let without = |uid: &str| chosen(&["a", "b"], &[], uid);
        let hosts: Vec<String> = (0..50).map(|number| without(&format!("uid-{number}"))).collect();
        assert!(hosts.contains(&"a".to_owned()) && hosts.contains(&"b".to_owned()));
    }
}
