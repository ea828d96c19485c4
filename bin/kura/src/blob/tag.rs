//! Entity tags.

use std::io::Write as _;

/// A strong entity tag: which write of which store this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    bytes: [u8; 36],
    length: u8,
}

impl Tag {
    pub(super) fn new(version: u64, sequence: u64) -> Self {
        let mut bytes = [0; 36];
        let mut room = &mut bytes[..];
        // Two numbers of at most sixteen digits always fit.
        let _ = write!(room, "\"{version:x}-{sequence:x}\"");
        let left = room.len();
        Self {
            length: u8::try_from(36 - left).unwrap_or(0),
            bytes,
        }
    }

    /// The tag with its quotes.
    pub fn as_str(&self) -> &str {
        self.bytes
            .get(..usize::from(self.length))
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .unwrap_or("\"\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_quoted_and_fit() {
        assert_eq!(Tag::new(0x1a, 2).as_str(), "\"1a-2\"");
        assert_eq!(Tag::new(u64::MAX, u64::MAX).as_str().len(), 35);
    }
}
