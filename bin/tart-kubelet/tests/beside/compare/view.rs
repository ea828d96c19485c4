//! What is told about a Pod at one moment, without what is different in every run: times, names, numbers and long texts.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};

/// What a status says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The phase, with the reason if there is one.
    pub(crate) phase: String,
    /// By type: the status, with the reason if there is one.
    pub(crate) conditions: BTreeMap<String, String>,
    /// Init containers and others, by name.
    pub(crate) containers: BTreeMap<String, Container>,
    /// There is no such Pod any more.
    pub(crate) gone: bool,
}

/// What a status says of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Container {
    pub(crate) state: String,
    pub(crate) last: String,
    /// The last words of the present instance.
    pub(crate) message: String,
    pub(crate) restarts: i32,
    pub(crate) ready: bool,
    pub(crate) started: bool,
}

impl View {
    pub(crate) fn of(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let lists = [status.init_container_statuses, status.container_statuses];
        let conditions = status.conditions.unwrap_or_default().into_iter();
        Self {
            phase: with(status.phase.unwrap_or_default(), status.reason.as_deref()),
            conditions: conditions
                .map(|condition| (condition.type_, with(condition.status, condition.reason.as_deref())))
                .collect(),
            containers: lists
                .into_iter()
                .flatten()
                .flatten()
                .map(|status| (status.name.clone(), Container::of(&status)))
                .collect(),
            gone: false,
        }
    }

    /// The last that is heard of a Pod.
    pub(crate) fn gone(pod: &Pod) -> Self {
        Self {
            gone: true,
            ..Self::of(pod)
        }
    }
}

impl Container {
    fn of(status: &ContainerStatus) -> Self {
        let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        let message = ended.and_then(|ended| ended.message.as_deref()).unwrap_or_default();
        Self {
            state: state(status.state.as_ref()),
            last: state(status.last_state.as_ref()),
            message: message.trim_end().to_owned(),
            restarts: status.restart_count,
            ready: status.ready,
            started: status.started == Some(true),
        }
    }
}

fn with(word: String, reason: Option<&str>) -> String {
    match reason {
        Some(reason) if !reason.is_empty() => format!("{word} ({reason})"),
        _ => word,
    }
}

fn state(state: Option<&ContainerState>) -> String {
    let Some(state) = state else { return String::new() };
    if let Some(waiting) = &state.waiting {
        return with("waiting".to_owned(), waiting.reason.as_deref());
    }
    if let Some(ended) = &state.terminated {
        return with(format!("ended {}", ended.exit_code), ended.reason.as_deref());
    }
    state
        .running
        .as_ref()
        .map_or_else(String::new, |_| "running".to_owned())
}

/// Each aspect of a Pod in the order in which it was told, as one line.
pub(crate) fn aspects(views: &[View]) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut tell = |aspect: String, value: String| {
        let told = found.entry(aspect).or_default();
        if told.last() != Some(&value) && !value.is_empty() {
            told.push(value);
        }
    };
    for view in views {
        tell("phase".to_owned(), view.phase.clone());
        if view.gone {
            tell("phase".to_owned(), "gone".to_owned());
        }
        for (kind, status) in &view.conditions {
            tell(kind.clone(), status.clone());
        }
        for (name, container) in &view.containers {
            tell(format!("{name}: state"), container.state.clone());
            tell(format!("{name}: last state"), container.last.clone());
            tell(format!("{name}: last words"), container.message.clone());
            tell(format!("{name}: restarts"), container.restarts.to_string());
            tell(format!("{name}: ready"), yes(container.ready));
            tell(format!("{name}: started"), yes(container.started));
        }
    }
    found
        .into_iter()
        .filter(|(_, told)| !told.is_empty())
        .map(|(aspect, told)| {
            let told = if aspect.ends_with(": state") {
                lasting(&told)
            } else {
                told
            };
            (aspect, told.join(" → "))
        })
        .collect()
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// Without ends that a restart followed at once: whether such a moment is written at all is chance, and it is told in the
/// last state anyway.
fn lasting(told: &[String]) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for (index, state) in told.iter().enumerate() {
        let over = state.starts_with("ended") && index + 1 < told.len();
        if !over && kept.last() != Some(state) {
            kept.push(state.clone());
        }
    }
    kept
}

pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    fn view(status: &serde_json::Value) -> View {
        View::of(&serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap())
    }

    fn with_state(state: &serde_json::Value, restarts: i32) -> View {
        view(&json!({"phase": "Running", "containerStatuses": [{
            "name": "main", "image": "i", "imageID": "", "ready": state.get("running").is_some(),
            "restartCount": restarts, "state": state,
        }]}))
    }

    pub(crate) fn an_aspect_is_told_once_for_as_long_as_it_stays() {
        let pending = view(&json!({"phase": "Pending"}));
        let failed = view(&json!({"phase": "Failed", "reason": "Evicted"}));
        let mut gone = failed.clone();
        gone.gone = true;
        let told = aspects(&[pending.clone(), pending, failed, gone]);
        assert_eq!(told["phase"], "Pending → Failed (Evicted) → gone");
    }

    pub(crate) fn an_end_that_a_restart_followed_is_told_by_the_last_state_only() {
        let running = json!({"running": {}});
        let ended = json!({"terminated": {"exitCode": 3, "reason": "Error"}});
        let again = [
            with_state(&running, 0),
            with_state(&ended, 0),
            with_state(&running, 1),
            with_state(&ended, 1),
        ];
        let told = aspects(&again);
        assert_eq!(told["main: state"], "running → ended 3 (Error)");
        assert_eq!(told["main: restarts"], "0 → 1");
        assert_eq!(told["main: ready"], "yes → no → yes → no");
    }
}
