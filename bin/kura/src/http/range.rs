//! Which bytes of a blob an answer carries: single ranges and entity tags (RFC 9110, sections 13 and 14).

/// What a `Range` field asks of a blob of a known length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// Everything: no range, or one we may ignore.
    Whole,
    /// That part, never empty.
    Part {
        /// First byte.
        start: u64,
        /// How many.
        length: u64,
    },
    /// Nothing of the blob lies in the range: 416.
    Unsatisfiable,
}

impl Range {
    /// Ranges in other units, lists of ranges and malformed ones are ignored, as the RFC allows: the client gets everything.
    pub fn of(value: Option<&[u8]>, total: u64) -> Self {
        let Some(spec) = value
            .and_then(|value| std::str::from_utf8(value).ok())
            .and_then(|text| text.strip_prefix("bytes="))
        else {
            return Self::Whole;
        };
        let Some((first, last)) = spec.split_once('-') else {
            return Self::Whole;
        };
        let number = |text: &str| crate::http1::parser::decimal(text.as_bytes());
        match (first, last) {
            ("", suffix) => match number(suffix) {
                None => Self::Whole,
                Some(0) => Self::Unsatisfiable,
                Some(_) if total == 0 => Self::Unsatisfiable,
                Some(count) => {
                    let length = count.min(total);
                    Self::Part {
                        start: total - length,
                        length,
                    }
                }
            },
            (first, "") => match number(first) {
                None => Self::Whole,
                Some(start) if start >= total => Self::Unsatisfiable,
                Some(start) => Self::Part {
                    start,
                    length: total - start,
                },
            },
            (first, last) => match (number(first), number(last)) {
                (Some(start), Some(end)) if start <= end => {
                    if start >= total {
                        return Self::Unsatisfiable;
                    }
                    let end = end.min(total - 1);
                    Self::Part {
                        start,
                        length: end - start + 1,
                    }
                }
                _ => Self::Whole,
            },
        }
    }
}

/// Whether an `If-None-Match` field names `etag` (weak comparison; `*` names everything).
pub fn none_match_names(value: &[u8], etag: &str) -> bool {
    value == b"*"
        || value.split(|&byte| byte == b',').any(|candidate| {
            let candidate = candidate.trim_ascii();
            candidate.strip_prefix(b"W/").unwrap_or(candidate) == etag.as_bytes()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_rfc_says() {
        let part = |start, length| Range::Part { start, length };
        for (text, total, expected) in [
            ("bytes=0-0", 10, part(0, 1)),
            ("bytes=2-5", 10, part(2, 4)),
            ("bytes=2-99", 10, part(2, 8)),
            ("bytes=9-", 10, part(9, 1)),
            ("bytes=-3", 10, part(7, 3)),
            ("bytes=-99", 10, part(0, 10)),
            ("bytes=10-", 10, Range::Unsatisfiable),
            ("bytes=10-12", 10, Range::Unsatisfiable),
            ("bytes=-0", 10, Range::Unsatisfiable),
            ("bytes=-1", 0, Range::Unsatisfiable),
            ("bytes=0-", 0, Range::Unsatisfiable),
            ("bytes=5-2", 10, Range::Whole),
            ("bytes=a-b", 10, Range::Whole),
            ("bytes=0-1,3-4", 10, Range::Whole),
            ("bytes=--1", 10, Range::Whole),
            ("lines=0-1", 10, Range::Whole),
            ("bytes=", 10, Range::Whole),
        ] {
            assert_eq!(Range::of(Some(text.as_bytes()), total), expected, "{text} of {total}");
        }
        assert_eq!(Range::of(None, 10), Range::Whole);
    }

    #[test]
    fn entity_tags_are_compared_weakly() {
        for (value, named) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("*", true),
            ("\"b\"", false),
            ("a", false),
            ("", false),
        ] {
            assert_eq!(none_match_names(value.as_bytes(), "\"a\""), named, "{value}");
        }
    }
}
