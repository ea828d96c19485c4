//! Which host belongs to which machine, as Kubernetes keeps it.
//!
//! A claim is an object named after the host, so that only one can be created. Unlike a lease of time it never ends by itself.
//!
//! Each claim has an id. A machine that takes a host first writes the id into its own status and then creates the claim under
//! it, so a claim whose id no machine knows is void for good: ids are never used twice. It can be removed by whoever sees
//! it, however late, without harm to a later claim for the same host.

use std::collections::BTreeMap;

use russet_api::values::ServerId;

/// The machine a claim belongs to. The uid decides; the rest is for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// One claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Whose it is.
    pub holder: Holder,
    /// Its own id.
    pub id: String,
}

/// The claims as last read. They may lag behind: what counts is whether creating one succeeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(BTreeMap<ServerId, Claimed>);

impl Claims {
    /// The claim for this host.
    pub fn get(&self, server: &ServerId) -> Option<&Claimed> {
        self.0.get(server)
    }

    /// The claim for this host, if this machine has it.
    pub fn held(&self, server: &ServerId, uid: &str) -> Option<&Claimed> {
        self.get(server).filter(|claim| claim.holder.uid == uid)
    }

    /// The claims of a machine, in order.
    pub fn of<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = (&'a ServerId, &'a Claimed)> {
        self.iter().filter(move |(_, claim)| claim.holder.uid == uid)
    }

    /// All claims, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&ServerId, &Claimed)> {
        self.0.iter()
    }

    /// Adds a claim, unless the host is claimed already; then says by whom.
    pub fn take(&mut self, server: ServerId, holder: Holder, id: String) -> Result<(), Holder> {
        if let Some(other) = self.0.get(&server) {
            return Err(other.holder.clone());
        }
        self.0.insert(server, Claimed { holder, id });
        Ok(())
    }

    /// Removes the claim with this id.
    pub fn remove(&mut self, server: &ServerId, id: &str) {
        if self.0.get(server).is_some_and(|claim| claim.id == id) {
            self.0.remove(server);
        }
    }
}
