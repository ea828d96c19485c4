//! What is written to a machine's status around an update.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use russet_api::apple_silicon_machine::ScalewayAppleSiliconMachineStatus;
use russet_api::conditions::reasons;

use super::host::Host;
use super::policy::Policy;

/// The fields of the status that a rollout owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// `hostConfigHash`.
    pub current: Option<String>,
    /// `failedHostConfigHash`.
    pub failed: Option<String>,
    /// `tartKubeletUpdateAttempts`.
    pub attempts: u32,
    /// `lastUpdateFailureTime`.
    pub last_failure: Option<Timestamp>,
    /// The host gives up: `failureReason`, `failureMessage`, phase Failed.
    pub gave_up: bool,
}

/// What the status should say now. Written whenever it differs: a failure that no longer counts is forgotten, whether or not
/// the next try may start yet.
pub fn marks(host: &Host, policy: &Policy, now: Timestamp) -> Marks {
    let kept = Marks {
        current: host.current.clone(),
        failed: host.failed.clone(),
        attempts: host.tries(policy),
        last_failure: host.last_failure,
        gave_up: host.gave_up,
    };
    if !host.is_failing() {
        return Marks {
            failed: None,
            attempts: 0,
            last_failure: None,
            gave_up: false,
            ..kept
        };
    }
    if host.gave_up && host.given_up_until(policy, now).is_none() {
        // The hash stays until an update succeeds: until then this host is one on which the configuration fails.
        return Marks {
            attempts: 0,
            gave_up: false,
            ..kept
        };
    }
    kept
}

/// After an update to `desired`, which is what the host should have had when the update started.
pub fn succeeded(desired: &str) -> Marks {
    Marks {
        current: Some(desired.to_owned()),
        failed: None,
        attempts: 0,
        last_failure: None,
        gave_up: false,
    }
}

/// After an update to `desired` that failed.
pub fn failed(host: &Host, desired: &str, policy: &Policy, now: Timestamp) -> Marks {
    let tried = Host {
        desired: desired.to_owned(),
        ..host.clone()
    };
    let before = marks(&tried, policy, now);
    let attempts = before.attempts.saturating_add(1);
    Marks {
        failed: Some(tried.desired),
        attempts,
        last_failure: Some(now),
        gave_up: policy.max_attempts > 0 && attempts >= policy.max_attempts,
        ..before
    }
}

impl Marks {
    /// Writes the marks. `message` says why the last try failed; it is used only when the host gives up. A failure of another
    /// kind is left alone.
    pub fn write(&self, status: &mut ScalewayAppleSiliconMachineStatus, message: &str) {
        status.host_config_hash.clone_from(&self.current);
        status.failed_host_config_hash.clone_from(&self.failed);
        let attempts = i32::try_from(self.attempts).unwrap_or(i32::MAX);
        status.tart_kubelet_update_attempts = (attempts > 0).then_some(attempts);
        status.last_update_failure_time = self.last_failure.map(Time);
        if self.gave_up {
            status.failure_reason = Some(reasons::apple_silicon::UPDATE_EXCEEDED_RETRIES.to_owned());
            status.failure_message = Some(message.to_owned());
        } else if status.failure_reason.as_deref() == Some(reasons::apple_silicon::UPDATE_EXCEEDED_RETRIES) {
            status.failure_reason = None;
            status.failure_message = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::host::Facts;
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn host(status: &ScalewayAppleSiliconMachineStatus, desired: &str) -> Host {
        Host::of("mac-1", desired, status, Facts::default())
    }

    /// The status of a host that failed so often with configuration `new`, each failure a minute after the other.
    fn after_failures(count: u32) -> ScalewayAppleSiliconMachineStatus {
        let mut status = ScalewayAppleSiliconMachineStatus {
            host_config_hash: Some("old".to_owned()),
            ..Default::default()
        };
        for _ in 0..count {
            let host = host(&status, "new");
            failed(&host, "new", &Policy::default(), now()).write(&mut status, "the host hung up");
        }
        status
    }

    #[test]
    fn a_host_gives_up_after_five_failures_and_says_why() {
        let status = after_failures(4);
        assert_eq!(
            (status.failure_reason, status.tart_kubelet_update_attempts),
            (None, Some(4))
        );
        let status = after_failures(5);
        assert_eq!(
            status.failure_reason.as_deref(),
            Some("TartKubeletUpdateExceededRetries")
        );
        assert_eq!(status.failure_message.as_deref(), Some("the host hung up"));
        assert_eq!(status.failed_host_config_hash.as_deref(), Some("new"));
        assert_eq!(status.host_config_hash.as_deref(), Some("old"));
    }

    #[test]
    fn giving_up_ends_after_a_while_or_when_no_time_is_known() {
        let mut status = after_failures(5);
        let policy = Policy::default();
        let until = host(&status, "new").given_up_until(&policy, now()).unwrap();
        assert_eq!(until.duration_since(now()).as_secs(), 1800);
        assert!(marks(&host(&status, "new"), &policy, now()).gave_up);
        marks(&host(&status, "new"), &policy, until).write(&mut status, "");
        assert_eq!((&status.failure_reason, &status.failure_message), (&None, &None));
        assert_eq!(host(&status, "new").tries(&policy), 0);
        assert!(host(&status, "new").is_failing());
        let mut status = after_failures(5);
        status.last_update_failure_time = None;
        assert_eq!(host(&status, "new").given_up_until(&policy, now()), None);
    }

    #[test]
    fn giving_up_ends_when_another_configuration_is_wanted() {
        let mut status = after_failures(5);
        let policy = Policy::default();
        assert_eq!(host(&status, "newer").given_up_until(&policy, now()), None);
        marks(&host(&status, "newer"), &policy, now()).write(&mut status, "");
        assert_eq!((status.failure_reason, status.failed_host_config_hash), (None, None));
        assert_eq!(
            (status.tart_kubelet_update_attempts, status.last_update_failure_time),
            (None, None)
        );
    }

    #[test]
    fn giving_up_ends_when_a_human_clears_it_and_five_more_tries_follow() {
        let policy = Policy::default();
        let mut status = after_failures(5);
        status.failure_reason = None;
        let cleared = host(&status, "new");
        assert_eq!(cleared.given_up_until(&policy, now()), None);
        assert_eq!(failed(&cleared, "new", &policy, now()).attempts, 1);
        let mut status = after_failures(5);
        status.failed_host_config_hash = None;
        assert_eq!(failed(&host(&status, "new"), "new", &policy, now()).attempts, 1);
    }

    /// Four failures with one configuration say nothing about the next.
    #[test]
    fn failures_with_another_configuration_do_not_count() {
        let status = after_failures(4);
        let marks = failed(&host(&status, "newer"), "newer", &Policy::default(), now());
        assert_eq!((marks.attempts, marks.gave_up), (1, false));
    }

    #[test]
    fn a_success_forgets_all_failures_and_only_its_own() {
        let mut status = after_failures(5);
        succeeded("new").write(&mut status, "");
        assert_eq!(status.host_config_hash.as_deref(), Some("new"));
        assert_eq!(
            (&status.failure_reason, &status.failed_host_config_hash),
            (&None, &None)
        );
        status.failure_reason = Some("SomethingElse".to_owned());
        succeeded("new").write(&mut status, "");
        assert_eq!(status.failure_reason.as_deref(), Some("SomethingElse"));
    }

    #[test]
    fn without_a_limit_a_host_never_gives_up() {
        let policy = Policy {
            max_attempts: 0,
            ..Policy::default()
        };
        let status = after_failures(4);
        assert!(!failed(&host(&status, "new"), "new", &policy, now()).gave_up);
    }

    #[test]
    fn a_failure_from_another_clocks_future_delays_nothing_beyond_its_time() {
        let mut status = after_failures(5);
        status.last_update_failure_time = Some(Time(now() + Duration::from_hours(48)));
        let until = host(&status, "new").given_up_until(&Policy::default(), now()).unwrap();
        assert_eq!(until.duration_since(now()).as_secs(), 1800);
    }
}
