//! Takes secrets out of what a host said.

use russet_telemetry::Secret;

use super::step::Step;

/// Shorter texts are not looked for: taking them out would take out half of every message.
const SHORTEST: usize = 4;
/// What is left of an output.
const TAIL: usize = 2_000;

/// Knows what may not be said.
#[derive(Default)]
pub(super) struct Scrubber(Vec<String>);

impl Scrubber {
    pub(super) fn new<'a>(steps: &'a [Step], more: impl IntoIterator<Item = &'a Secret<String>>) -> Self {
        let mut words = Vec::new();
        let of_steps = steps
            .iter()
            .flat_map(|step| step.resources.iter().flat_map(|resource| resource.secrets()));
        for secret in of_steps.chain(more.into_iter().cloned()) {
            // A file is said line by line, if at all.
            words.extend(
                secret
                    .expose()
                    .lines()
                    .map(str::trim)
                    .filter(|line| line.len() >= SHORTEST)
                    .map(ToOwned::to_owned),
            );
        }
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.dedup();
        Self(words)
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
