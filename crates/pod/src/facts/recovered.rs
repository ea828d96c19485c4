//! Facts from what was published, for when nothing better is left.

use super::{ContainerFacts, Exit, PodFacts, State};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};

impl PodFacts {
    /// What the published status tells of a Pod of which nothing else is known, such as after the loss of a ledger. What was
    /// said to run is an end that nobody saw, unless its VM is found: then report it with [`ContainerFacts::running`].
    pub fn recovered(pod: &Pod, now: Timestamp) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let lists = [status.init_container_statuses, status.container_statuses];
        let addresses = |list: Vec<String>| list.iter().filter_map(|ip| ip.parse().ok()).collect();
        Self {
            started: status.start_time.map(|time| time.0),
            host_ips: addresses(status.host_ips.into_iter().flatten().map(|ip| ip.ip).collect()),
            pod_ips: addresses(status.pod_ips.into_iter().flatten().map(|ip| ip.ip).collect()),
            containers: lists
                .into_iter()
                .flatten()
                .flatten()
                .map(|status| (status.name.clone(), ContainerFacts::recovered(&status, now)))
                .collect(),
            ..Self::default()
        }
    }
}

impl ContainerFacts {
    fn recovered(status: &ContainerStatus, now: Timestamp) -> Self {
        let id = status.container_id.clone().unwrap_or_default();
        let exit = |state: &Option<ContainerState>| {
            let ended = state.as_ref()?.terminated.clone()?;
            Some(Exit {
                code: ended.exit_code,
                reason: ended.reason.unwrap_or_default(),
                message: ended.message,
                started: ended.started_at.map(|time| time.0),
                finished: ended.finished_at.map_or(now, |time| time.0),
                id: ended.container_id.unwrap_or_default(),
            })
        };
        let ran = status.state.as_ref().and_then(|state| state.running.clone());
        let unseen = ran.map(|ran| Exit {
            started: ran.started_at.map(|time| time.0),
            id,
            ..Exit::unseen(now)
        });
        Self {
            state: exit(&status.state).or(unseen).map_or(State::Absent, State::Exited),
            restarts: u32::try_from(status.restart_count).unwrap_or(0),
            last: exit(&status.last_state),
            image_id: Some(status.image_id.clone()).filter(|id| !id.is_empty()),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn what_was_published_can_be_read_back() {
        let mut pod = crate::testing::pod(serde_json::json!({"containers": [{"name": "a"}, {"name": "b"}]}));
        let mut facts = PodFacts {
            started: Some(at(1)),
            pod_ips: vec!["10.0.0.2".parse().unwrap()],
            ..PodFacts::default()
        };
        let known = facts.container_mut("a");
        known.begun(at(1));
        known.running("tart://x", at(5));
        known.exited(Exit::with_code(3, at(9)));
        known.begun(at(10));
        known.running("tart://y", at(11));
        pod.status = Some(crate::status::status(&pod, &facts, at(12)));
        let read = PodFacts::recovered(&pod, at(20));
        assert_eq!((read.started, &read.pod_ips), (facts.started, &facts.pod_ips));
        assert_eq!(
            (read.container("a").restarts, &read.container("a").last),
            (1, &facts.container("a").last)
        );
        let State::Exited(exit) = &read.container("a").state else {
            panic!("{read:?}")
        };
        assert_eq!(
            (exit.code, exit.started, exit.id.as_str()),
            (137, Some(at(11)), "tart://y")
        );
        assert_eq!(read.container("b"), &ContainerFacts::default());
    }
}
