//! The phase of a Pod.

use crate::facts::{PodFacts, Why};
use crate::spec::{self, Kind};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

/// The phase of a Pod, in the order in which they follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Something has not started yet.
    Pending,
    /// Something runs, or will again.
    Running,
    /// All is done.
    Succeeded,
    /// Something failed for good.
    Failed,
}

impl Phase {
    /// As in the API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// From the API.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Pending, Self::Running, Self::Succeeded, Self::Failed]
            .into_iter()
            .find(|phase| phase.word() == word)
    }

    /// Whether nothing comes after it.
    pub fn is_terminal(self) -> bool {
        self >= Self::Succeeded
    }
}

/// What one container adds to the phase.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Never started.
    Waiting,
    Running,
    /// Ended, and perhaps waits for its restart. With the last exit code.
    Stopped(i32),
}

fn part(status: &ContainerStatus) -> Part {
    let state = status.state.clone().unwrap_or_default();
    if state.running.is_some() {
        return Part::Running;
    }
    let ended = state
        .terminated
        .or_else(|| status.last_state.as_ref()?.terminated.clone());
    ended.map_or(Part::Waiting, |ended| Part::Stopped(ended.exit_code))
}

/// The phase that these statuses amount to. `over` says that nothing will be started again, whatever the policies say.
pub(super) fn of_statuses(
    pod: &Pod,
    facts: &PodFacts,
    inits: &[ContainerStatus],
    mains: &[ContainerStatus],
    over: bool,
) -> Phase {
    let find = |name: &str| inits.iter().chain(mains).find(|status| status.name == name);
    let (mut waiting, mut running, mut stopped, mut failed, mut restarting) = (0, 0, 0, 0, 0);
    let (mut init_pending, mut sidecar_pending) = (false, false);
    for (kind, container) in spec::containers(pod) {
        let part = find(&container.name).map_or(Part::Waiting, part);
        let replaced = facts.container(&container.name).replaced;
        let again = |code| !over && (replaced || spec::restarts(pod, kind, container, code));
        match (kind, part) {
            // A sidecar that ended will be started again while it is needed, and says nothing.
            (Kind::Init, Part::Stopped(0)) | (Kind::Sidecar, Part::Stopped(_)) => {}
            (Kind::Init, Part::Stopped(code)) if !again(code) => return Phase::Failed,
            (Kind::Init, _) => init_pending = true,
            (Kind::Sidecar, Part::Running) => {
                let up = find(&container.name).is_some_and(|status| status.started == Some(true));
                sidecar_pending |= !up;
                running += 1;
            }
            (Kind::Sidecar, Part::Waiting) => {
                sidecar_pending = true;
                waiting += 1;
            }
            (Kind::Main, Part::Running) => running += 1,
            (Kind::Main, Part::Waiting) => waiting += 1,
            (Kind::Main, Part::Stopped(code)) => {
                stopped += 1;
                failed += usize::from(code != 0);
                restarting += usize::from(again(code));
            }
        }
    }
    let initialized = mains.iter().any(|status| part(status) != Part::Waiting);
    if over && (init_pending || waiting > 0) {
        return Phase::Failed;
    }
    if init_pending || waiting > 0 || sidecar_pending && !initialized {
        return Phase::Pending;
    }
    match () {
        () if running > 0 || restarting > 0 => Phase::Running,
        () if stopped == 0 => Phase::Pending,
        () if failed == 0 => Phase::Succeeded,
        () => Phase::Failed,
    }
}

/// The phase to publish: never back, never terminal while something runs, and what ended the Pod from outside is a failure.
pub(super) fn published(pod: &Pod, facts: &PodFacts, computed: Phase, old: &PodStatus) -> Phase {
    let before = old.phase.as_deref().and_then(Phase::parse).unwrap_or(Phase::Pending);
    if before.is_terminal() {
        return before;
    }
    let ended_from_outside = facts.ending.as_ref().is_some_and(|ending| ending.why != Why::Deleted);
    let phase = if facts.live() > 0 {
        let started = spec::containers(pod)
            .any(|(kind, container)| kind == Kind::Main && facts.container(&container.name).was_begun());
        match computed {
            Phase::Succeeded | Phase::Failed if started => Phase::Running,
            Phase::Succeeded | Phase::Failed => Phase::Pending,
            Phase::Pending | Phase::Running => computed,
        }
    } else if ended_from_outside {
        Phase::Failed
    } else {
        computed
    };
    phase.max(before)
}
