//! Space kept aside for deletes.
//!
//! A delete frees space only after its tombstone is durable, and on a full disk there is no room for a tombstone. So a file
//! that holds nothing is kept while there is room, and thrown overboard when a delete needs its place. Its absence is
//! never an error; it comes back with the chores once the disk has room again.

use crate::bytes::put;
use crate::core::Core;
use crate::error::Error;
use crate::segment::Segment;
use crate::sync::lock;

const NAME: &str = "BALLAST";

/// Whether the file is there. Nobody knows before somebody looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ballast {
    #[default]
    Unknown,
    Held,
    Gone,
}

/// Bytes that no file system can store in less space.
fn filling(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (0..len.saturating_sub(7)).step_by(8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        put(&mut bytes, at, &x.to_le_bytes());
    }
    bytes
}

impl Core {
    /// Sees to it that the ballast is there, if there is room for it. Failing changes nothing.
    pub(crate) fn hold_ballast(&self) {
        let size = self.options.ballast;
        let mut ballast = lock(&self.ballast);
        if *ballast == Ballast::Held || size == 0 || self.health.is_full() {
            return;
        }
        let whole = self
            .backend
            .open(NAME)
            .and_then(|file| file.len())
            .is_ok_and(|len| len == size);
        if whole {
            *ballast = Ballast::Held;
            return;
        }
        let roomy = |free: u64| free > self.options.min_free.saturating_add(size.saturating_mul(4));
        if !self.backend.free_space().is_ok_and(roomy) {
            return;
        }
        let _ = self.backend.remove(NAME);
        let made = self.backend.create(NAME).and_then(|file| {
            let len = usize::try_from(size).unwrap_or(0);
            file.write_at(&filling(len), 0)
        });
        *ballast = Ballast::Gone;
        match made {
            Ok(()) => *ballast = Ballast::Held,
            Err(_) => drop(self.backend.remove(NAME)),
        }
    }

    /// Gives its space away; false when there is none to give.
    pub(crate) fn drop_ballast(&self) -> bool {
        let mut ballast = lock(&self.ballast);
        if *ballast == Ballast::Gone {
            return false;
        }
        *ballast = Ballast::Gone;
        self.backend.remove(NAME).is_ok()
    }

    /// Writes what must be written for space to be freed.
    pub(crate) fn write_freeing(&self, segment: &Segment, buf: &[u8], at: u64) -> Result<(), Error> {
        match self.write_segment(segment, buf, at) {
            Err(Error::DiskFull { .. }) if self.drop_ballast() => self.write_segment(segment, buf, at),
            written => written,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filling_is_as_long_as_asked_and_not_empty() {
        for len in [0, 7, 8, 4096, 4099] {
            assert_eq!(filling(len).len(), len);
        }
        let distinct: std::collections::BTreeSet<u8> = filling(4096).into_iter().collect();
        assert!(distinct.len() > 250, "{} values", distinct.len());
    }
}
