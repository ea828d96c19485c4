//! The status of a Pod, as a function of its spec and the facts.
//!
//! Written by the rules of the v1.35 kubelet: a phase never goes back; a terminal one is published only when nothing runs any
//! more; a condition keeps its time while it keeps its status; conditions of others are left alone. [`patch`] says what has
//! to be sent, which most of the time is nothing.

mod conditions;
mod containers;
mod message;
mod patch;
mod phase;
#[cfg(test)]
mod tests;

pub use message::termination_message;
pub use patch::{hurries, patch};
pub use phase::Phase;

use crate::admit::qos_class;
use crate::facts::{PodFacts, Why};
use crate::time::stored;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodStatus};

/// Reason and words of an end that came from outside.
fn verdict(why: &Why) -> Option<(&'static str, String)> {
    match why {
        Why::Deleted => None,
        Why::DeadlineExceeded => Some((
            "DeadlineExceeded",
            "Pod was active on the node longer than the specified deadline".to_owned(),
        )),
        Why::Evicted { message } | Why::Exceeded { message } => Some(("Evicted", message.clone())),
    }
}

/// The status of a Pod that this node has taken on. `pod.status` is what was published before.
pub fn status(pod: &Pod, facts: &PodFacts, now: Timestamp) -> PodStatus {
    let old = pod.status.clone().unwrap_or_default();
    let over = facts.ending.is_some() && facts.live() == 0;
    let (mut inits, mut mains) = containers::statuses(pod, facts, now);
    let outgrown = containers::keep_resources(facts, &old, &mut inits, &mut mains);
    if over {
        containers::settle(pod, facts, &mut inits, &mut mains);
    }
    let phase = phase::published(pod, facts, phase::of_statuses(pod, facts, &inits, &mains, over), &old);
    let verdict = facts.ending.as_ref().and_then(|ending| verdict(&ending.why));
    // Once over, the words stay with the phase they were published with.
    let (reason, message) = match verdict.filter(|_| phase == Phase::Failed) {
        Some((reason, message)) => (Some(reason.to_owned()), Some(message)),
        None if old.phase.as_deref() == Some(phase.word()) => (old.reason.clone(), old.message.clone()),
        None => (None, None),
    };
    let pod_ips: Vec<_> = facts.pod_ips.iter().map(|ip| PodIP { ip: ip.to_string() }).collect();
    let host_ips: Vec<_> = facts.host_ips.iter().map(|ip| HostIP { ip: ip.to_string() }).collect();
    let mut status = PodStatus {
        phase: Some(phase.word().to_owned()),
        reason,
        message,
        start_time: facts.started.map(stored).or(old.start_time.clone()),
        host_ip: host_ips.first().map(|ip| ip.ip.clone()),
        host_ips: some(host_ips),
        pod_ip: pod_ips.first().map(|ip| ip.ip.clone()),
        pod_ips: some(pod_ips),
        qos_class: old.qos_class.clone().or_else(|| Some(qos_class(pod).to_owned())),
        observed_generation: pod.metadata.generation,
        init_container_statuses: some(inits),
        container_statuses: some(mains),
        ephemeral_container_statuses: some(containers::ephemeral(pod)),
        ..PodStatus::default()
    };
    let mut told = conditions::told(pod, facts, &status, phase, &old);
    if !outgrown.is_empty() && !phase.is_terminal() {
        told.push(conditions::resize_refused(&outgrown));
    }
    status.conditions = Some(conditions::dated(told, pod.metadata.generation, &old, now));
    status
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
