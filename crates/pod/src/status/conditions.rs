//! The conditions of a Pod.

use super::{Phase, verdict};
use crate::facts::{PodFacts, Why};
use crate::spec::{self, Kind};
use crate::time::stored;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};

pub(super) struct Told {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Told {
    fn yes(kind: &'static str) -> Self {
        Self {
            kind,
            holds: true,
            reason: None,
            message: None,
        }
    }

    fn no(kind: &'static str, reason: &'static str, message: Option<String>) -> Self {
        Self {
            kind,
            holds: false,
            reason: Some(reason),
            message,
        }
    }
}

/// A condition that we alone set, and take off again.
const RESIZE: &str = "PodResizePending";

/// Our conditions in the order of a stock kubelet.
pub(super) fn told(pod: &Pod, facts: &PodFacts, status: &PodStatus, phase: Phase, old: &PodStatus) -> Vec<Told> {
    let old = old.conditions.as_deref().unwrap_or_default();
    let containers_ready = containers_ready(pod, status, phase);
    let mut told = vec![
        ready_to_start(facts, phase),
        initialized(pod, status, phase),
        ready(pod, &containers_ready, old),
        containers_ready,
        Told::yes("PodScheduled"),
    ];
    if let Some(ending) = facts
        .ending
        .as_ref()
        .filter(|ending| matches!(ending.why, Why::Evicted { .. }))
    {
        told.push(Told {
            kind: "DisruptionTarget",
            holds: true,
            reason: Some("TerminationByKubelet"),
            message: verdict(&ending.why).map(|(_, message)| message),
        });
    }
    told
}

/// What is said to somebody who resizes a VM that runs.
pub(super) fn resize_refused(containers: &[String]) -> Told {
    let names = containers.join(" ");
    Told {
        kind: RESIZE,
        holds: true,
        reason: Some("Infeasible"),
        message: Some(format!(
            "a VM cannot be resized while it runs; it will be when it is restarted: [{names}]"
        )),
    }
}

/// Ours with their times, then those of others as they are.
pub(super) fn dated(told: Vec<Told>, generation: Option<i64>, old: &PodStatus, now: Timestamp) -> Vec<PodCondition> {
    let old = old.conditions.as_deref().unwrap_or_default();
    let ours: Vec<_> = told
        .into_iter()
        .map(|told| condition(told, generation, old, now))
        .collect();
    let is_foreign = |other: &&PodCondition| other.type_ != RESIZE && ours.iter().all(|own| own.type_ != other.type_);
    let foreign: Vec<_> = old.iter().filter(is_foreign).cloned().collect();
    ours.into_iter().chain(foreign).collect()
}

fn condition(told: Told, generation: Option<i64>, old: &[PodCondition], now: Timestamp) -> PodCondition {
    let status = if told.holds { "True" } else { "False" };
    let before = old
        .iter()
        .find(|before| before.type_ == told.kind && before.status == status);
    PodCondition {
        type_: told.kind.to_owned(),
        status: status.to_owned(),
        reason: told.reason.map(str::to_owned),
        message: told.message,
        observed_generation: generation,
        last_transition_time: before
            .and_then(|before| before.last_transition_time.clone())
            .or_else(|| Some(stored(now))),
        last_probe_time: None,
    }
}

fn ready_to_start(facts: &PodFacts, phase: Phase) -> Told {
    let kind = "PodReadyToStartContainers";
    if facts.prepared && !phase.is_terminal() {
        return Told::yes(kind);
    }
    Told {
        kind,
        holds: false,
        reason: None,
        message: None,
    }
}

fn find<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    lists.into_iter().flatten().flatten().find(|status| status.name == name)
}

fn listed(what: &str, names: &[&str]) -> String {
    format!("containers with {what} status: [{}]", names.join(" "))
}

fn initialized(pod: &Pod, status: &PodStatus, phase: Phase) -> Told {
    let kind = "Initialized";
    if phase == Phase::Succeeded {
        return Told {
            reason: Some("PodCompleted"),
            ..Told::yes(kind)
        };
    }
    let main_seen = status.container_statuses.iter().flatten().any(|status| {
        let ran =
            |state: &k8s_openapi::api::core::v1::ContainerState| state.running.is_some() || state.terminated.is_some();
        status.state.as_ref().is_some_and(ran) || status.last_state.as_ref().is_some_and(ran)
    });
    let incomplete: Vec<_> = spec::containers(pod)
        .filter(|(kind, container)| {
            let Some(status) = find(status, &container.name) else {
                return *kind != Kind::Main;
            };
            match kind {
                Kind::Main => false,
                Kind::Init => !status.ready,
                Kind::Sidecar => status.started != Some(true),
            }
        })
        .map(|(_, container)| container.name.as_str())
        .collect();
    if main_seen || incomplete.is_empty() {
        return Told::yes(kind);
    }
    Told::no(
        kind,
        "ContainersNotInitialized",
        Some(listed("incomplete", &incomplete)),
    )
}

fn containers_ready(pod: &Pod, status: &PodStatus, phase: Phase) -> Told {
    let kind = "ContainersReady";
    match phase {
        Phase::Succeeded => return Told::no(kind, "PodCompleted", None),
        Phase::Failed => return Told::no(kind, "PodFailed", None),
        Phase::Pending | Phase::Running => {}
    }
    let unready: Vec<_> = spec::containers(pod)
        .filter(|(kind, container)| *kind != Kind::Init && !find(status, &container.name).is_some_and(|s| s.ready))
        .map(|(_, container)| container.name.as_str())
        .collect();
    if unready.is_empty() {
        return Told::yes(kind);
    }
    Told::no(kind, "ContainersNotReady", Some(listed("unready", &unready)))
}

fn ready(pod: &Pod, containers: &Told, all: &[PodCondition]) -> Told {
    let kind = "Ready";
    if !containers.holds {
        return Told {
            kind,
            holds: false,
            reason: containers.reason,
            message: containers.message.clone(),
        };
    }
    let gates = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.readiness_gates.as_deref())
        .unwrap_or_default();
    let closed: Vec<_> = gates
        .iter()
        .filter_map(|gate| {
            let gate = &gate.condition_type;
            match all.iter().find(|condition| condition.type_ == *gate) {
                None => Some(format!(
                    "corresponding condition of pod readiness gate \"{gate}\" does not exist."
                )),
                Some(condition) if condition.status != "True" => Some(format!(
                    "the status of pod readiness gate \"{gate}\" is not \"True\", but {}",
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if closed.is_empty() {
        return Told::yes(kind);
    }
    Told::no(kind, "ReadinessGatesNotReady", Some(closed.join(", ")))
}
