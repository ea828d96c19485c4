//! Takes secrets out of what a host said.

use russet_telemetry::Secret;

use crate::quote;

/// Shorter texts are not looked for: taking them out would take out half of every message.
const SHORTEST: usize = 4;
/// What is left of an output.
const TAIL: usize = 2_000;

/// Knows what may not be said.
#[derive(Default)]
pub(super) struct Scrubber(Vec<String>);

impl Scrubber {
    pub(super) fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret<String>>) -> Self {
        let mut words: Vec<String> = secrets
            .into_iter()
            // A file is said line by line, if at all.
            .flat_map(|secret| secret.expose().lines())
            .flat_map(|line| [line.trim(), value(line)])
            .filter(|word| word.len() >= SHORTEST)
            // bash quotes the line it stumbles over, and there a secret is a word of ours.
            .flat_map(|word| [word.to_owned(), quote::word(word).trim_matches('\'').to_owned()])
            .collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.dedup();
        Self(words)
    }

    /// The same, and these words neither.
    pub(super) fn and(mut self, words: impl IntoIterator<Item = String>) -> Self {
        self.0.extend(words.into_iter().filter(|word| word.len() >= SHORTEST));
        self.0.sort_by_key(|word| std::cmp::Reverse(word.len()));
        self
    }

    /// The end of a text without any of them.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut text = text.trim().to_owned();
        for word in &self.0 {
            if text.contains(word.as_str()) {
                text = text.replace(word.as_str(), "(secret)");
            }
        }
        let start = text.len().saturating_sub(TAIL);
        let start = (start..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.split_off(start)
    }
}

/// What a line of YAML says, without what it says it about.
fn value(line: &str) -> &str {
    line.split_once(": ").map_or("", |(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_whole_and_in_lines() {
        let secrets = [
            Secret::new("hunter22".to_owned()),
            Secret::new("users:\n- token: abcdef.0123456789\n".to_owned()),
            Secret::new("m1".to_owned()),
        ];
        let scrubber = Scrubber::new(&secrets);
        assert_eq!(
            scrubber.clean(" m1: hunter22 is wrong, so is abcdef.0123456789 \n"),
            "m1: (secret) is wrong, so is (secret)"
        );
    }

    /// bash said `syntax error near ...` and quoted the line, password and all.
    #[test]
    fn a_secret_is_found_as_it_stands_in_a_program_too() {
        let secret = Secret::new("it's secret".to_owned());
        let scrubber = Scrubber::new([&secret]).and(["aGVsbG8gd29ybGQ=".to_owned()]);
        let said = format!("line 7: KEY={} aGVsbG8gd29ybGQ=", quote::word(secret.expose()));
        assert_eq!(scrubber.clean(&said), "line 7: KEY='(secret)' (secret)");
    }

    #[test]
    fn only_the_end_of_much_is_kept() {
        let cleaned = Scrubber::default().clean(&format!("{}é the end", "ö".repeat(TAIL)));
        assert!(cleaned.len() <= TAIL && cleaned.ends_with("the end"), "{cleaned}");
    }
}
