//! The last words of containers.

/// Of one container.
const LIMIT: usize = 4096;
/// Of all containers of a Pod.
const ALL: usize = 12 * 1024;
/// Of a log that stands in for them.
const LOG_BYTES: usize = 2048;
/// The same in lines.
const LOG_LINES: usize = 80;

/// What a container left at its `terminationMessagePath`, or the end of its log if it failed without a word and asked for that
/// (`FallbackToLogsOnError`).
pub fn termination_message(policy: Option<&str>, code: i32, file: Option<&[u8]>, log: &[u8]) -> Option<String> {
    let words = file.map(|bytes| ending(bytes, LIMIT)).filter(|words| !words.is_empty());
    if words.is_some() || code == 0 || policy != Some("FallbackToLogsOnError") {
        return words;
    }
    let tail = ending(log, LOG_BYTES);
    let lines = tail.trim_end_matches('\n').rmatch_indices('\n');
    let start = lines.map(|(index, _)| index + 1).nth(LOG_LINES - 1).unwrap_or(0);
    tail.get(start..).filter(|tail| !tail.is_empty()).map(str::to_owned)
}

/// Cuts a message so that those of all containers fit into a Pod.
pub(super) fn shared_limit(message: &str, containers: usize) -> String {
    let share = (ALL / containers.max(1)).min(LIMIT);
    ending(message.as_bytes(), share)
}

/// The last bytes as text, without a letter that was cut in two.
fn ending(bytes: &[u8], limit: usize) -> String {
    let start = bytes.len().saturating_sub(limit);
    let tail = bytes.get(start..).unwrap_or_default();
    let whole = if start == 0 {
        0
    } else {
        tail.iter().take_while(|byte| (0x80..0xc0).contains(*byte)).count()
    };
    String::from_utf8_lossy(tail.get(whole..).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_preferred_and_the_log_stands_in_only_after_a_failure() {
        let fallback = Some("FallbackToLogsOnError");
        let found = termination_message(fallback, 1, Some(b"why"), b"log");
        assert_eq!(found.as_deref(), Some("why"));
        let found = termination_message(fallback, 1, Some(b""), b"log");
        assert_eq!(found.as_deref(), Some("log"));
        assert_eq!(termination_message(fallback, 0, None, b"log"), None);
        assert_eq!(termination_message(Some("File"), 1, None, b"log"), None);
        assert_eq!(termination_message(None, 1, None, b"log"), None);
    }

    #[test]
    fn words_are_cut_at_the_front_and_never_inside_a_letter() {
        let long = "ü".repeat(4000);
        let message = termination_message(None, 1, Some(long.as_bytes()), b"").unwrap();
        assert_eq!(message.len(), 4096);
        let odd = format!("{long}x");
        let message = termination_message(None, 1, Some(odd.as_bytes()), b"").unwrap();
        assert_eq!((message.len(), message.contains('\u{fffd}')), (4095, false));
    }

    #[test]
    fn a_log_that_stands_in_has_at_most_eighty_lines_and_two_kibibytes() {
        let lines = (0..200).map(|line| line.to_string()).collect::<Vec<_>>().join("\n") + "\n";
        let words = termination_message(Some("FallbackToLogsOnError"), 1, None, lines.as_bytes()).unwrap();
        assert_eq!((words.lines().count(), words.lines().next()), (80, Some("120")));
        let wide = "x".repeat(5000);
        let words = termination_message(Some("FallbackToLogsOnError"), 1, None, wide.as_bytes()).unwrap();
        assert_eq!(words.len(), 2048);
    }

    #[test]
    fn containers_share_what_a_pod_may_say() {
        let long = "x".repeat(5000);
        assert_eq!(
            [1, 3, 4, 6].map(|count| shared_limit(&long, count).len()),
            [4096, 4096, 3072, 2048]
        );
    }
}
