//! What is told of a Pod in events, in the words of a kubelet, and each thing once.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use russet_pod::facts::reasons;
use russet_pod::spec;

use super::Worker;

/// What was told last, so that it is not told again and again: by reason and container.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeMap<(String, String), (u32, String)>);

impl Told {
    /// Whether this is something else than was told last. What is true of an instance of a container is news of the next one. The
    /// count of restarts tells them apart: a start that fails is tried again and again, and is no other instance.
    fn is_news(&mut self, reason: &str, container: &str, restarts: u32, message: &str) -> bool {
        let told = (restarts, message.to_owned());
        let before = self.0.insert((reason.to_owned(), container.to_owned()), told.clone());
        before.as_ref() != Some(&told)
    }
}

/// Whether somebody should look at it.
fn kind(reason: &str, message: &str) -> &'static str {
    match reason {
        "Killing" | "Created" | "Started" | "Pulled" | "Pulling" => "Normal",
        // That it failed was told as a warning.
        "BackOff" if message.starts_with("Back-off pulling") => "Normal",
        _ => "Warning",
    }
}

/// The containers that wait before they are tried again, and what a kubelet says of each.
pub(super) fn back_offs(pod: &Pod, status: &PodStatus) -> Vec<(String, String)> {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let waits = lists.into_iter().flatten().flatten().filter_map(|container| {
        let name = container.name.clone();
        let reason = container.state.as_ref()?.waiting.as_ref()?.reason.as_deref()?;
        let message = match reason {
            reasons::CRASH_LOOP => format!(
                "Back-off restarting failed container {name} in pod {}",
                spec::described(pod)
            ),
            reasons::PULL_BACK_OFF => format!("Back-off pulling image \"{}\"", container.image),
            _ => return None,
        };
        Some((name, message))
    });
    waits.collect()
}

impl Worker {
    /// An event of the Pod, unless it was the last one of its kind.
    pub(super) fn tell_once(&mut self, reason: &str, message: &str) {
        if self.told.is_news(reason, "", 0, message) {
            self.host.server.tell(&self.pod, kind(reason, message), reason, message);
        }
    }

    /// The same of the present instance of a container.
    pub(super) fn tell_of(&mut self, container: &str, reason: &str, message: &str) {
        let restarts = self.kept.record.facts.container(container).restarts;
        if self.told.is_news(reason, container, restarts, message) {
            self.host.server.tell(&self.pod, kind(reason, message), reason, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `Created container: main` was told of the first start and of no restart, since the words are the same.
    #[test]
    fn what_is_true_of_a_restart_is_told_again_and_what_fails_again_is_not() {
        let mut told = Told::default();
        assert!(told.is_news("Created", "main", 0, "Created container: main"));
        assert!(told.is_news("Created", "side", 0, "Created container: side"));
        assert!(!told.is_news("Created", "main", 0, "Created container: main"));
        assert!(told.is_news("Created", "main", 1, "Created container: main"));
        assert!(told.is_news("Failed", "main", 1, "no room"));
        assert!(!told.is_news("Failed", "main", 1, "no room"));
        assert!(told.is_news("Failed", "main", 1, "no image"));
    }

    #[test]
    fn a_container_that_waits_to_be_tried_again_is_told_in_the_words_of_a_kubelet() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "job", "namespace": "ci", "uid": "0b5d"},
        }))
        .unwrap();
        let container = |name: &str, reason: &str| {
            json!({
                "name": name, "image": "ghcr.io/acme/mac:v1", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason}},
            })
        };
        let status = serde_json::from_value(json!({
            "initContainerStatuses": [container("a", "ImagePullBackOff"), container("b", "ErrImagePull")],
            "containerStatuses": [container("c", "CrashLoopBackOff"), container("d", "ContainerCreating")],
        }))
        .unwrap();
        let said = back_offs(&pod, &status);
        let said: Vec<_> = said
            .iter()
            .map(|(name, message)| (name.as_str(), message.as_str(), kind("BackOff", message)))
            .collect();
        assert_eq!(
            said,
            [
                ("a", "Back-off pulling image \"ghcr.io/acme/mac:v1\"", "Normal"),
                (
                    "c",
                    "Back-off restarting failed container c in pod job_ci(0b5d)",
                    "Warning"
                ),
            ]
        );
    }
}
