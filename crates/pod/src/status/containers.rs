//! The statuses of containers.

use super::message::shared_limit;
use crate::backoff;
use crate::facts::{Exit, PodFacts, State, Stuck, reasons};
use crate::lifecycle::is_started;
use crate::spec::{self, Kind};
use crate::time::stored;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    Pod, PodStatus,
};

/// Init containers and main ones, each in the order of the spec.
pub(super) fn statuses(pod: &Pod, facts: &PodFacts, now: Timestamp) -> (Vec<ContainerStatus>, Vec<ContainerStatus>) {
    let (mut inits, mut mains) = (Vec::new(), Vec::new());
    let count = spec::containers(pod).count();
    for (kind, container) in spec::containers(pod) {
        let status = one(pod, kind, container, facts, count, now);
        if kind == Kind::Main {
            mains.push(status);
        } else {
            inits.push(status);
        }
    }
    (inits, mains)
}

fn one(
    pod: &Pod,
    kind: Kind,
    container: &Container,
    facts: &PodFacts,
    count: usize,
    now: Timestamp,
) -> ContainerStatus {
    let known = facts.container(&container.name);
    let state = state(pod, kind, container, facts, count, now);
    let started = is_started(container, known);
    let ready = match kind {
        Kind::Init => matches!(&known.state, State::Exited(exit) if exit.code == 0),
        _ => started && (container.readiness_probe.is_none() || known.readiness_passed),
    };
    // While it waits for its restart, the end it waits after is the last state.
    let last = match &known.state {
        State::Exited(exit) if state.terminated.is_none() => Some(exit),
        _ => known.last.as_ref(),
    };
    let id = match &known.state {
        State::Running { id, .. } => Some(id.clone()),
        State::Exited(exit) => Some(exit.id.clone()),
        _ => last.map(|exit| exit.id.clone()),
    };
    let resources = container.resources.clone();
    ContainerStatus {
        name: container.name.clone(),
        image: known.image.clone().or(container.image.clone()).unwrap_or_default(),
        image_id: known.image_id.clone().unwrap_or_default(),
        container_id: id.filter(|id| !id.is_empty()),
        ready,
        started: Some(started),
        restart_count: i32::try_from(known.restarts).unwrap_or(i32::MAX),
        last_state: Some(last.map(|exit| ended(exit, count)).unwrap_or_default()),
        state: Some(state),
        allocated_resources: resources.as_ref().and_then(|resources| resources.requests.clone()),
        resources,
        ..ContainerStatus::default()
    }
}

fn state(
    pod: &Pod,
    kind: Kind,
    container: &Container,
    facts: &PodFacts,
    count: usize,
    now: Timestamp,
) -> ContainerState {
    let known = facts.container(&container.name);
    if let (State::Starting { .. }, Some(before)) = (&known.state, &known.before) {
        return stuck_state(pod, container, before);
    }
    match &known.state {
        State::Running { since, .. } => ContainerState {
            running: Some(ContainerStateRunning {
                started_at: Some(stored(*since)),
            }),
            ..ContainerState::default()
        },
        State::Exited(exit) => {
            let again = facts.ending.is_none() && spec::restarts(pod, kind, container, exit.code);
            match known.crash.after_exit(exit.finished, now) {
                Some(_) if again && !known.replaced => {
                    let pod = spec::described(pod);
                    let message = backoff::crash_message(known.crash.wait(), &container.name, &pod);
                    waiting(reasons::CRASH_LOOP, Some(message))
                }
                _ => ended(exit, count),
            }
        }
        State::Stuck(stuck) => stuck_state(pod, container, stuck),
        // A VM takes a while to come up again, so a restart shows that it is under way, with the end before it as last state.
        State::Absent | State::Starting { .. } if known.last.is_some() => {
            waiting(reasons::CREATING, known.note.clone())
        }
        State::Absent | State::Starting { .. } => waiting(default_reason(pod), known.note.clone()),
    }
}

/// A failed pull is told first as what happened, then as what is waited for, as a stock kubelet does.
fn stuck_state(pod: &Pod, container: &Container, stuck: &Stuck) -> ContainerState {
    let lists = pod
        .status
        .as_ref()
        .map(|old| [&old.init_container_statuses, &old.container_statuses]);
    let published = lists.into_iter().flatten().flatten().flatten();
    let mut told = published.filter(|status| status.name == container.name);
    let told = told
        .find_map(|status| status.state.as_ref()?.waiting.clone())
        .unwrap_or_default();
    let back_off = backoff::pull_message(container.image.as_deref().unwrap_or_default(), &stuck.message);
    let is = |reason: &str, message: &str| {
        told.reason.as_deref() == Some(reason) && told.message.as_deref() == Some(message)
    };
    let known = is(reasons::ERR_PULL, &stuck.message) || is(reasons::PULL_BACK_OFF, &back_off);
    if stuck.reason == reasons::ERR_PULL && known {
        return waiting(reasons::PULL_BACK_OFF, Some(back_off));
    }
    waiting(&stuck.reason, Some(stuck.message.clone()))
}

fn default_reason(pod: &Pod) -> &'static str {
    let first = spec::containers(pod).next();
    if first.is_some_and(|(kind, _)| kind != Kind::Main) {
        reasons::INITIALIZING
    } else {
        reasons::CREATING
    }
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.to_owned()),
            message,
        }),
        ..ContainerState::default()
    }
}

fn ended(exit: &Exit, count: usize) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(exit.id.clone()).filter(|id| !id.is_empty()),
            exit_code: exit.code,
            reason: Some(exit.reason.clone()),
            message: exit.message.as_deref().map(|message| shared_limit(message, count)),
            started_at: exit.started.map(stored),
            finished_at: Some(stored(exit.finished)),
            signal: None,
        }),
        ..ContainerState::default()
    }
}

/// A VM keeps what it was started with. Where the spec has come to say something else, the status goes on to say what is
/// true; returns the names of those containers.
pub(super) fn keep_resources(
    facts: &PodFacts,
    old: &PodStatus,
    inits: &mut [ContainerStatus],
    mains: &mut [ContainerStatus],
) -> Vec<String> {
    let lists = [&old.init_container_statuses, &old.container_statuses];
    let published: Vec<_> = lists.into_iter().flatten().flatten().collect();
    let mut outgrown = Vec::new();
    for status in inits.iter_mut().chain(mains) {
        let before = published.iter().find(|before| before.name == status.name);
        let same = before.filter(|before| {
            facts.container(&status.name).state.is_live() && before.restart_count == status.restart_count
        });
        let Some(given) = same.and_then(|before| before.resources.clone()) else {
            continue;
        };
        if status.resources.as_ref() != Some(&given) {
            outgrown.push(status.name.clone());
            status.allocated_resources.clone_from(&given.requests);
            status.resources = Some(given);
        }
    }
    outgrown
}

/// A Pod that was ended has no containers that wait: those whose turn had come and that never came to run are failures. The
/// turn of the first one has always come.
pub(super) fn settle(pod: &Pod, facts: &PodFacts, inits: &mut [ContainerStatus], mains: &mut [ContainerStatus]) {
    let known = |name: &str| facts.container(name);
    let begun = mains.iter().any(|status| known(&status.name).was_begun());
    let ending = facts.ending.as_ref().map(|ending| ending.since);
    let in_time = |exit: &Exit| ending.is_none_or(|since| exit.finished <= since);
    let last_passed = spec::containers(pod)
        .rfind(|(kind, _)| *kind != Kind::Main)
        .is_none_or(|(kind, last)| {
            let known = known(&last.name);
            match kind {
                Kind::Sidecar => is_started(last, known),
                // One that was told to end has not made way for what comes after it, however well it took that.
                _ => matches!(&known.state, State::Exited(exit) if exit.code == 0 && in_time(exit)),
            }
        });
    let initialized = begun || last_passed;
    let reached = inits
        .iter()
        .rposition(|status| known(&status.name).was_begun())
        .map_or(1, |index| index + 1);
    let of_mains = mains.iter_mut().filter(|_| initialized);
    for status in inits.iter_mut().take(reached).chain(of_mains) {
        let known = facts.container(&status.name);
        let terminated = status.state.as_ref().is_some_and(|state| state.terminated.is_some());
        if !terminated {
            let at = facts.ending.as_ref().map(|ending| ending.since).unwrap_or_default();
            let mut state = ended(&Exit::unseen(at), 1);
            if let Some(terminated) = &mut state.terminated {
                terminated.finished_at = None;
            }
            status.state = Some(known.last.as_ref().map_or(state, |exit| ended(exit, 1)));
        }
    }
}

/// Containers that were added to look into the Pod: a VM has no place for them.
pub(super) fn ephemeral(pod: &Pod) -> Vec<ContainerStatus> {
    let spec = pod.spec.as_ref();
    let all = spec
        .and_then(|spec| spec.ephemeral_containers.as_deref())
        .unwrap_or_default();
    all.iter()
        .map(|container| ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            state: Some(waiting(
                reasons::CREATE,
                Some("a container cannot be added to a VM that runs; use kubectl exec".to_owned()),
            )),
            last_state: Some(ContainerState::default()),
            ..ContainerStatus::default()
        })
        .collect()
}
