//! What of the API's own words may be repeated.

use russet_telemetry::{Scrubber, Secret};

/// Longest text of Scaleway's that is kept.
const MAX_TEXT: usize = 300;
/// A text that shares this many bytes with a secret quotes it.
const QUOTE: usize = 16;
/// A secret shorter than this is none, and looking for it would leave out every text.
const MIN_SECRET: usize = 4;
const LEFT_OUT: &str = "[redacted: quotes what was sent]";

/// Knows the key of the client and the secrets of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Censor<'a> {
    pub(crate) scrubber: &'a Scrubber,
    pub(crate) sent: &'a [Secret<String>],
}

impl Censor<'_> {
    /// Text of the API that is fit for logs and conditions. An API that refuses a script tends to quote a part of it, so a
    /// text that shares a piece with what was sent is left out as a whole.
    pub(crate) fn clean(&self, text: &str) -> String {
        if self.sent.iter().any(|secret| quotes(text, secret)) {
            return LEFT_OUT.to_owned();
        }
        clean(text, self.scrubber)
    }
}

fn quotes(text: &str, secret: &Secret<String>) -> bool {
    let secret = secret.expose().trim();
    if secret.len() < QUOTE {
        return secret.len() >= MIN_SECRET && text.contains(secret);
    }
    let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let mut end = ends.next().unwrap_or_default();
    text.char_indices().any(|(start, _)| {
        while end < start + QUOTE {
            match ends.next() {
                Some(next) => end = next,
                None => return false,
            }
        }
        text.get(start..end).is_some_and(|piece| secret.contains(piece))
    })
}

/// Text of the API, without our key and not too long.
pub(crate) fn clean(text: &str, scrubber: &Scrubber) -> String {
    scrubber
        .scrub(text)
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_TEXT)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean_of(secret: &str, text: &str) -> String {
        let sent = [Secret::from(secret)];
        Censor {
            scrubber: &Scrubber::new(),
            sent: &sent,
        }
        .clean(text)
    }

    #[test]
    fn a_text_that_quotes_a_piece_of_what_was_sent_is_left_out() {
        let script = "#cloud-config\nwrite_files:\n- content: canary-é-token-0123456789\n";
        for quote in [
            "user_data: canary-é-token-0123456789 is no YAML",
            "near 'y-é-token-0123456'",
            "near 'token-0123456789\n'",
        ] {
            assert_eq!(clean_of(script, quote), LEFT_OUT, "{quote}");
        }
        for fine in ["", "é", "user_data is longer than 128 kB", "write_files?"] {
            assert_eq!(clean_of(script, fine), fine);
        }
    }

    #[test]
    fn a_short_secret_is_found_whole() {
        assert_eq!(clean_of("hunter2", "hunter2 is too weak"), LEFT_OUT);
        assert_eq!(clean_of("hunter2", "hunter is too weak"), "hunter is too weak");
        assert_eq!(clean_of("", "anything"), "anything");
    }
}
