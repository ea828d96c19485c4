//! What changed between two states of a run, in words. Pure: both views and the log of a detached run say the same.

use crate::state::run::{Part, PartState, Run, Step};
use crate::table::Tone;

/// One thing worth telling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    pub name: String,
    pub text: String,
    pub tone: Tone,
}

/// Everything that happened from `before` (nothing at first) to `after`, steps first.
pub fn between(before: Option<&Run>, after: &Run) -> Vec<News> {
    let mut news = Vec::new();
    for step in &after.steps {
        let old = before.and_then(|run| run.steps.iter().find(|old| old.name == step.name));
        news.extend(step_news(old, step));
    }
    for part in &after.parts {
        let old = before.and_then(|run| run.parts.iter().find(|old| old.name == part.name));
        news.extend(part_news(old, part));
    }
    news
}

fn step_news(old: Option<&Step>, new: &Step) -> Option<News> {
    let say = |text: String, tone| {
        Some(News {
            name: new.name.clone(),
            text,
            tone,
        })
    };
    match (old.map(|step| step.seconds.is_some()), new.seconds) {
        (None, None) => say("…".to_owned(), Tone::Plain),
        (None | Some(false), Some(seconds)) => say(
            format!("{} ({seconds:.1} s)", new.outcome.as_deref().unwrap_or("done")),
            Tone::Good,
        ),
        (Some(_), _) => None,
    }
}

fn part_news(old: Option<&Part>, new: &Part) -> Option<News> {
    let say = |text: String, tone| {
        Some(News {
            name: new.name.clone(),
            text,
            tone,
        })
    };
    let why = new
        .last_exit
        .as_ref()
        .map(|exit| format!(" ({exit})"))
        .unwrap_or_default();
    let after = new
        .ready_after_seconds
        .map(|seconds| format!(" after {seconds:.1} s"))
        .unwrap_or_default();
    let restarted = new.restarts > old.map_or(0, |part| part.restarts);
    let same_state = old.is_some_and(|part| part.state == new.state);
    match new.state {
        // A restart seen only when it was over, since both happened between two looks.
        PartState::Running if restarted && same_state => {
            say(format!("ended{why}; runs again (restart {})", new.restarts), Tone::Warn)
        }
        PartState::Starting if restarted => say(format!("starting again (restart {})", new.restarts), Tone::Warn),
        _ if same_state => None,
        PartState::Starting => say("starting".to_owned(), Tone::Plain),
        PartState::Running if new.restarts > 0 => {
            say(format!("runs again{after} (restart {})", new.restarts), Tone::Good)
        }
        PartState::Running => say(format!("ready{after}"), Tone::Good),
        PartState::BackingOff => say(format!("ended{why}; it will be started again"), Tone::Bad),
        PartState::Failed => say(format!("failed{why}; see `russet logs {}`", new.name), Tone::Bad),
        PartState::Stopped => say("stopped".to_owned(), Tone::Plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::run::Phase;

    fn part(state: PartState, restarts: u32) -> Part {
        Part {
            name: "etcd".into(),
            state,
            pid: Some(1),
            restarts,
            started_at: None,
            ready_after_seconds: (state == PartState::Running).then_some(1.24),
            last_exit: (restarts > 0 || state == PartState::BackingOff).then(|| "signal 9 (SIGKILL)".to_owned()),
            address: None,
            log: "/x".into(),
        }
    }

    fn run(parts: Vec<Part>, steps: Vec<Step>) -> Run {
        Run {
            pid: 1,
            russet: "0.1.0".into(),
            started_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            phase: Phase::Ready,
            ready_after_seconds: None,
            server: None,
            kubeconfig: None,
            cluster_api: true,
            parts,
            steps,
        }
    }

    /// Tells the story of one part through its states.
    fn story(states: &[(PartState, u32)]) -> String {
        let mut before = None;
        let mut lines = Vec::new();
        for (state, restarts) in states {
            let after = run(vec![part(*state, *restarts)], vec![]);
            lines.extend(
                between(before.as_ref(), &after)
                    .into_iter()
                    .map(|news| format!("{}: {}", news.name, news.text)),
            );
            before = Some(after);
        }
        lines.join("\n")
    }

    use PartState::{BackingOff, Failed, Running, Starting, Stopped};

    #[test]
    fn a_part_that_is_killed_and_comes_back_is_told_step_by_step() {
        insta::assert_snapshot!(story(&[(Starting, 0), (Running, 0), (Running, 0), (BackingOff, 0), (Starting, 1), (Running, 1), (Stopped, 1)]), @r"
        etcd: starting
        etcd: ready after 1.2 s
        etcd: ended (signal 9 (SIGKILL)); it will be started again
        etcd: starting again (restart 1)
        etcd: runs again after 1.2 s (restart 1)
        etcd: stopped
        ");
    }

    #[test]
    fn a_restart_between_two_looks_is_not_missed() {
        insta::assert_snapshot!(story(&[(Running, 0), (Running, 1)]), @r"
        etcd: ready after 1.2 s
        etcd: ended (signal 9 (SIGKILL)); runs again (restart 1)
        ");
    }

    #[test]
    fn a_failure_points_to_the_log() {
        insta::assert_snapshot!(story(&[(Starting, 0), (Failed, 0)]), @r"
        etcd: starting
        etcd: failed; see `russet logs etcd`
        ");
    }

    #[test]
    fn a_step_is_told_twice_and_only_twice() {
        let step = |seconds: Option<f64>| Step {
            name: "CRD chart".into(),
            seconds,
            outcome: seconds.map(|_| "installed".to_owned()),
        };
        let (a, b) = (run(vec![], vec![step(None)]), run(vec![], vec![step(Some(2.0))]));
        assert_eq!(between(None, &a).len(), 1);
        assert_eq!(between(Some(&a), &b).first().unwrap().text, "installed (2.0 s)");
        assert_eq!(between(Some(&b), &b), []);
    }
}
