//! Host drift and how a new host configuration spreads over a fleet.
//!
//! A host has drifted when what it was set up with (`status.hostConfigHash`) is not what it should be set up with. Pushing to
//! all that drifted at once is how one bad configuration takes a whole fleet down, so a plan is made for the fleet as a whole:
//!
//! ```text
//!   drifted ──► canaries ──► soak ──► the rest, few at a time ──► up to date
//!                  │                       │
//!                  └────── failures ───────┴──► so many failing hosts: nobody new is touched until they heal
//! ```
//!
//! # The rules, in the order in which they are asked
//! 1. A host that is deleted, not set up yet, paused or being updated right now is left alone.
//! 2. A host that failed is tried again after a delay. After so many failures with one configuration it **gives up**
//!    (`failureReason` `TartKubeletUpdateExceededRetries`, `failedHostConfigHash`). That ends when another configuration is
//!    wanted, after a while ([`Policy::terminal_retry_after`]), or when a human clears it.
//! 3. While enough hosts fail with a configuration, or have it and do not serve ([`Policy::pause_failures`]), it is pushed to no
//!    further host. Those that failed are still retried: when they heal the rollout goes on by itself.
//! 4. Until so many hosts run a configuration ([`Policy::canary`]) and have been ready with it for a while ([`Policy::soak`]), no
//!    other gets it. A canary that fails does not hold its place: the next host is tried, and rule 3 ends a series.
//!    When all hosts without a configuration are lost for a while ([`Policy::lost_after`]), as after a move of the API server,
//!    there is nothing that care could protect: rules 4 and 5 do not hold for it, and only failures (rule 3) stop it.
//! 5. A host on which Pods run is updated when they are done, or when it was waited for long enough
//!    ([`Policy::busy_patience`]), counted from when its turn came. Pods that are on every host do not count.
//! 6. No more hosts are out of service than [`Policy::max_unavailable`]. A host that is out of service anyway costs nothing.
//!
//! Canaries are counted per configuration, because a machine with a `hostCPU` of its own has a hash of its own; the other two
//! limits hold for the fleet. Nothing is remembered between two plans but since when a busy host is waited for: everything else
//! follows from the status of the machines, so a restart or a change of leader changes nothing, unless that wait begins anew.
//!
//! # How to use it
//! ```text
//!   hosts = every machine of the fleet: Host::of(name, desired, &status, Facts { .. })
//!   rollout::marks(me, ..).write(status)    at each reconcile; it changes nothing unless a failure no longer counts
//!   plan = rollout::plan(&hosts, &policy, now)
//!   plan.verdict(me)  Update     → run the update to me.desired, then write rollout::succeeded(..) or rollout::failed(..)
//!                     otherwise  → wait
//!                     its Display is the message of the condition UpToDate, which is True for Verdict::UpToDate only
//!   plan.wake         → when to ask again if nothing happens first
//! ```
//! `UpToDate` must be kept with its `lastTransitionTime`: soak and patience are counted from it. Between two machines' workers
//! the plan may be made twice from the same state; whoever starts an update has to be seen as `updating` by the next plan, so
//! plan and start happen under one lock per fleet.

mod args;
mod host;
mod marks;
mod plan;
mod policy;
#[cfg(test)]
mod property;
mod verdict;

pub use args::RolloutArgs;
pub use host::{Facts, Host, Work};
pub use marks::{Marks, failed, marks, succeeded};
pub use plan::{Plan, plan};
pub use policy::{BadShare, Policy, Share};
pub use verdict::{Verdict, Wait};
