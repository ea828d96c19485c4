//! One job: a state machine without a clock, processes or files. Times are seconds of launchd, counted from anywhere.
//!
//! ```text
//!             load, kickstart        ends, to be restarted
//!   Idle ───────────▶ Starting ──▶ Running ───────▶ Scheduled ──(throttle)──▶ Starting
//!    ▲                    │           │ bootout, kickstart -k
//!    └── ends, not ◀──────┴───────────┼──▶ Terminating ──(exit timeout)──▶ killed
//!        restarted                    └──── the label stays until it is drained, then the job is gone
//! ```

use super::spec::Spec;
use crate::macos::orders::Ending;
use crate::macos::tree::Identity;

const TERM: i32 = 15;
const KILL: i32 = 9;
/// Starts that fail for the configuration, in a row, before launchd puts a job aside. [facts 1.4; the number is a guess]
const CONFIG_FAILURES: u32 = 3;
/// The longest pause between two starts. [facts 1.4]
const LONGEST_PAUSE: f64 = 1200.0;
/// How long a label stays after its process ended. [facts 1.2 says about 5 s in all; this part of it is a guess]
const DRAIN: f64 = 1.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum State {
    Idle,
    /// Waits for its time.
    Scheduled,
    /// Told to start, no process yet.
    Starting,
    Running {
        pid: i32,
    },
    Terminating {
        pid: i32,
        killed: bool,
    },
    /// Booted out; the label stays for a moment.
    Draining,
}

/// How it ended last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastExit {
    Never,
    Code(i32),
    Signal(i32),
    /// Killed for its signature.
    CodeSigning,
}

/// What has to be done outside.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Effect {
    Start,
    Signal {
        pid: i32,
        group: bool,
        signal: i32,
    },
    After {
        seconds: f64,
        timer: Timer,
    },
    /// The job is gone.
    Remove,
}

/// Says what to do later, unless the job has moved on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    Start(u64),
    Kill(u64),
    Interval,
    Drained,
}

/// A job that is loaded.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) spec: Spec,
    /// The property list it came from.
    pub(crate) path: String,
    /// Tells two jobs with the same label apart.
    pub(crate) serial: u64,
    pub(crate) state: State,
    pub(crate) runs: u32,
    pub(crate) last_exit: LastExit,
    pub(crate) penalty_box: bool,
    /// Part of macOS: no process of ours.
    pub(crate) built_in: bool,
    /// The code hash it may run, if launchd holds one.
    pub(crate) pinned: Option<String>,
    pub(crate) needs_new_pin: bool,
    /// Background Task Management has had enough of it: nothing restarts it any more. [facts 1.5]
    pub(crate) loses_keep_alive: bool,
    /// The file its process executes.
    pub(crate) executing: Option<Identity>,
    launched_at: Option<f64>,
    fast_ends: u32,
    config_failures: u32,
    restart: bool,
    leaving: bool,
    epoch: u64,
    /// The next end is for the signature, whatever the signal says.
    doomed: bool,
}

impl Job {
    pub(crate) fn new(spec: Spec, path: String, serial: u64) -> Self {
        Self {
            spec,
            path,
            serial,
            state: State::Idle,
            runs: 0,
            last_exit: LastExit::Never,
            penalty_box: false,
            built_in: false,
            pinned: None,
            needs_new_pin: false,
            loses_keep_alive: false,
            executing: None,
            launched_at: None,
            fast_ends: 0,
            config_failures: 0,
            restart: false,
            leaving: false,
            epoch: 0,
            doomed: false,
        }
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        match self.state {
            State::Running { pid } | State::Terminating { pid, .. } => Some(pid),
            _ => None,
        }
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// How long it has to run to be started again at once.
    pub(crate) fn minimum_runtime(&self) -> u64 {
        let doublings = self.fast_ends.saturating_sub(1).min(20);
        (self.spec.throttle << doublings).min(1200).max(self.spec.throttle)
    }

    /// Right after bootstrap.
    pub(crate) fn loaded(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let keeps = self.spec.keep_alive != super::spec::KeepAlive::Never;
        if self.spec.run_at_load || keeps {
            self.state = State::Starting;
            effects.push(Effect::Start);
        }
        if let Some(seconds) = self.spec.start_interval {
            effects.push(after(seconds, Timer::Interval));
        }
        effects
    }

    /// A process came of it. Returns nothing to do, unless it was booted out meanwhile.
    pub(crate) fn started(&mut self, pid: i32, now: f64) -> Vec<Effect> {
        self.runs += 1;
        self.launched_at = Some(now);
        self.state = State::Running { pid };
        self.epoch += 1;
        if self.leaving || self.restart {
            self.terminate()
        } else {
            Vec::new()
        }
    }

    /// There is no process, because of the configuration. (78, `EX_CONFIG`)
    pub(crate) fn misconfigured(&mut self, now: f64) -> Vec<Effect> {
        self.runs += 1;
        self.launched_at = Some(now);
        self.config_failures += 1;
        if self.config_failures >= CONFIG_FAILURES {
            self.penalty_box = true;
        }
        self.over(LastExit::Code(78), now)
    }

    /// The kernel killed it at its first instruction.
    pub(crate) fn killed_at_start(&mut self, now: f64) -> Vec<Effect> {
        self.runs += 1;
        self.launched_at = Some(now);
        self.over(LastExit::CodeSigning, now)
    }

    /// The next end is told as one for the signature.
    pub(crate) fn doom(&mut self) {
        self.doomed = true;
    }

    /// Its process ended.
    pub(crate) fn ended(&mut self, how: Ending, now: f64) -> Vec<Effect> {
        self.config_failures = 0;
        let pid = self.pid();
        let last = match how {
            _ if std::mem::take(&mut self.doomed) => LastExit::CodeSigning,
            Ending::Code(code) => LastExit::Code(code),
            Ending::Signal(signal) => LastExit::Signal(signal),
        };
        let mut effects = Vec::new();
        if let (Some(pid), false) = (pid, self.spec.abandon_group) {
            effects.push(Effect::Signal {
                pid,
                group: true,
                signal: KILL,
            });
        }
        effects.extend(self.over(last, now));
        effects
    }

    fn over(&mut self, last: LastExit, now: f64) -> Vec<Effect> {
        self.last_exit = last;
        self.epoch += 1;
        let ran = self.launched_at.map_or(f64::MAX, |at| now - at);
        self.fast_ends = if ran < seconds(self.spec.throttle) {
            self.fast_ends + 1
        } else {
            0
        };
        if self.leaving {
            self.state = State::Draining;
            return vec![Effect::After {
                seconds: DRAIN,
                timer: Timer::Drained,
            }];
        }
        let code = match last {
            LastExit::Code(code) => Some(code),
            _ => None,
        };
        let wanted =
            std::mem::take(&mut self.restart) || (self.spec.keep_alive.restarts(code) && !self.loses_keep_alive);
        if !wanted || self.penalty_box {
            self.state = State::Idle;
            return Vec::new();
        }
        self.schedule(now)
    }

    /// Starts it when it may: so long after its last start as the throttle says.
    fn schedule(&mut self, now: f64) -> Vec<Effect> {
        let ran = self.launched_at.map_or(f64::MAX, |at| now - at);
        let pause = (seconds(self.minimum_runtime()).min(LONGEST_PAUSE) - ran).max(0.0);
        if pause <= 0.0 {
            self.state = State::Starting;
            return vec![Effect::Start];
        }
        self.state = State::Scheduled;
        self.epoch += 1;
        vec![Effect::After {
            seconds: pause,
            timer: Timer::Start(self.epoch),
        }]
    }

    /// A timer fired.
    pub(crate) fn timer(&mut self, timer: Timer, now: f64) -> Vec<Effect> {
        match (timer, self.state) {
            (Timer::Start(epoch), State::Scheduled) if epoch == self.epoch => {
                self.state = State::Starting;
                vec![Effect::Start]
            }
            (Timer::Kill(epoch), State::Terminating { pid, .. }) if epoch == self.epoch => {
                self.state = State::Terminating { pid, killed: true };
                vec![Effect::Signal {
                    pid,
                    group: false,
                    signal: KILL,
                }]
            }
            (Timer::Interval, state) if !self.leaving => {
                let mut effects = if state == State::Idle {
                    self.schedule(now)
                } else {
                    Vec::new()
                };
                effects.extend(self.spec.start_interval.map(|seconds| after(seconds, Timer::Interval)));
                effects
            }
            (Timer::Drained, State::Draining) => vec![Effect::Remove],
            _ => Vec::new(),
        }
    }

    /// `kickstart`: false if it runs and was not to be killed.
    pub(crate) fn kickstart(&mut self, kill: bool, now: f64) -> Result<Vec<Effect>, Running> {
        match self.state {
            State::Running { .. } if !kill => Err(Running),
            State::Running { .. } => {
                self.restart = true;
                Ok(self.terminate())
            }
            State::Terminating { .. } => {
                self.restart = true;
                Ok(Vec::new())
            }
            State::Idle if !self.penalty_box => Ok(self.schedule(now)),
            _ => Ok(Vec::new()),
        }
    }

    /// `bootout`: the label goes when the process has.
    pub(crate) fn bootout(&mut self) -> Vec<Effect> {
        self.leaving = true;
        self.restart = false;
        match self.state {
            State::Running { .. } => self.terminate(),
            State::Idle | State::Scheduled => vec![Effect::Remove],
            State::Starting | State::Terminating { .. } | State::Draining => Vec::new(),
        }
    }

    /// SIGTERM now, SIGKILL later.
    pub(crate) fn terminate(&mut self) -> Vec<Effect> {
        let State::Running { pid } = self.state else {
            return Vec::new();
        };
        self.epoch += 1;
        self.state = State::Terminating { pid, killed: false };
        vec![
            Effect::Signal {
                pid,
                group: false,
                signal: TERM,
            },
            after(self.spec.exit_timeout, Timer::Kill(self.epoch)),
        ]
    }
}

/// It runs, and was not to be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Running;

/// Exact for every number of seconds anybody writes into a property list.
fn seconds(whole: u64) -> f64 {
    u32::try_from(whole).map_or(f64::from(u32::MAX), f64::from)
}

fn after(whole: u64, timer: Timer) -> Effect {
    Effect::After {
        seconds: seconds(whole),
        timer,
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec;
    use super::*;

    fn job(more: &str) -> Job {
        let text = format!(
            "<plist version=\"1.0\"><dict><key>Label</key><string>x</string><key>Program</key><string>/x</string>{more}</dict></plist>"
        );
        Job::new(spec::parse(text.as_bytes()).unwrap(), "/x.plist".to_owned(), 1)
    }

    fn pause(effects: &[Effect]) -> Option<f64> {
        effects.iter().find_map(|effect| match effect {
            Effect::After {
                seconds,
                timer: Timer::Start(_),
            } => Some(*seconds),
            _ => None,
        })
    }

    #[test]
    fn a_job_that_ran_two_seconds_comes_back_after_eight() {
        let mut job = job("<key>KeepAlive</key><true/>");
        assert_eq!(job.loaded(), [Effect::Start]);
        job.started(7, 100.0);
        assert_eq!(pause(&job.ended(Ending::Code(0), 102.0)), Some(8.0));
        assert_eq!(job.state, State::Scheduled);
    }

    #[test]
    fn the_pause_doubles_with_every_fast_end_and_never_exceeds_twenty_minutes() {
        let mut job = job("<key>KeepAlive</key><true/>");
        job.loaded();
        let pauses: Vec<f64> = (0..10)
            .map(|_| {
                job.started(7, 0.0);
                pause(&job.ended(Ending::Code(1), 0.0)).unwrap()
            })
            .collect();
        assert_eq!(
            pauses,
            [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1200.0, 1200.0, 1200.0]
        );
    }

    #[test]
    fn a_long_run_is_followed_by_a_start_at_once_and_forgives_what_was() {
        let mut job = job("<key>KeepAlive</key><true/>");
        job.loaded();
        job.started(7, 0.0);
        job.ended(Ending::Code(1), 1.0);
        job.started(8, 20.0);
        assert!(job.ended(Ending::Code(1), 60.0).contains(&Effect::Start));
        assert_eq!(job.minimum_runtime(), 10);
    }

    #[test]
    fn bootout_keeps_the_label_until_the_process_is_gone_and_kills_what_does_not_go() {
        let mut job = job("<key>RunAtLoad</key><true/>");
        job.loaded();
        job.started(7, 0.0);
        let effects = job.bootout();
        let Some(Effect::After { seconds, timer }) = effects.last().copied() else {
            panic!("{effects:?}")
        };
        assert!((seconds - 5.0).abs() < f64::EPSILON);
        assert!(job.timer(timer, 5.0).contains(&Effect::Signal {
            pid: 7,
            group: false,
            signal: 9
        }));
        let drained = job.ended(Ending::Signal(9), 5.0);
        assert!(!drained.contains(&Effect::Remove), "{drained:?}");
        assert_eq!(job.timer(Timer::Drained, 6.0), [Effect::Remove]);
    }

    #[test]
    fn a_job_without_its_program_is_put_aside_after_some_tries() {
        let mut job = job("<key>KeepAlive</key><true/>");
        job.loaded();
        for _ in 0..3 {
            assert!(!job.penalty_box);
            job.misconfigured(0.0);
        }
        assert!(job.penalty_box && job.state == State::Idle);
        assert_eq!(
            job.kickstart(false, 100.0),
            Ok(Vec::new()),
            "the start it waits for never comes"
        );
    }

    #[test]
    fn kickstart_of_a_running_job_needs_the_kill_flag() {
        let mut job = job("");
        assert_eq!(job.kickstart(false, 0.0), Ok(vec![Effect::Start]));
        job.started(7, 0.0);
        assert_eq!(job.kickstart(false, 50.0), Err(Running));
        job.kickstart(true, 50.0).unwrap();
        assert!(job.ended(Ending::Signal(15), 50.0).contains(&Effect::Start));
    }
}
