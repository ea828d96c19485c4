//! The plan, and the hash of what it says.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::config::{Fleet, Host};
use super::resource::digits;
use super::step::Step;
use super::steps;

/// What a host should be, in order.
pub fn plan(fleet: &Fleet, host: &Host) -> Vec<Step> {
    steps::all(fleet, host)
}

/// The steps of it that are looked at now and then on a host that has what it should have; see [`Engine::watch`](super::Engine::watch).
pub fn watched(host: &Host) -> Vec<Step> {
    steps::watched(host)
}

/// Hash of a fleet's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hash(String);

impl Hash {
    /// Hexadecimal.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The hash of the plans for hosts without properties. It is made of what would be run, so nothing can be in one and not in the
/// other.
pub fn desired(fleet: &Fleet) -> Hash {
    let mut hasher = Sha256::new();
    let mut part = |text: &str| {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    };
    for host in Host::blanks() {
        for step in plan(fleet, &host) {
            part(step.name());
            for resource in &step.resources {
                part(&resource.check(&host.user));
                part(&resource.change(&host.user));
            }
        }
    }
    Hash(digits(&hasher.finalize()))
}
