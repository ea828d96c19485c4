//! What a fleet must not do all at once.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// Some time between half of this and all of it, another one each time: a fleet that came back with its API server would otherwise do
/// everything at the same moment, again and again.
pub fn spread(period: Duration) -> Duration {
    let dice = RandomState::new().build_hasher().finish();
    let share = u32::try_from(dice % 1024).unwrap_or_default();
    period / 2 + period * share / 2048
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_fleet_spreads_over_half_of_the_period() {
        let period = Duration::from_secs(290);
        let times: BTreeSet<Duration> = (0..1000).map(|_| spread(period)).collect();
        assert!(times.iter().all(|time| (period / 2..period).contains(time)));
        assert!(times.len() > 300, "{} times for a thousand", times.len());
        let sooner = times.iter().filter(|time| **time < period * 3 / 4).count();
        assert!((times.len() / 4..times.len() * 3 / 4).contains(&sooner), "{sooner}");
    }
}
