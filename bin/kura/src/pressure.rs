//! Memory pressure: how close the process is to its limit, and what is given up at each state.
//!
//! ```text
//! normal ──used ≥ soft──► constrained ──used ≥ hard──► critical       back again below nine tenths of the bound
//! ```
//! | State | What is given up |
//! | --- | --- |
//! | normal | nothing |
//! | constrained | background checks of stored bytes rest; nobody waits for the budget, who does not fit is told 503 at once |
//! | critical | besides, bodies that would be streamed are refused with 503; small ones, reads and probes go on |
//!
//! What counts is memory the kernel cannot take back: the page cache is ours to fill and the kernel's to empty.

use crate::budget::{LimitSource, MemoryLimit};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// How often memory is looked at.
pub const EVERY: Duration = Duration::from_millis(200);

/// How close the limit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum State {
    /// Far.
    #[value(alias = "0")]
    Normal = 0,
    /// Near: what can wait waits.
    #[value(alias = "1")]
    Constrained = 1,
    /// Reached: what is large is refused.
    #[value(alias = "2")]
    Critical = 2,
}

/// From which use on a state holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Bounds {
    /// Constrained.
    pub soft: u64,
    /// Critical.
    pub hard: u64,
}

impl Bounds {
    /// What was asked for, else 60 % and 85 % of the limit.
    pub fn new(limit: u64, soft: Option<u64>, hard: Option<u64>) -> Self {
        let hard = hard.unwrap_or(limit / 100 * 85).min(limit);
        let soft = soft.unwrap_or(limit / 100 * 60).min(hard);
        Self { soft, hard }
    }

    /// The state after `used` bytes were seen. A state is left only when well below its bound, so that it does not flap.
    pub fn next(self, state: State, used: u64) -> State {
        let below = |bound: u64| used < bound / 10 * 9;
        if used >= self.hard || (state == State::Critical && !below(self.hard)) {
            State::Critical
        } else if used >= self.soft || (state >= State::Constrained && !below(self.soft)) {
            State::Constrained
        } else {
            State::Normal
        }
    }
}

/// The pressure now. Asked for every upload, so it is one relaxed load.
#[derive(Debug)]
pub struct Pressure {
    state: AtomicU8,
    bounds: Bounds,
    forced: Option<State>,
    used: AtomicU64,
    transitions: AtomicU64,
    refused: AtomicU64,
    paused: AtomicU64,
}

impl Pressure {
    /// Normal, until something else is measured or forced.
    pub fn new(bounds: Bounds, forced: Option<State>) -> Self {
        Self {
            state: AtomicU8::new(forced.unwrap_or(State::Normal) as u8),
            bounds,
            forced,
            used: AtomicU64::new(0),
            transitions: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            paused: AtomicU64::new(0),
        }
    }

    /// The state.
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            0 => State::Normal,
            1 => State::Constrained,
            _ => State::Critical,
        }
    }

    /// The bounds in force.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Takes note of a measurement.
    pub fn observe(&self, used: u64) {
        self.used.store(used, Ordering::Relaxed);
        let before = self.state();
        let after = self.forced.unwrap_or_else(|| self.bounds.next(before, used));
        if after != before {
            self.state.store(after as u8, Ordering::Relaxed);
            self.transitions.fetch_add(1, Ordering::Relaxed);
            tracing::info!(from = ?before, to = ?after, used, ?self.bounds, "memory pressure changed");
        }
    }

    /// Whether a body that would be streamed is refused; counted if so.
    pub fn refuses_streams(&self) -> bool {
        let refuses = self.state() == State::Critical;
        if refuses {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        refuses
    }

    /// Whether background work rests; counted if so.
    pub fn pauses_background(&self) -> bool {
        let pauses = self.state() >= State::Constrained;
        if pauses {
            self.paused.fetch_add(1, Ordering::Relaxed);
        }
        pauses
    }

    /// Bytes seen last.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How often the state changed.
    pub fn transitions(&self) -> u64 {
        self.transitions.load(Ordering::Relaxed)
    }

    /// What was done about it, by name.
    pub fn actions(&self) -> [(&'static str, u64); 2] {
        [
            ("refuse_upload", self.refused.load(Ordering::Relaxed)),
            ("pause_scrub", self.paused.load(Ordering::Relaxed)),
        ]
    }
}

/// Where memory in use is read.
#[derive(Debug, Clone)]
pub enum Meter {
    /// `memory.stat` of the cgroup whose limit holds.
    Cgroup(PathBuf),
    /// The process alone.
    Process(PathBuf),
}

impl Meter {
    /// The meter that belongs to a limit, below `root` (`/` in earnest).
    pub fn of(limit: &MemoryLimit, root: &Path) -> Self {
        match (limit.source, &limit.cgroup) {
            (LimitSource::CgroupV2, Some(dir)) => Self::Cgroup(dir.join("memory.stat")),
            _ => Self::Process(root.join("proc/self/status")),
        }
    }

    /// Bytes that cannot be taken back; `None` where nothing tells.
    pub fn read(&self) -> Option<u64> {
        match self {
            Self::Cgroup(path) => {
                const COUNTED: [&str; 6] = [
                    "anon",
                    "shmem",
                    "sock",
                    "slab_unreclaimable",
                    "kernel_stack",
                    "pagetables",
                ];
                let text = std::fs::read_to_string(path).ok()?;
                let fields = text.lines().filter_map(|line| line.split_once(' '));
                let counted = fields.filter(|(name, _)| COUNTED.contains(name));
                Some(counted.filter_map(|(_, value)| value.trim().parse::<u64>().ok()).sum())
            }
            Self::Process(path) => {
                let text = std::fs::read_to_string(path).ok()?;
                let own = Process::parse(&text);
                Some(own.anonymous + own.shared)
            }
        }
    }
}

/// What the kernel says about the process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Process {
    /// In memory.
    pub resident: u64,
    /// Of that, its own.
    pub anonymous: u64,
    /// Of that, pages of files.
    pub file: u64,
    /// Of that, shared memory.
    pub shared: u64,
    /// Address space.
    pub virtual_size: u64,
}

impl Process {
    /// Now; zeros where the kernel does not tell.
    pub fn now() -> Self {
        std::fs::read_to_string("/proc/self/status")
            .map(|text| Self::parse(&text))
            .unwrap_or_default()
    }

    fn parse(text: &str) -> Self {
        let mut process = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let slot = match name {
                "VmRSS" => &mut process.resident,
                "RssAnon" => &mut process.anonymous,
                "RssFile" => &mut process.file,
                "RssShmem" => &mut process.shared,
                "VmSize" => &mut process.virtual_size,
                _ => continue,
            };
            let number = value
                .trim()
                .strip_suffix(" kB")
                .and_then(|number| number.parse::<u64>().ok());
            *slot = number.unwrap_or(0) * 1024;
        }
        process
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { soft: 600, hard: 850 };

    #[test]
    fn a_state_is_entered_at_its_bound_and_left_well_below_it() {
        for (state, used, next) in [
            (State::Normal, 599, State::Normal),
            (State::Normal, 600, State::Constrained),
            (State::Normal, 850, State::Critical),
            (State::Constrained, 541, State::Constrained),
            (State::Constrained, 539, State::Normal),
            (State::Critical, 766, State::Critical),
            (State::Critical, 764, State::Constrained),
            (State::Critical, 10, State::Normal),
        ] {
            assert_eq!(BOUNDS.next(state, used), next, "{state:?} {used}");
        }
    }

    #[test]
    fn bounds_follow_the_limit_unless_given() {
        assert_eq!(Bounds::new(1000, None, None), BOUNDS);
        let given = Bounds::new(1000, Some(9999), Some(500));
        assert_eq!(given, Bounds { soft: 500, hard: 500 });
    }

    #[test]
    fn what_was_done_is_counted_and_a_forced_state_stays() {
        let pressure = Pressure::new(BOUNDS, None);
        assert!(!pressure.refuses_streams() && !pressure.pauses_background());
        pressure.observe(900);
        assert!(pressure.refuses_streams() && pressure.pauses_background());
        assert_eq!((pressure.transitions(), pressure.actions()[0].1), (1, 1));
        let forced = Pressure::new(BOUNDS, Some(State::Constrained));
        forced.observe(0);
        assert_eq!(forced.state(), State::Constrained);
    }

    #[test]
    fn only_what_cannot_be_taken_back_counts() {
        let dir = tempfile::tempdir().unwrap();
        let stat = dir.path().join("memory.stat");
        let text = "anon 100\nfile 5000\nsock 7\nslab 90\nslab_unreclaimable 3\ninactive_file 4\n";
        std::fs::write(&stat, text).unwrap();
        assert_eq!(Meter::Cgroup(stat).read(), Some(110));
        let status = dir.path().join("status");
        let resident = "RssAnon:\t 20 kB\nRssFile:\t 9 kB\nRssShmem:\t 1 kB\n";
        std::fs::write(
            &status,
            format!("Name:\tx\nVmSize:\t 900 kB\nVmRSS:\t 30 kB\n{resident}"),
        )
        .unwrap();
        assert_eq!(Meter::Process(status).read(), Some(21 * 1024));
    }
}
