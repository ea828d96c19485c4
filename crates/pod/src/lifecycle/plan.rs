//! The words in which a decision is told.

use crate::facts::{Ending, Why};
use crate::probe;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::LifecycleHandler;
use std::time::Duration;

/// How many VMs may be started now: what the host allows less what runs on it, whoever runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// So many.
    pub free: usize,
}

/// What to do, and when to ask again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In this order. Stops come first.
    pub actions: Vec<Action>,
    /// Containers that could start if there were room for another VM.
    pub held: Vec<String>,
    /// When to ask again although nothing has changed.
    pub wake: Option<Timestamp>,
    /// To be kept in [`crate::facts::PodFacts::ending`] before anything is done.
    pub ending: Option<Ending>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Put the volumes in place; then `prepared` is true.
    Prepare,
    /// Start an instance of a container. Report [`crate::facts::ContainerFacts::begun`] before its first effect.
    Start {
        /// Which.
        container: String,
        /// Its number, from 0; part of the VM's name.
        attempt: u32,
    },
    /// Run the hook after a start.
    PostStart {
        /// In which container.
        container: String,
        /// What to run.
        hook: LifecycleHandler,
    },
    /// End an instance. Report [`crate::facts::ContainerFacts::told_to_stop`] with its deadline.
    Stop(Stop),
    /// Nothing of the Pod is live: publish its last status, take its volumes away and, if it was deleted, delete it from the
    /// API.
    Finish,
}

/// How to end an instance. One that does not run yet is called off.
#[derive(Clone, Debug, PartialEq)]
pub struct Stop {
    /// Which container.
    pub container: String,
    /// Why.
    pub why: StopWhy,
    /// When it must have ended.
    pub deadline: Timestamp,
    /// How long that is from now, hook included.
    pub grace: Duration,
    /// To run first.
    pub pre_stop: Option<LifecycleHandler>,
}

impl Stop {
    /// The text of the `Killing` event.
    pub fn message(&self) -> String {
        let name = &self.container;
        match &self.why {
            StopWhy::Unhealthy(kind) => format!("Container {name} failed {} probe, will be restarted", kind.word()),
            StopWhy::PostStartFailed(_) => "FailedPostStartHook".to_owned(),
            StopWhy::Changed => format!("Container {name} definition changed, will be restarted"),
            StopWhy::PodEnds(_) | StopWhy::PodDone => format!("Stopping container {name}"),
        }
    }
}

/// Why an instance is ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopWhy {
    /// The Pod ends.
    PodEnds(Why),
    /// The main containers are done, so the sidecar is not needed any more.
    PodDone,
    /// A probe gave up on it.
    Unhealthy(probe::Kind),
    /// The hook after its start failed.
    PostStartFailed(String),
    /// Its spec has another image by now. Report [`crate::facts::ContainerFacts::replaced`], so that it starts again.
    Changed,
}
