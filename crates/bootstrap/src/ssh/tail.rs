//! The end of a stream, in bounded memory.

use std::collections::VecDeque;

/// Keeps the last bytes it was given.
#[derive(Debug)]
pub(super) struct Tail {
    kept: VecDeque<u8>,
    limit: usize,
    /// Whether something was let go.
    cut: bool,
}

impl Tail {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            kept: VecDeque::new(),
            limit,
            cut: false,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let skipped = bytes.len().saturating_sub(self.limit);
        let bytes = bytes.get(skipped..).unwrap_or_default();
        let excess = (self.kept.len() + bytes.len()).saturating_sub(self.limit);
        self.cut |= skipped > 0 || excess > 0;
        self.kept.drain(..excess);
        self.kept.extend(bytes);
    }

    pub(super) fn cut(&self) -> bool {
        self.cut
    }

    /// As text; what is no UTF-8 is replaced.
    pub(super) fn into_text(self) -> String {
        String::from_utf8_lossy(&Vec::from(self.kept)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_the_beginning_is_let_go() {
        let mut tail = Tail::new(5);
        tail.push(b"ab");
        assert!(!tail.cut());
        tail.push(b"cdef");
        assert!(tail.cut());
        assert_eq!(tail.into_text(), "bcdef");
    }

    #[test]
    fn one_piece_larger_than_the_limit_is_cut_too() {
        let mut tail = Tail::new(3);
        tail.push(b"x");
        tail.push(b"0123456789");
        assert!(tail.cut());
        assert_eq!(tail.into_text(), "789");
    }

    #[test]
    fn exactly_the_limit_is_whole() {
        let mut tail = Tail::new(3);
        tail.push(b"012");
        assert!(!tail.cut());
        assert_eq!(tail.into_text(), "012");
    }
}
