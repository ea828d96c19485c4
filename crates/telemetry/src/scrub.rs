//! Removes known secrets from text we did not write: the output tail of a child process, an error from a remote API.
//!
//! [`Secret`] keeps our own code honest, but a shell script that fails under `set -x` prints its arguments whatever our
//! types say. Before such text reaches a log, a condition or an event it goes through a [`Scrubber`] that knows the values
//! that were handed to the child.
//!
//! A value is looked for in the forms in which tools repeat it: as given, trimmed, base64, percent-encoded, JSON-escaped,
//! and line by line for multi-line values such as PEM keys (a tail often starts in the middle of one).

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use crate::Secret;

/// What replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// Shorter values are not scrubbed: replacing every `a` of a text would shred it, and a secret that short is none.
pub const MIN_LEN: usize = 4;

/// Lines of a multi-line secret are scrubbed on their own from this length, so that `-----END…` style short lines and
/// YAML punctuation survive.
const MIN_LINE_LEN: usize = 16;

/// A set of values that must not appear in text.
#[derive(Debug, Clone, Default)]
pub struct Scrubber {
    /// Longest first: when one secret contains another, the longer match wins and no tail of it is left over.
    needles: Vec<Secret<String>>,
}

impl Scrubber {
    /// A scrubber that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value and the forms in which tools tend to repeat it.
    pub fn add(&mut self, secret: &Secret<String>) {
        let value = secret.expose();
        let trimmed = value.trim();
        for form in [value.as_str(), trimmed] {
            self.needle(form);
            self.needle(&STANDARD.encode(form));
            self.needle(STANDARD.encode(form).trim_end_matches('='));
            self.needle(&URL_SAFE_NO_PAD.encode(form));
        }
        self.needle(&percent_encoded(trimmed));
        self.needle(&json_escaped(trimmed));
        if trimmed.contains('\n') {
            for line in trimmed.lines().map(str::trim).filter(|line| line.len() >= MIN_LINE_LEN) {
                // PEM armour is public and helps a reader to see what kind of thing was redacted.
                if !line.starts_with("-----") {
                    self.needle(line);
                }
            }
        }
        self.needles
            .sort_by_key(|needle| std::cmp::Reverse(needle.expose().len()));
    }

    /// Builder form of [`Scrubber::add`].
    #[must_use]
    pub fn with(mut self, secret: &Secret<String>) -> Self {
        self.add(secret);
        self
    }

    /// The text without any of the known values.
    pub fn scrub(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for needle in &self.needles {
            if out.contains(needle.expose().as_str()) {
                out = out.replace(needle.expose().as_str(), REDACTED);
            }
        }
        out
    }

    /// The last `max` bytes of the text, scrubbed first and cut after: the other order would let half a secret through.
    pub fn tail(&self, text: &str, max: usize) -> String {
        let clean = self.scrub(text);
        let mut start = clean.len().saturating_sub(max);
        while !clean.is_char_boundary(start) {
            start += 1;
        }
        clean.get(start..).unwrap_or_default().to_owned()
    }

    fn needle(&mut self, value: &str) {
        if value.len() >= MIN_LEN && !self.needles.iter().any(|known| known.expose() == value) {
            self.needles.push(Secret::from(value));
        }
    }
}

fn percent_encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

fn json_escaped(value: &str) -> String {
    value.chars().fold(String::new(), |mut out, character| {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other => out.push(other),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn knowing(values: &[&str]) -> Scrubber {
        values
            .iter()
            .fold(Scrubber::new(), |scrubber, value| scrubber.with(&Secret::from(*value)))
    }

    #[test]
    fn every_form_a_tool_repeats_is_replaced() {
        let scrubber = knowing(&["p@ss \"word\"\n"]);
        let base64 = STANDARD.encode("p@ss \"word\"");
        let text = format!("raw p@ss \"word\" url p%40ss%20%22word%22 json p@ss \\\"word\\\" b64 {base64}");
        assert_eq!(
            scrubber.scrub(&text),
            "raw [redacted] url [redacted] json [redacted] b64 [redacted]"
        );
    }

    #[test]
    fn a_secret_inside_another_leaves_no_remainder() {
        assert_eq!(
            knowing(&["token", "token-and-more"]).scrub("x token-and-more y"),
            "x [redacted] y"
        );
    }

    #[test]
    fn a_key_cut_in_the_middle_is_still_redacted() {
        let pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASCBKcwggSjAgEAAoIBAQ\n-----END PRIVATE KEY-----\n";
        let tail = "EFAASCBKcwggSjAgEAAoIBAQ\n-----END PRIVATE KEY-----";
        assert_eq!(knowing(&[pem]).scrub(tail), "[redacted]\n-----END PRIVATE KEY-----");
    }

    #[test]
    fn a_tail_never_starts_inside_a_secret() {
        let scrubber = knowing(&["supersecretvalue"]);
        assert_eq!(scrubber.tail("log supersecretvalue end", 10), "acted] end");
        assert_eq!(scrubber.tail("ünïcödé", 3), "dé");
    }

    #[test]
    fn short_values_do_not_shred_the_text() {
        assert_eq!(knowing(&["a", ""]).scrub("a banana"), "a banana");
    }

    proptest! {
        #[test]
        fn a_scrubbed_text_contains_no_secret(secret in "[a-zA-Z0-9+/=]{4,40}", before in ".{0,40}", after in ".{0,40}") {
            // The placeholder itself may contain a very unlucky secret such as "acte".
            prop_assume!(!REDACTED.contains(&secret));
            let text = format!("{before}{secret}{after}");
            let clean = knowing(&[&secret]).scrub(&text);
            prop_assert!(clean.contains(REDACTED));
            // Joining what surrounded a match cannot be avoided to form the value again, so look in the pieces.
            for piece in clean.split(REDACTED) {
                prop_assert!(!piece.contains(&secret));
            }
        }
    }
}
