//! What is known of a Pod on this host: the input of [`crate::lifecycle`] and [`crate::status`].
//!
//! ```text
//!                    begun            running
//!   Absent ────────────────▶ Starting ───────▶ Running ──┐ exited
//!     ▲  ▲                    │  │  ▲                     ▼
//!     │  └────── abandoned ───┘  │  └──── begun ────── Exited
//!     │                   stuck  ▼          (restart count + 1)
//!     └──────────────────────  Stuck ──── begun ──▶ Starting
//! ```
//!
//! Whoever runs the VMs reports through the methods of [`ContainerFacts`]; they keep the restart count, the last end and the
//! back-off. A container has at most one instance: it is live in `Starting` and `Running` and in no other state, and `Exited`
//! means that nothing of it runs any more, the VM included. All of it can be written to a ledger.

mod recovered;

use crate::backoff::Backoff;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// What is known of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodFacts {
    /// When the node took the Pod on: `status.startTime`, from which its deadline counts.
    pub started: Option<Timestamp>,
    /// Volumes are in place, and VMs can be made and reached.
    pub prepared: bool,
    /// Addresses of the node, best first.
    pub host_ips: Vec<IpAddr>,
    /// Addresses of the Pod, best first: those of the VM of its first main container that has one.
    pub pod_ips: Vec<IpAddr>,
    /// Why the Pod is being ended, once that is decided.
    pub ending: Option<Ending>,
    /// By name. What is not here was never begun.
    pub containers: BTreeMap<String, ContainerFacts>,
}

impl PodFacts {
    /// What is known of a container.
    pub fn container(&self, name: &str) -> &ContainerFacts {
        static UNKNOWN: std::sync::LazyLock<ContainerFacts> = std::sync::LazyLock::new(ContainerFacts::default);
        self.containers.get(name).unwrap_or(&UNKNOWN)
    }

    /// The same, to report on.
    pub fn container_mut(&mut self, name: &str) -> &mut ContainerFacts {
        self.containers.entry(name.to_owned()).or_default()
    }

    /// How many VMs of the Pod run or are about to.
    pub fn live(&self) -> usize {
        self.containers
            .values()
            .filter(|container| container.state.is_live())
            .count()
    }
}

/// Why a Pod is being ended, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Why. The first cause stays.
    pub why: Why,
    /// Since when.
    pub since: Timestamp,
    /// How long its containers were given. Only ever shortened.
    pub grace: Duration,
    /// When that is over.
    pub deadline: Timestamp,
}

impl Ending {
    /// An end that begins now.
    pub fn new(why: Why, grace: Duration, now: Timestamp) -> Self {
        Self {
            why,
            since: now,
            grace,
            deadline: crate::time::after(now, grace),
        }
    }

    /// An end because the node runs out of something.
    pub fn evicted(message: impl Into<String>, grace: Duration, now: Timestamp) -> Self {
        Self::new(
            Why::Evicted {
                message: message.into(),
            },
            grace,
            now,
        )
    }
}

/// Why a Pod is being ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// Somebody deleted it, or its object is gone.
    Deleted,
    /// It ran for longer than `activeDeadlineSeconds`.
    DeadlineExceeded,
    /// The node ran out of something.
    Evicted {
        /// What, in words.
        message: String,
    },
    /// It used more than it may. Nobody else has caused that, so it is no disruption.
    Exceeded {
        /// More of what, in words.
        message: String,
    },
}

/// What is known of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerFacts {
    /// What it does.
    pub state: State,
    /// How often it was started again. This also numbers the instances: the first is 0.
    pub restarts: u32,
    /// How the instance before this one ended.
    pub last: Option<Exit>,
    /// The wait before its next start.
    pub crash: Backoff,
    /// What it waits for while it has not started, in words. Shown beside `ContainerCreating`.
    pub note: Option<String>,
    /// Why the attempt before this one did not start, or did not last beyond its hook. It is told until this one has come further.
    #[serde(default)]
    pub before: Option<Stuck>,
    /// Its image, by digest.
    pub image_id: Option<String>,
    /// The image that the present instance was asked for with. Unknown of one that an agent of before began.
    #[serde(default)]
    pub image: Option<String>,
    /// It is ended because its spec has another image by now, so it is started again whatever its policy says.
    #[serde(default)]
    pub replaced: bool,
    /// The hook after its start.
    pub post_start: Hook,
    /// By when it was told to end.
    pub stopping: Option<Timestamp>,
    /// Its startup probe succeeded. Without one, not asked.
    pub startup_passed: bool,
    /// Its readiness probe says so. Without one, not asked.
    pub readiness_passed: bool,
    /// A probe gave up on it.
    pub unhealthy: Option<Unhealthy>,
}

/// What a container does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Nothing, so far.
    #[default]
    Absent,
    /// Its image is fetched, its VM is made and boots.
    Starting {
        /// Since when.
        since: Timestamp,
    },
    /// An attempt to start it failed, and nothing of that is left.
    Stuck(Stuck),
    /// It runs.
    Running {
        /// Since when.
        since: Timestamp,
        /// Which VM, such as `tart://rvm_ci_job_main_0b5d_0`.
        id: String,
    },
    /// It ended, and nothing of it is left.
    Exited(Exit),
}

impl State {
    /// Whether it has a VM, or will have one without a further decision.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Starting { .. } | Self::Running { .. })
    }
}

/// Why a container did not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// One word of Kubernetes, such as `ErrImagePull`; see [`reasons`].
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// When to try again; at most [`crate::backoff::LONGEST`] ahead.
    pub retry: Timestamp,
}

/// Reasons of containers that wait, and of ends.
pub mod reasons {
    /// Its VM is being made.
    pub const CREATING: &str = "ContainerCreating";
    /// Init containers come first.
    pub const INITIALIZING: &str = "PodInitializing";
    /// It ended too often.
    pub const CRASH_LOOP: &str = "CrashLoopBackOff";
    /// The image could not be pulled.
    pub const ERR_PULL: &str = "ErrImagePull";
    /// The next pull waits.
    pub const PULL_BACK_OFF: &str = "ImagePullBackOff";
    /// The image is not here and must not be pulled.
    pub const NEVER_PULL: &str = "ErrImageNeverPull";
    /// The image's name cannot be read.
    pub const BAD_IMAGE: &str = "InvalidImageName";
    /// Something that its spec refers to is missing.
    pub const CONFIG: &str = "CreateContainerConfigError";
    /// Its VM could not be made.
    pub const CREATE: &str = "CreateContainerError";
    /// Its VM could not be started.
    pub const RUN: &str = "RunContainerError";
    /// The hook after its start failed, so it was ended.
    pub const POST_START: &str = "PostStartHookError";
    /// It ended with 0.
    pub const COMPLETED: &str = "Completed";
    /// It ended with something else.
    pub const ERROR: &str = "Error";
    /// Nobody saw how it ended.
    pub const UNKNOWN: &str = "ContainerStatusUnknown";
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// 0 is success; death by signal n is 128 + n.
    pub code: i32,
    /// One word; see [`reasons`].
    pub reason: String,
    /// What it left as its last words.
    pub message: Option<String>,
    /// When it had started.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub finished: Timestamp,
    /// Which VM it was.
    pub id: String,
}

impl Exit {
    /// An end with an exit code.
    pub fn with_code(code: i32, finished: Timestamp) -> Self {
        let reason = if code == 0 { reasons::COMPLETED } else { reasons::ERROR };
        Self {
            code,
            reason: reason.to_owned(),
            message: None,
            started: None,
            finished,
            id: String::new(),
        }
    }

    /// An end that nobody saw. Never a success.
    pub fn unseen(finished: Timestamp) -> Self {
        Self {
            reason: reasons::UNKNOWN.to_owned(),
            message: Some("The container could not be located when the pod was terminated".to_owned()),
            ..Self::with_code(137, finished)
        }
    }
}

/// How far a hook is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hook {
    /// It has not begun, if there is one.
    #[default]
    Waiting,
    /// It runs.
    Running,
    /// It is done.
    Done,
    /// It failed, so the container has to end.
    Failed(String),
}

/// A probe that gave up on a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unhealthy {
    /// Which one.
    pub probe: crate::probe::Kind,
    /// How long the container may take to end, if the probe says so.
    pub grace: Option<Duration>,
}

impl ContainerFacts {
    /// A start has begun. After an end this is the next instance, and the next wait is longer.
    pub fn begun(&mut self, now: Timestamp) {
        let state = std::mem::take(&mut self.state);
        let before = match &state {
            State::Stuck(stuck) => Some(stuck.clone()),
            State::Exited(_) => self.before.take(),
            _ => None,
        };
        if let State::Exited(exit) = state {
            if std::mem::take(&mut self.replaced) {
                // What another image did is no reason to wait.
                self.crash.reset();
            } else {
                self.crash.restarted(exit.finished, now);
            }
            self.last = Some(exit);
            self.restarts = self.restarts.saturating_add(1);
        }
        self.forget_instance();
        self.before = before;
        self.state = State::Starting { since: now };
    }

    /// The start failed and left nothing behind.
    pub fn stuck(&mut self, reason: &str, message: impl Into<String>, retry: Timestamp) {
        self.stopping = None;
        self.state = State::Stuck(Stuck {
            reason: reason.to_owned(),
            message: message.into(),
            retry,
        });
    }

    /// The start was called off and left nothing behind.
    pub fn abandoned(&mut self) {
        self.stopping = None;
        self.replaced = false;
        self.state = State::Absent;
    }

    /// Its image is here and its VM is about to be made, so what kept the attempt before from that is over. A failed hook is not: it
    /// waits for this one, too.
    pub fn pulled(&mut self, image_id: impl Into<String>) {
        self.image_id = Some(image_id.into());
        self.before = self.before.take().filter(|before| before.reason == reasons::POST_START);
    }

    /// It runs.
    pub fn running(&mut self, id: impl Into<String>, since: Timestamp) {
        self.note = None;
        self.before = None;
        self.state = State::Running { since, id: id.into() };
    }

    /// It was told to end by then.
    pub fn told_to_stop(&mut self, deadline: Timestamp) {
        self.stopping = Some(deadline);
    }

    /// It ended. Fills in when the instance had started and which it was.
    pub fn exited(&mut self, mut exit: Exit) {
        if let State::Running { since, id } = &self.state {
            exit.started = exit.started.or(Some(*since));
            if exit.id.is_empty() {
                exit.id.clone_from(id);
            }
        }
        let failed = match std::mem::take(&mut self.post_start) {
            Hook::Failed(message) => Some(Stuck {
                reason: reasons::POST_START.to_owned(),
                message,
                retry: exit.finished,
            }),
            _ => None,
        };
        self.forget_instance();
        self.before = failed;
        self.state = State::Exited(exit);
    }

    /// Nothing of it is left, and nobody saw where it went: what ran has ended, and what was only being started never was. One that
    /// ran must not be taken for one that did not: a job that may run once would run again.
    pub fn vanished(&mut self, now: Timestamp) {
        match self.state {
            State::Running { .. } => self.exited(Exit::unseen(now)),
            State::Starting { .. } => self.abandoned(),
            State::Absent | State::Stuck(_) | State::Exited(_) => {}
        }
    }

    /// Whoever ran its hook is gone, and nobody will hear how that ended. A hook runs at least once, so it is run again.
    pub fn lost_hook(&mut self) {
        if self.post_start == Hook::Running {
            self.post_start = Hook::Waiting;
        }
    }

    /// Whether anything of it was ever begun.
    pub fn was_begun(&self) -> bool {
        self.last.is_some() || self.state != State::Absent
    }

    /// Whether the instance was made from another image than is wanted by now.
    pub fn is_outdated(&self, wanted: Option<&str>) -> bool {
        self.image.as_deref().is_some_and(|image| Some(image) != wanted)
    }

    fn forget_instance(&mut self) {
        self.stopping = None;
        self.image = None;
        self.note = None;
        self.before = None;
        self.post_start = Hook::Waiting;
        self.startup_passed = false;
        self.readiness_passed = false;
        self.unhealthy = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_restart_keeps_the_end_before_and_counts() {
        let mut facts = ContainerFacts::default();
        facts.begun(at(1));
        assert_eq!(facts.restarts, 0);
        facts.running("tart://x", at(5));
        facts.readiness_passed = true;
        facts.exited(Exit::with_code(3, at(9)));
        facts.begun(at(10));
        let last = facts.last.clone().unwrap();
        assert_eq!(
            (facts.restarts, last.code, last.started, last.id.as_str()),
            (1, 3, Some(at(5)), "tart://x")
        );
        assert!(
            !facts.readiness_passed,
            "what the instance before could do says nothing about this one"
        );
        assert_eq!(facts.crash.wait(), crate::backoff::FIRST);
    }

    #[test]
    fn a_start_that_failed_is_no_restart() {
        let mut facts = ContainerFacts::default();
        facts.begun(at(1));
        facts.stuck(reasons::ERR_PULL, "denied", at(11));
        facts.begun(at(11));
        assert_eq!((facts.restarts, facts.last.is_none()), (0, true));
        assert!(facts.before.is_some());
        facts.pulled("sha256:1");
        assert_eq!(facts.before, None, "it is not denied any more");
    }

    /// It was told only by an event, which is gone after an hour.
    #[test]
    fn a_hook_that_failed_is_told_until_the_next_instance_runs() {
        let mut facts = ContainerFacts::default();
        facts.begun(at(1));
        facts.running("tart://x", at(5));
        facts.post_start = Hook::Failed("no".to_owned());
        facts.exited(Exit::with_code(137, at(9)));
        facts.begun(at(10));
        let before = facts.before.clone().unwrap();
        assert_eq!(
            (before.reason.as_str(), before.message.as_str(), facts.restarts),
            (reasons::POST_START, "no", 1)
        );
        facts.pulled("sha256:1");
        assert_eq!(facts.before, Some(before), "nobody has seen this one's hook");
        facts.running("tart://y", at(15));
        facts.exited(Exit::with_code(1, at(16)));
        facts.begun(at(17));
        assert_eq!(facts.before, None, "its own end was another");
    }

    #[test]
    fn an_end_that_nobody_saw_is_no_success() {
        assert_ne!(Exit::unseen(at(1)).code, 0);
    }

    #[test]
    fn what_vanished_has_ended_if_it_ran_and_never_was_if_it_did_not() {
        let mut facts = ContainerFacts::default();
        facts.begun(at(1));
        facts.vanished(at(2));
        assert_eq!((&facts.state, facts.restarts), (&State::Absent, 0));
        facts.begun(at(3));
        facts.running("tart://x", at(4));
        facts.vanished(at(5));
        let ended = facts.clone();
        let State::Exited(exit) = &ended.state else {
            panic!("{ended:?}")
        };
        assert_eq!(
            (exit.reason.as_str(), exit.started, exit.id.as_str()),
            (reasons::UNKNOWN, Some(at(4)), "tart://x")
        );
        facts.vanished(at(6));
        assert_eq!(facts, ended, "it ended once");
    }

    #[test]
    fn a_hook_that_nobody_hears_of_any_more_is_run_again_and_one_that_ended_is_not() {
        let mut facts = ContainerFacts::default();
        for (hook, then) in [
            (Hook::Waiting, Hook::Waiting),
            (Hook::Running, Hook::Waiting),
            (Hook::Done, Hook::Done),
            (Hook::Failed("no".to_owned()), Hook::Failed("no".to_owned())),
        ] {
            facts.post_start = hook;
            facts.lost_hook();
            assert_eq!(facts.post_start, then);
        }
    }

    #[test]
    fn facts_survive_a_ledger() {
        let mut facts = PodFacts::default();
        facts.container_mut("a").begun(at(1));
        facts.ending = Some(Ending::evicted("disk", Duration::from_secs(3), at(2)));
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<PodFacts>(&text).unwrap(), facts);
    }
}
