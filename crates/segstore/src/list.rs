//! Listing the entries of a kind, from memory, and reading them one by one.

use crate::core::Core;
use crate::error::Error;
use crate::index::Slot;
use crate::key::Kind;
use crate::reader::{body_crc, read_head, read_trailer};
use crate::store::Store;
use crate::sync::read;
use std::sync::Arc;

/// An entry as memory knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    slot: Slot,
}

impl Listed {
    /// Grows with every write of the store.
    pub fn sequence(&self) -> u64 {
        self.slot.sequence
    }

    /// Bytes of its body.
    pub fn len(&self) -> u64 {
        u64::from(self.slot.body_len)
    }

    pub fn is_empty(&self) -> bool {
        self.slot.body_len == 0
    }
}

/// A listed entry with its names and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub namespace: Vec<u8>,
    pub key: Vec<u8>,
    pub version: u64,
    pub body: Vec<u8>,
}

impl Store {
    /// The entries of a kind, of one namespace or of all of them, in no order. Does not count as a use.
    pub fn list(&self, kind: Kind, namespace: Option<&[u8]>) -> Vec<Listed> {
        let core = self.core();
        let number = namespace.map(|name| read(&core.names).number(name));
        let mut found = Vec::new();
        if number == Some(None) {
            return found;
        }
        for shard in core.index.each() {
            let wanted = |slot: &Slot| slot.kind == kind.code() && number.flatten().is_none_or(|n| n == slot.namespace);
            found.extend(shard.slots().filter(wanted).map(|slot| Listed { slot }));
        }
        found
    }

    /// Reads a listed entry. `None`: it is gone, was written again, or is damaged.
    pub fn open_listed(&self, listed: &Listed) -> Result<Option<Opened>, Error> {
        self.core().open_listed(listed)
    }
}

impl Core {
    fn open_listed(self: &Arc<Self>, listed: &Listed) -> Result<Option<Opened>, Error> {
        let fp = listed.slot.fingerprint;
        let current = self
            .index
            .shard(fp)
            .get(fp)
            .filter(|s| s.sequence == listed.slot.sequence);
        let Some((slot, segment)) = current.and_then(|slot| Some((slot, self.segment(slot.segment)?))) else {
            return Ok(None);
        };
        let context = Error::io("reading a record");
        let found = (|| {
            let Some((head, names)) = read_head(&*segment.file, segment.tag, slot.offset, 512)? else {
                return Ok(None);
            };
            let Some(trailer) = read_trailer(&*segment.file, segment.tag, slot.offset, &head)? else {
                return Ok(None);
            };
            let at = slot.offset + head.len() as u64;
            let sound = slot.verified || body_crc(&*segment.file, at, head.body_len)? == Some(trailer.body_crc);
            let len = usize::try_from(head.body_len).unwrap_or(usize::MAX);
            let body = crate::backend::read_exact_at(&*segment.file, at, len)?;
            Ok(body.filter(|_| sound).map(|body| Opened {
                namespace: head.namespace(&names).unwrap_or_default().to_vec(),
                key: head.key(&names).unwrap_or_default().to_vec(),
                version: trailer.version,
                body,
            }))
        })()
        .map_err(context)?;
        if found.is_none() {
            self.drop_damaged(&slot);
        }
        Ok(found)
    }
}
