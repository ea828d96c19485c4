//! The incidents, each staged with real parts and told as a story. `russet replay <name>` runs one; the tests run all of them.
//!
//! A scenario plays the program that ships, with the flags and rights of its chart, and names what it asserts (`promise!`). What keeps
//! it honest is the file `<name>.without.patch` beside it: the smallest change of the shipped code that takes the defence out. `xtask bite`
//! applies it, builds, plays the same story and wants exactly the named promise to be seen broken. A scenario without such a patch proves a
//! part of a program, says so, and is not counted.

mod crd_pruning;
mod egress_race;
mod fleet_key_race;
mod header_drip;
mod iam_project_scope;
mod leaked_mini;
mod linux;
mod mac;
mod namespaced_informer;
mod no_workload_kubeconfig;
mod nodes_in_a_role;
mod pem_and_spaces;
mod pods;
mod raw;
mod release_wipes;
mod rollback_trap;
mod scope_confusion;
mod token_in_events;

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::{BoxFuture, LocalBoxFuture};
use mac::vms::Mac;
use russet_stages::kura::Program;
use russet_stages::macs::Fleet;
use russet_testkit::cluster::{Extras, TestCluster};
use russet_testkit::wait::{self, Look};

/// Where a story is told: the terminal, or nowhere in tests.
pub trait Narrator: Send {
    /// What happens next.
    fn step(&mut self, text: &str);
    /// What a naive implementation does with the fault.
    fn bites(&mut self, text: &str);
    /// What was checked and held.
    fn holds(&mut self, text: &str);
}

/// A narrator that keeps quiet.
#[derive(Debug, Default)]
pub struct Silent;

impl Narrator for Silent {
    fn step(&mut self, _: &str) {}
    fn bites(&mut self, _: &str) {}
    fn holds(&mut self, _: &str) {}
}

/// A promise that was seen broken. `xtask bite` looks for it by name.
#[derive(Debug, thiserror::Error)]
#[error("broken promise `{promise}`: {seen}")]
pub struct Broken {
    pub promise: &'static str,
    pub seen: String,
}

/// Fails the story with [`Broken`] unless the condition holds; what follows tells what was seen.
macro_rules! promise {
    ($name:literal, $holds:expr, $($seen:tt)+) => {
        let holds: bool = $holds;
        if !holds {
            return Err($crate::Broken { promise: $name, seen: format!($($seen)+) }.into());
        }
    };
}
pub(crate) use promise;

/// [`wait::until`] that ends at once where a promise is seen broken.
async fn until<T, F, Fut>(what: &str, patience: Duration, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Look<T>>>,
{
    wait::until(what, patience, || {
        let looked = look();
        async move {
            match looked.await {
                Ok(Look::Done(value)) => Ok(Look::Done(Ok(value))),
                Ok(Look::NotYet(seen)) => Ok(Look::NotYet(seen)),
                Err(error) if error.is::<Broken>() => Ok(Look::Done(Err(error))),
                Err(error) => Err(error),
            }
        }
    })
    .await?
}

/// One incident that can be replayed.
#[derive(Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// The record that tells of it: S0 to S4 are the founding documents, F the collected facts.
    pub from: &'static str,
    pub what_happened: &'static str,
    pub must_hold: &'static str,
    /// The change of the shipped code without which it does not hold. None: the story proves a part of a program only.
    pub without: Option<&'static str>,
    play: Play,
}

/// A story and what it plays on.
#[derive(Debug)]
enum Play {
    /// A cluster of its own: an incident may break it.
    Cluster(for<'a> fn(&'a mut Stage<'_, TestCluster>) -> BoxFuture<'a, Result<()>>),
    /// Cluster API core, the provider as its chart deploys it, an emulated Scaleway and minis that join.
    Fleet(for<'a> fn(&'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>>),
    /// A Mac of its own that runs Pods, in the one fleet of this process that has such.
    Mac(for<'a> fn(&'a mut Stage<'_, Mac>) -> LocalBoxFuture<'a, Result<()>>),
    /// The cache node's program; the story starts as many as it needs.
    Cache(for<'a> fn(&'a mut Stage<'_, Program>) -> BoxFuture<'a, Result<()>>),
    /// Nothing yet; the story sets its own stage.
    Plain(for<'a> fn(&'a mut Stage<'_, ()>) -> BoxFuture<'a, Result<()>>),
    /// The same for a story that starts a fleet with flags of its own, which the compiler cannot see to be `Send`.
    Own(for<'a> fn(&'a mut Stage<'_, ()>) -> LocalBoxFuture<'a, Result<()>>),
}

/// What a scenario plays on.
#[expect(
    missing_debug_implementations,
    reason = "a narrator is a terminal, with nothing to show"
)]
pub struct Stage<'n, W> {
    pub(crate) world: W,
    narrator: &'n mut dyn Narrator,
}

impl<W> Stage<'_, W> {
    fn step(&mut self, text: impl AsRef<str>) {
        self.narrator.step(text.as_ref());
    }

    fn bites(&mut self, text: impl AsRef<str>) {
        self.narrator.bites(text.as_ref());
    }

    fn holds(&mut self, text: impl AsRef<str>) {
        self.narrator.holds(text.as_ref());
    }
}

static ALL: &[Scenario] = &[
    rollback_trap::SCENARIO,
    crd_pruning::SCENARIO,
    namespaced_informer::SCENARIO,
    scope_confusion::SCENARIO,
    header_drip::SCENARIO,
    leaked_mini::SCENARIO,
    release_wipes::SCENARIO,
    iam_project_scope::SCENARIO,
    fleet_key_race::SCENARIO,
    pem_and_spaces::SCENARIO,
    egress_race::SCENARIO,
    no_workload_kubeconfig::SCENARIO,
    token_in_events::SCENARIO,
    nodes_in_a_role::SCENARIO,
    linux::half_made::SCENARIO,
    linux::delete_stopped::SCENARIO,
    linux::no_public_ip::SCENARIO,
    linux::dash_is_not_bash::SCENARIO,
    linux::kubelet_rbac::SCENARIO,
    linux::pn_ipv4::SCENARIO,
    linux::provisioner_rbac::SCENARIO,
    linux::csi_toleration::SCENARIO,
    linux::hostname_address::SCENARIO,
    mac::drift_path::SCENARIO,
    mac::tailscale_down::SCENARIO,
    mac::btm_cap::SCENARIO,
    mac::noop_kickstart::SCENARIO,
    mac::crash_loop_pid::SCENARIO,
    mac::stale_cdhash::SCENARIO,
    mac::provider_id::SCENARIO,
    mac::legacy_launchctl::SCENARIO,
    mac::packer_upgrade::SCENARIO,
    pods::worker_blocked::SCENARIO,
    pods::node_never_comes_back::SCENARIO,
    pods::third_vm::SCENARIO,
    pods::lost_exit_code::SCENARIO,
];

/// What keeps a story short: an answer that was lost can arrive for no longer than the client's own times allow, and orphans are looked
/// for all the time.
const FLEET_ARGS: [&str; 5] = [
    "--call-flight-time=12s",
    // No cluster of a story has DNS; nor does anything in it ask.
    "--linux-cluster-dns=10.96.0.10",
    "--linux-refusal-retry=2s",
    "--orphan-reclaim-interval=2s",
    "--bootstrap-retry-interval=1s",
];

pub fn all() -> &'static [Scenario] {
    ALL
}

pub fn find(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

/// Ends what stories share. A process that plays none after this leaves nothing behind.
pub async fn end() {
    russet_stages::macs::release_cluster().await;
}

impl Scenario {
    /// Sets the stage and plays the story. An error means that the promise does not hold.
    pub async fn run(&self, narrator: &mut dyn Narrator) -> Result<()> {
        ensure!(!self.must_hold.is_empty(), "a scenario must promise something");
        match self.play {
            Play::Cluster(play) => {
                narrator.step("start a real etcd, kube-apiserver and kube-controller-manager");
                let world = TestCluster::start(Extras::CONTROLLERS).await?;
                play(&mut Stage { world, narrator }).await
            }
            Play::Fleet(play) => {
                narrator.step("start a real control plane with Cluster API core, the provider, and an emulated Scaleway with minis");
                let world = Fleet::start(&FLEET_ARGS).await?;
                play(&mut Stage { world, narrator }).await
            }
            Play::Mac(play) => {
                narrator.step(
                    "start a real control plane with Cluster API core and the provider, which sets up an emulated Mac over SSH; its launchd runs our agent",
                );
                let world = Mac::serving(self.name).await?;
                let mut stage = Stage { world, narrator };
                let told = play(&mut stage).await;
                told.and(stage.world.switch_off().await)
            }
            Play::Cache(play) => {
                let world = Program::find()?;
                play(&mut Stage { world, narrator }).await
            }
            Play::Plain(play) => play(&mut Stage { world: (), narrator }).await,
            Play::Own(play) => play(&mut Stage { world: (), narrator }).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_names_are_unique_and_can_be_found() {
        for scenario in all() {
            assert!(
                std::ptr::eq(find(scenario.name).unwrap(), scenario),
                "{} is listed twice",
                scenario.name
            );
        }
    }
}
