//! What callers name: kinds, keys, durability, outcomes.

use crate::error::Error;
use crate::format::{MAX_BODY, MAX_KEY, MAX_NAMESPACE, MAX_REFERENCES};
use crate::hash::{Fingerprint, siphash128};

/// What an entry is, chosen by the caller: 16 immutable kinds and 16 mutable ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(u8);

impl Kind {
    /// First write wins. `number` is taken modulo 16.
    pub const fn immutable(number: u8) -> Self {
        Self(number & 15)
    }

    /// Last acknowledged write wins. `number` is taken modulo 16.
    pub const fn mutable(number: u8) -> Self {
        Self(16 | (number & 15))
    }

    pub const fn is_mutable(self) -> bool {
        self.0 & 16 != 0
    }

    /// The number given at construction.
    pub const fn number(self) -> u8 {
        self.0 & 15
    }

    pub(crate) const fn code(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_code(code: u8) -> Self {
        Self(code & 31)
    }
}

/// The full name of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    pub kind: Kind,
    pub namespace: &'a [u8],
    pub key: &'a [u8],
}

impl<'a> Key<'a> {
    pub fn new(kind: Kind, namespace: &'a (impl AsRef<[u8]> + ?Sized), key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self {
            kind,
            namespace: namespace.as_ref(),
            key: key.as_ref(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        limit("namespace", self.namespace.len() as u64, MAX_NAMESPACE as u64)?;
        limit("key", self.key.len() as u64, MAX_KEY as u64)
    }

    pub(crate) fn fingerprint(&self, hash_key: u128) -> Fingerprint {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "longer namespaces are refused; equal prefixes still differ"
        )]
        let len = (self.namespace.len() as u16).to_le_bytes();
        Fingerprint(siphash128(
            hash_key,
            &[&[self.kind.code()], &len, self.namespace, self.key],
        ))
    }
}

pub(crate) fn limit(what: &'static str, len: u64, limit: u64) -> Result<(), Error> {
    if len <= limit {
        Ok(())
    } else {
        Err(Error::TooLarge { what, len, limit })
    }
}

pub(crate) fn check_body(len: u64) -> Result<(), Error> {
    limit("body", len, MAX_BODY)
}

pub(crate) fn check_references(count: usize) -> Result<(), Error> {
    limit("list of references", count as u64, MAX_REFERENCES as u64)
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The end of the process, however sudden.
    Process,
    /// Loss of power as well.
    #[default]
    Power,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The entry is stored; of an immutable kind this caller was the first.
    Created { sequence: u64, version: u64 },
    /// An immutable entry was there already, as durable as this caller asked for. Nothing was written.
    Exists,
    /// A delete removed the entry.
    Deleted { sequence: u64 },
    /// A delete found nothing.
    Absent,
}

impl Outcome {
    pub fn is_created(self) -> bool {
        matches!(self, Self::Created { .. })
    }
}
