//! What a run left behind: lines of `key value`, then the end of the failing step's output.

/// A run, as it described itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinReport {
    /// The step that runs, failed, or was the last.
    pub step: String,
    pub state: JoinState,
    /// End of the output of the step that failed, scrubbed.
    pub tail: String,
    /// [`super::Rendered::config_hash`] of the program, by which a report of an older one is told apart.
    pub config_hash: String,
    /// When this was written, in seconds since 1970 by the server's clock. A run that was killed stays `Running` forever.
    pub at: i64,
}

/// How a run is going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinState {
    Running,
    Done,
    Failed,
}

/// A report that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the join report cannot be read: {problem}; run the join program again to get a new one")]
pub struct Unreadable {
    problem: &'static str,
}

/// First line; the number changes with the format.
const MAGIC: &str = "tuist-join 1";
/// A server is not trusted to be brief.
const TAIL: usize = 8 * 1024;

/// Reads the content of [`super::STATUS`]. None if there was no run yet.
pub fn parse_report(text: &str) -> Result<Option<JoinReport>, Unreadable> {
    let unreadable = |problem| Unreadable { problem };
    if text.trim().is_empty() {
        return Ok(None);
    }
    let mut lines = text.lines();
    if lines.next() != Some(MAGIC) {
        return Err(unreadable("it does not begin as one"));
    }
    let (mut step, mut state, mut config_hash, mut at) = (None, None, None, None);
    let mut tail = String::new();
    for line in lines {
        if let Some(output) = line.strip_prefix("| ") {
            if tail.len() + output.len() < TAIL {
                tail.push_str(output);
                tail.push('\n');
            }
            continue;
        }
        match line.split_once(' ') {
            Some(("step", value)) => step = Some(value.to_owned()),
            Some(("state", "running")) => state = Some(JoinState::Running),
            Some(("state", "done")) => state = Some(JoinState::Done),
            Some(("state", "failed")) => state = Some(JoinState::Failed),
            Some(("state", _)) => return Err(unreadable("its state is unknown")),
            Some(("config", value)) => config_hash = Some(value.to_owned()),
            Some(("at", value)) => at = Some(value.parse().map_err(|_| unreadable("its time is no number"))?),
            // A later program may say more.
            _ => {}
        }
    }
    Ok(Some(JoinReport {
        step: step.ok_or_else(|| unreadable("it names no step"))?,
        state: state.ok_or_else(|| unreadable("it has no state"))?,
        tail,
        config_hash: config_hash.ok_or_else(|| unreadable("it names no configuration"))?,
        at: at.ok_or_else(|| unreadable("it has no time"))?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_run_names_its_step_and_shows_its_output() {
        let text = "tuist-join 1\nstate failed\nstep kubelet-package\nconfig abc\nat 1700000000\nmore to come\n| E: no\n| \n| line 3\n";
        let report = parse_report(text).unwrap().unwrap();
        assert_eq!(
            report,
            JoinReport {
                step: "kubelet-package".into(),
                state: JoinState::Failed,
                tail: "E: no\n\nline 3\n".into(),
                config_hash: "abc".into(),
                at: 1_700_000_000,
            }
        );
    }

    #[test]
    fn no_run_yet_is_not_an_error_and_a_broken_report_is() {
        assert_eq!(parse_report(" \n"), Ok(None));
        for text in [
            "hello",
            "tuist-join 2\nstate done\nstep a\nconfig b\nat 1",
            "tuist-join 1\nstep a\nconfig b\nat 1",
            "tuist-join 1\nstate done\nconfig b\nat 1",
            "tuist-join 1\nstate done\nstep a\nat 1",
            "tuist-join 1\nstate done\nstep a\nconfig b",
            "tuist-join 1\nstate asleep\nstep a\nconfig b\nat 1",
            "tuist-join 1\nstate done\nstep a\nconfig b\nat soon",
        ] {
            let error = parse_report(text).unwrap_err().to_string();
            assert!(error.contains("run the join program again"), "{text}: {error}");
        }
    }

    #[test]
    fn a_server_cannot_fill_our_memory_with_its_report() {
        let mut text = "tuist-join 1\nstate failed\nstep a\nconfig b\nat 1\n".to_owned();
        for _ in 0..100_000 {
            text.push_str("| noise\n");
        }
        assert!(parse_report(&text).unwrap().unwrap().tail.len() <= TAIL);
    }
}
