//! Which test program starts next. Most of our tests wait for a cluster, an emulator or a deadline, so programs run side by side until
//! the processors they are known to take are taken; the long ones come first, since one that starts last would be waited for alone.

/// What is known of a program from earlier runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// Seconds from start to end.
    pub(crate) wall: f64,
    /// Seconds of processor, children included.
    pub(crate) processor: f64,
}

impl Cost {
    /// Of a program that was never run.
    pub(crate) const UNKNOWN: Self = Self {
        wall: 30.0,
        processor: 30.0,
    };

    /// How many processors it keeps busy. At least a fifth: a program that only waits still holds memory, ports and a cluster.
    fn load(self) -> f64 {
        (self.processor / self.wall.max(0.1)).max(0.2)
    }
}

/// How many programs may run at once. What they took is known from runs in which others stood beside them, so that each seems to need less
/// of the processors than it does: five at once made a queue of thirty processes, in which deadlines ran out.
const AT_ONCE: usize = 3;

/// The position of the program to start beside those that run, or `None` to wait for one of them.
pub(crate) fn next(waiting: &[Cost], running: &[Cost], processors: f64) -> Option<usize> {
    if running.len() >= AT_ONCE {
        return None;
    }
    let taken: f64 = running.iter().map(|cost| cost.load()).sum();
    let fits = |cost: &Cost| running.is_empty() || taken + cost.load() <= processors;
    let fitting = waiting.iter().enumerate().filter(|(_, cost)| fits(cost));
    fitting
        .max_by(|(_, left), (_, right)| left.wall.total_cmp(&right.wall))
        .map(|(position, _)| position)
}

/// How long each test took. A harness starts its tests in order, `threads` at once, and tells only when one ends, so the start of each
/// is the end of the one that made room for it.
pub(crate) fn durations(order: &[String], threads: usize, ended: &[(String, f64)]) -> Vec<(String, f64)> {
    let mut waiting = order.iter();
    let mut started: Vec<(&str, f64)> = waiting
        .by_ref()
        .take(threads)
        .map(|name| (name.as_str(), 0.0))
        .collect();
    let mut durations = Vec::new();
    for (name, at) in ended {
        let Some(position) = started.iter().position(|(running, _)| running == name) else {
            continue;
        };
        let (_, start) = started.swap_remove(position);
        durations.push((name.clone(), at - start));
        started.extend(waiting.next().map(|name| (name.as_str(), *at)));
    }
    durations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(wall: f64, processor: f64) -> Cost {
        Cost { wall, processor }
    }

    #[test]
    fn the_longest_program_that_fits_beside_those_that_run_is_next() {
        let waiting = [cost(10.0, 2.0), cost(300.0, 540.0), cost(200.0, 60.0)];
        assert_eq!(next(&waiting, &[], 2.0), Some(1));
        assert_eq!(next(&waiting, &[cost(400.0, 400.0)], 2.0), Some(2));
    }

    #[test]
    fn a_program_waits_while_the_processors_are_taken() {
        assert_eq!(next(&[cost(10.0, 10.0)], &[cost(400.0, 700.0)], 2.0), None);
    }

    #[test]
    fn a_program_that_takes_more_than_there_is_runs_alone() {
        assert_eq!(next(&[cost(10.0, 80.0)], &[], 2.0), Some(0));
    }

    #[test]
    fn programs_that_only_wait_are_not_all_started_at_once() {
        let idle = cost(100.0, 0.0);
        assert_eq!(next(&[idle], &[idle; AT_ONCE], 16.0), None);
    }

    #[test]
    fn a_test_began_when_the_one_before_it_made_room() {
        let order = ["a", "b", "c", "d"].map(str::to_owned);
        let ended = [("b", 1.0), ("c", 4.0), ("a", 9.0), ("d", 9.5)].map(|(name, at)| (name.to_owned(), at));
        let took = durations(&order, 2, &ended);
        let expected = [("b", 1.0), ("c", 3.0), ("a", 9.0), ("d", 5.5)].map(|(name, took)| (name.to_owned(), took));
        assert_eq!(took, expected);
    }
}
