//! Arithmetic with times that cannot overflow, and durations as Go prints them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;

/// `at` plus `by`, or the end of time.
pub(crate) fn after(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// How long it is from `now` to `at`; nothing if that has passed.
pub(crate) fn left(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

/// Seconds of a spec, where what is missing or negative counts as nothing.
pub(crate) fn seconds(value: i64) -> Duration {
    Duration::from_secs(u64::try_from(value).unwrap_or(0))
}

/// As the API server keeps it: whole seconds. A finer one would differ from what was stored, for ever.
pub(crate) fn stored(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// A duration as kubelets print it: `10s`, `1m20s`, `5m0s`.
pub(crate) fn in_words(duration: Duration) -> String {
    let all = duration.as_secs();
    let (hours, minutes, seconds) = (all / 3600, all / 60 % 60, all % 60);
    match (hours, minutes) {
        (0, 0) if seconds == 0 && !duration.is_zero() => format!("{}ms", duration.as_millis()),
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_those_of_a_kubelet() {
        let words = [10, 20, 40, 80, 160, 300, 3661].map(|seconds| in_words(Duration::from_secs(seconds)));
        assert_eq!(words, ["10s", "20s", "40s", "1m20s", "2m40s", "5m0s", "1h1m1s"]);
        assert_eq!(in_words(Duration::from_millis(500)), "500ms");
    }

    #[test]
    fn time_that_has_passed_is_none_left() {
        let now = Timestamp::from_second(100).unwrap();
        assert_eq!(left(now, after(now, Duration::from_secs(5))), Duration::from_secs(5));
        assert_eq!(left(now, Timestamp::UNIX_EPOCH), Duration::ZERO);
        assert_eq!(after(now, Duration::MAX), Timestamp::MAX);
    }
}
