//! Programs for a host, and what they answer.
//!
//! A program is one text for `bash -s`: the prelude, then functions made of the steps' resources. It may hold secrets and is
//! therefore one itself; only its output is looked at, line by line, and only lines that begin with a mark mean anything.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use russet_telemetry::Secret;

use super::artifact::Artifact;
use super::step::Step;

const PRELUDE: &str = include_str!("prelude.sh");
/// Begins the lines that are for us.
const MARK: &str = "@@ ";
/// Begins the lines about uploads.
const BLOB: &str = "@@blob ";
/// Exit status of a change that has to wait; the prelude has it too.
pub(super) const HELD: u32 = 75;
/// Told at the end of a survey: without it the survey was cut.
const END: &str = "@@end";

/// What a survey found out about a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// As it should be.
    Same,
    /// Not as it should be.
    Drift,
    /// Not as it should be, and it has to wait; why.
    Held(String),
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    pub(super) findings: BTreeMap<String, Finding>,
    /// Bytes of each upload that are there already.
    pub(super) blobs: BTreeMap<String, u64>,
}

fn functions(step: &Step, user: &str) -> String {
    // A step may want nothing, and bash wants a command.
    let mut text = format!("check_{}() {{\n:\n", step.function());
    for resource in &step.resources {
        let _ = writeln!(text, "{} || return", resource.check(user));
    }
    text.push_str("}\n");
    text
}

/// How long programs wait for launchd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For so long a new process has to stay before it counts.
    pub settle: Duration,
    /// Between two looks.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(5),
            pause: Duration::from_secs(1),
        }
    }
}

impl Patience {
    fn prelude(self) -> String {
        let (settle, pause) = (self.settle.as_secs_f32(), self.pause.as_secs_f32());
        // As many pauses as other things get.
        let join = (self.pause * 60).as_secs().max(1);
        format!("SETTLE={settle}\nPAUSE={pause}\nJOIN={join}s\n{PRELUDE}")
    }
}

/// Looks at all of a host at once.
pub(super) fn survey(steps: &[Step], user: &str, patience: Patience) -> Secret<String> {
    let mut text = patience.prelude();
    for step in steps {
        text.push_str(&functions(step, user));
    }
    text.push_str("main() {\n");
    for step in steps {
        let _ = writeln!(text, "survey {}", step.function());
        for artifact in artifacts(step) {
            let sha = artifact.sha();
            let _ = writeln!(text, "say \"{BLOB}{sha} $(blob_bytes {sha})\"");
        }
    }
    let _ = writeln!(text, "say {END}\n}}\nmain </dev/null");
    Secret::new(text)
}

/// Makes one step so, and looks again.
pub(super) fn change(step: &Step, user: &str, patience: Patience) -> Secret<String> {
    let mut text = patience.prelude();
    text.push_str(&functions(step, user));
    text.push_str("main() {\nlock\n");
    for resource in &step.resources {
        // What is so already is left alone: a step may be long, and most of it unchanged. What has to wait is left alone too.
        let _ = writeln!(
            text,
            "{{ {} ; }} || {{ [ $? != \"$HELD\" ] || exit \"$HELD\"\n{}\n}} || exit 1",
            resource.check(user),
            resource.change(user)
        );
    }
    let name = step.function();
    let _ = writeln!(
        text,
        "check_{name} || {{ [ $? != \"$HELD\" ] || exit \"$HELD\"\nfail 'it was changed, and is still not as it should be'\n}}\n\
         say \"{MARK}{name} ok\"\n}}\nmain </dev/null"
    );
    Secret::new(text)
}

/// What a step uploads.
pub(super) fn artifacts(step: &Step) -> impl Iterator<Item = &Artifact> {
    step.resources.iter().filter_map(|resource| resource.artifact())
}

/// Reads what a survey said; none if it was cut.
pub(super) fn read(output: &str) -> Option<Survey> {
    let mut survey = Survey::default();
    let mut ended = false;
    for line in output.lines() {
        if line == END {
            ended = true;
        } else if let Some(rest) = line.strip_prefix(BLOB) {
            let (sha, bytes) = rest.split_once(' ')?;
            survey.blobs.insert(sha.to_owned(), bytes.trim().parse().ok()?);
        } else if let Some(rest) = line.strip_prefix(MARK) {
            let (name, rest) = rest.split_once(' ')?;
            let finding = match rest.split_once(' ').unwrap_or((rest, "")) {
                ("ok", _) => Finding::Same,
                ("drift", _) => Finding::Drift,
                ("held", why) => Finding::Held(why.to_owned()),
                _ => return None,
            };
            survey.findings.insert(name.to_owned(), finding);
        }
    }
    ended.then_some(survey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survey_is_read_only_when_it_is_whole() {
        let text = "noise\n@@ sudo ok\n@@ agent drift\n@@ tart held 2 virtual machines run\n@@blob ab 12\n@@end\n";
        let survey = read(text).unwrap();
        assert_eq!(survey.findings["sudo"], Finding::Same);
        assert_eq!(survey.findings["agent"], Finding::Drift);
        assert_eq!(
            survey.findings["tart"],
            Finding::Held("2 virtual machines run".to_owned())
        );
        assert_eq!(survey.blobs["ab"], 12);
        for end in 0..text.len() - 1 {
            assert_eq!(read(&text[..end]), None, "{end}");
        }
    }
}
