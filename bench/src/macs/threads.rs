//! The processor time of some threads of this process.

use std::time::Duration;

/// What the threads of this name used so far. A thread that ended is not counted: those that are measured must not end.
pub(super) fn used(name: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks
        .filter(|task| {
            let comm = std::fs::read_to_string(task.path().join("comm"));
            comm.is_ok_and(|comm| comm.trim_end() == name)
        })
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| nanoseconds(&text))
        .sum()
}

/// The first number: time on a processor.
fn nanoseconds(schedstat: &str) -> Option<Duration> {
    let first = schedstat.split_whitespace().next()?;
    first.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_of_that_name_are_counted() {
        assert_eq!(nanoseconds("12345 6 7\n"), Some(Duration::from_nanos(12_345)));
        assert_eq!(nanoseconds(""), None);
        let busy = std::thread::Builder::new()
            .name("busy".to_owned())
            .spawn(|| {
                // Until the clock of this thread says that it worked.
                while used("busy") < Duration::from_millis(20) {
                    std::hint::spin_loop();
                }
                used("busy")
            })
            .unwrap();
        assert!(busy.join().unwrap() >= Duration::from_millis(20));
        assert_eq!(used("no such thread"), Duration::ZERO);
    }
}
