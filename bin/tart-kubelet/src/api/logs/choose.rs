//! Which start of a container a caller means, by the rules of a stock kubelet.
//!
//! | asked for | shown |
//! | --- | --- |
//! | the one before | `lastState.terminated` |
//! | the present one | the one that runs, else the one that ended, else `lastState.terminated` |
//!
//! What the API server has of the Pod may be a moment old, so what its VM does right now goes before it.

use kube::ResourceExt as _;
use russet_kubelet_api::{ContainerRef, Refusal};
use russet_pod::facts::reasons;
use russet_vm::{PodVm, VmName};

use crate::api::status;
use crate::pods::directory::{Instance, Shown};
use crate::pods::machine::Life;

/// The VM of the start that is meant.
pub(super) fn choose(shown: &Shown, wanted: &ContainerRef, previous: bool) -> Result<PodVm, Refusal> {
    let Starts { present, last, waits } = Starts::of(shown, &wanted.container);
    let (pod, container) = (wanted.pod.name.clone(), wanted.container.clone());
    if previous {
        return last.ok_or(Refusal::NoPrevious { pod, container });
    }
    present.or(last).ok_or(match waits {
        Some(reason) => Refusal::Waiting {
            pod,
            container,
            reason: in_words(reason),
        },
        None => Refusal::NotAvailable { pod, container },
    })
}

/// Some reasons have words of their own, which tools match on.
fn in_words(reason: String) -> String {
    match reason.as_str() {
        reasons::ERR_PULL => "image can't be pulled".to_owned(),
        reasons::PULL_BACK_OFF => "trying and failing to pull image".to_owned(),
        _ => reason,
    }
}

/// What is known of the starts of a container.
struct Starts {
    /// The one that runs, or has ended and is not started again.
    present: Option<PodVm>,
    /// The one before.
    last: Option<PodVm>,
    /// Why it does not run.
    waits: Option<String>,
}

impl Starts {
    fn of(shown: &Shown, container: &str) -> Self {
        let uid = shown.pod.uid().unwrap_or_default();
        let named = |id: Option<&String>| match VmName::parse(id?.strip_prefix("tart://")?)? {
            // Whoever may write the status of a Pod could name the VM of another one there.
            VmName::Pod(vm) if vm.uid() == uid && vm.container() == container => Some(vm),
            _ => None,
        };
        let status = status(&shown.pod, container);
        let state = status.and_then(|status| status.state.as_ref());
        let ran = state
            .and_then(|state| state.running.as_ref())
            .and(status)
            .and_then(|status| named(status.container_id.as_ref()));
        let ended = state.and_then(|state| named(state.terminated.as_ref()?.container_id.as_ref()));
        let last =
            status.and_then(|status| named(status.last_state.as_ref()?.terminated.as_ref()?.container_id.as_ref()));
        let told = Self {
            present: ran.or(ended),
            last,
            waits: state.and_then(|state| state.waiting.as_ref()?.reason.clone()),
        };
        match shown.instances.get(container) {
            Some(instance) => told.beside(instance),
            None => told,
        }
    }

    /// The same with what the VM does, which is newer.
    fn beside(self, instance: &Instance) -> Self {
        let Self { present, last, waits } = self;
        // The agent has just begun to look at it, and its Pod ran before.
        let known = present.as_ref() == Some(&instance.vm);
        let begun = known || matches!(&*instance.life.borrow(), Life::Running { .. } | Life::Ended { .. });
        let before = [present, last].into_iter().flatten();
        Self {
            last: before
                .filter(|vm| vm.attempt() < instance.vm.attempt())
                .max_by_key(PodVm::attempt),
            waits: waits.or_else(|| Some(reasons::CREATING.to_owned())),
            present: begun.then(|| instance.vm.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ending;
    use jiff::Timestamp;
    use russet_kubelet_api::PodRef;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use tokio::sync::watch;

    const UID: &str = "0b5d7f3c";

    fn vm(attempt: u32) -> PodVm {
        PodVm::new("ci", "job", "main", UID, attempt).unwrap()
    }

    fn id(attempt: u32) -> String {
        format!("tart://{}", vm(attempt))
    }

    fn ended(attempt: u32) -> Value {
        json!({"terminated": {"exitCode": 1, "containerID": id(attempt)}})
    }

    fn waiting(reason: &str) -> Value {
        json!({"waiting": {"reason": reason}})
    }

    /// A Pod with this state, the one before, and a VM.
    fn shown(state: &Value, last: &Value, attempt: Option<u32>, live: Option<(u32, Life)>) -> Shown {
        let pod = json!({
            "metadata": {"name": "job", "namespace": "ci", "uid": UID},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"containerStatuses": [{
                "name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": state, "lastState": last, "containerID": attempt.map(id),
            }]},
        });
        let instance = live.map(|(attempt, life)| Instance {
            vm: vm(attempt),
            life: watch::channel(life).1,
        });
        Shown {
            pod: Arc::new(serde_json::from_value(pod).unwrap()),
            instances: instance
                .map(|instance| ("main".to_owned(), instance))
                .into_iter()
                .collect(),
        }
    }

    /// The number of the start that is shown, or why none is.
    fn asked(shown: &Shown, previous: bool) -> Result<u32, String> {
        let wanted = ContainerRef {
            pod: PodRef {
                namespace: "ci".to_owned(),
                name: "job".to_owned(),
                uid: None,
            },
            container: "main".to_owned(),
        };
        choose(shown, &wanted, previous)
            .map(|vm| vm.attempt())
            .map_err(|refusal| refusal.to_string())
    }

    const RUNNING: Life = Life::Running {
        since: Timestamp::UNIX_EPOCH,
        address: None,
    };

    fn over() -> Life {
        Life::Ended {
            ending: Ending::exited(1, Timestamp::UNIX_EPOCH),
            gone: false,
            address: None,
        }
    }

    const NO_PREVIOUS: &str = "previous terminated container \"main\" in pod \"job\" not found";

    /// After its first crash `kubectl logs --previous` found nothing: the newest start was taken for the present one, although it
    /// was the one that had ended and the next had not begun.
    #[test]
    fn a_container_that_waits_for_its_restart_shows_the_start_that_ended() {
        let waits = shown(&waiting("CrashLoopBackOff"), &ended(0), Some(0), None);
        assert_eq!((asked(&waits, false), asked(&waits, true)), (Ok(0), Ok(0)));
        let again = shown(
            &waiting("ContainerCreating"),
            &ended(0),
            Some(0),
            Some((1, Life::Making(None))),
        );
        assert_eq!((asked(&again, false), asked(&again, true)), (Ok(0), Ok(0)));
    }

    /// A VM takes a while to boot, and meanwhile its container had an empty log, as if it had nothing to say.
    #[test]
    fn a_container_that_never_ran_says_what_it_waits_for() {
        let text = |reason: &str| {
            let refusal = format!("container \"main\" in pod \"job\" is waiting to start: {reason}");
            (Err::<u32, _>(refusal), Err::<u32, _>(NO_PREVIOUS.to_owned()))
        };
        for (reason, words) in [
            ("ContainerCreating", "ContainerCreating"),
            ("PodInitializing", "PodInitializing"),
            ("ErrImagePull", "image can't be pulled"),
            ("ImagePullBackOff", "trying and failing to pull image"),
        ] {
            let waits = shown(&waiting(reason), &json!({}), None, None);
            assert_eq!((asked(&waits, false), asked(&waits, true)), text(words));
        }
        // Nobody has heard of its VM yet.
        let boots = shown(&json!({}), &json!({}), None, Some((0, Life::Making(None))));
        assert_eq!((asked(&boots, false), asked(&boots, true)), text("ContainerCreating"));
        let unknown = shown(&json!({}), &json!({}), None, None);
        let refusal = "container \"main\" in pod \"job\" is not available";
        assert_eq!(asked(&unknown, false), Err(refusal.to_owned()));
    }

    #[test]
    fn a_container_shows_the_start_that_runs_or_else_the_one_that_ended() {
        let running = json!({"running": {}});
        let runs = shown(&running, &ended(0), Some(1), Some((1, RUNNING)));
        assert_eq!((asked(&runs, false), asked(&runs, true)), (Ok(1), Ok(0)));
        let first = shown(&running, &json!({}), Some(0), Some((0, RUNNING)));
        assert_eq!(
            (asked(&first, false), asked(&first, true)),
            (Ok(0), Err(NO_PREVIOUS.to_owned()))
        );
        let done = shown(&ended(1), &ended(0), Some(1), None);
        assert_eq!((asked(&done, false), asked(&done, true)), (Ok(1), Ok(0)));
        // One that was cut off before it had a name.
        let nameless = shown(&json!({"terminated": {"exitCode": 137}}), &ended(3), None, None);
        assert_eq!(asked(&nameless, false), Ok(3));
    }

    #[test]
    fn what_a_vm_does_goes_before_what_was_published() {
        let stale = json!({"running": {}});
        let ended_since = shown(&stale, &json!({}), Some(0), Some((0, over())));
        assert_eq!(
            (asked(&ended_since, false), asked(&ended_since, true)),
            (Ok(0), Err(NO_PREVIOUS.to_owned()))
        );
        let restarted = shown(&stale, &json!({}), Some(0), Some((1, RUNNING)));
        assert_eq!((asked(&restarted, false), asked(&restarted, true)), (Ok(1), Ok(0)));
        // An agent that has just come back knows less than what was published.
        let adopted = shown(&stale, &ended(0), Some(1), Some((1, Life::Making(None))));
        assert_eq!((asked(&adopted, false), asked(&adopted, true)), (Ok(1), Ok(0)));
    }

    #[test]
    fn the_vm_of_another_pod_is_nobodys_start() {
        let other = PodVm::new("ci", "job", "main", "ffffffff", 0).unwrap();
        for id in [format!("tart://{other}"), "docker://x".to_owned(), String::new()] {
            let forged = json!({"terminated": {"exitCode": 0, "containerID": id}});
            let shown = shown(&forged, &forged, None, None);
            assert!(asked(&shown, false).is_err() && asked(&shown, true).is_err());
        }
    }
}
