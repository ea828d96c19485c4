//! Names of uploads.

/// A version 7 UUID. Parsing is the only way in from outside, so an id is never a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id(u128);

impl Id {
    /// 48 bits of time, 74 random bits.
    pub(super) fn new(now_ms: u64, random: u128) -> Self {
        let time = u128::from(now_ms & 0xffff_ffff_ffff) << 80;
        let random = random & 0x0fff_3fff_ffff_ffff_ffff;
        Self(time | (7 << 76) | (2 << 62) | random)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|letter| *letter != '-').collect();
        let id = Self(u128::from_str_radix(&digits, 16).ok()?);
        (id.to_string() == text).then_some(id)
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            value >> 96,
            (value >> 80) & 0xffff,
            (value >> 64) & 0xffff,
            (value >> 48) & 0xffff,
            value & 0xffff_ffff_ffff
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_version_seven_and_parse_back() {
        let id = Id::new(0x0192_3456_789a, u128::MAX);
        assert_eq!(id.to_string(), "01923456-789a-7fff-bfff-ffffffffffff");
        assert_eq!(Id::parse(&id.to_string()), Some(id));
        for text in [
            "",
            "..",
            "../x",
            "019234567 89a",
            "01923456789a7fffbfffffffffffffff",
            "01923456-789A-7fff-bfff-ffffffffffff",
        ] {
            assert_eq!(Id::parse(text), None, "{text}");
        }
    }
}
