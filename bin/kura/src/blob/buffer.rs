//! Memory for small hits, reused by the thread that serves them.
//!
//! The store appends a whole record; its body is followed by nothing we need and preceded by at least [`ROOM`] bytes we may
//! overwrite. The answer's header is written directly in front of the body, so both leave in one write without a copy.

use std::cell::RefCell;
use std::ops::Range;

/// Room for an answer's header before the record.
const ROOM: usize = 1024;
/// Buffers a thread keeps.
const KEPT: usize = 4;
/// Larger ones are given back to the system.
const LARGEST: usize = 256 * 1024;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A body in memory with room in front of it.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    body: Range<usize>,
}

impl Buffer {
    pub(super) fn take() -> Self {
        let mut bytes = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        bytes.resize(ROOM, 0);
        Self { bytes, body: 0..0 }
    }

    /// Where the store appends the record.
    pub(super) fn fill(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Where in the bytes the body turned out to be.
    pub(super) fn set_body(&mut self, body: Range<usize>) {
        self.body = body;
    }

    pub(super) fn body(&self) -> &[u8] {
        self.bytes.get(self.body.clone()).unwrap_or_default()
    }

    /// `head` and then `length` bytes of the body from `start` on. Overwrites what is before them.
    pub(super) fn behind(&mut self, head: &[u8], start: u64, length: u64) -> Option<&[u8]> {
        let start = self.body.start.checked_add(usize::try_from(start).ok()?)?;
        let end = start
            .checked_add(usize::try_from(length).ok()?)
            .filter(|end| *end <= self.body.end)?;
        let first = start.checked_sub(head.len())?;
        self.bytes.get_mut(first..start)?.copy_from_slice(head);
        self.bytes.get(first..end)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() > LARGEST {
            return;
        }
        bytes.clear();
        // The thread may be ending; then there is nobody to keep it for.
        let _ = SPARE.try_with(|spare| {
            if let Ok(mut spare) = spare.try_borrow_mut()
                && spare.len() < KEPT
            {
                spare.push(bytes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_stands_in_front_of_the_body() {
        let mut buffer = Buffer::take();
        let start = buffer.fill().len();
        buffer.fill().extend_from_slice(b"recordBODYtrailer");
        buffer.set_body(start + 6..start + 10);
        assert_eq!(buffer.body(), b"BODY");
        assert_eq!(buffer.behind(b"HEADER ", 0, 4), Some(&b"HEADER BODY"[..]));
        assert_eq!(buffer.behind(b"H ", 1, 2), Some(&b"H OD"[..]));
        assert_eq!(buffer.behind(b"H ", 1, 4), None);
        assert_eq!(buffer.behind(&[b'h'; 2000], 0, 4), None);
    }
}
