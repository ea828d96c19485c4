//! The incidents of Pods on Macs: the agent that ships, a real API server, and the emulated `tart`.
//!
//! A naive agent is what its commands do by hand: nearly all of these incidents are what `tart` does to whoever believes it.

pub(super) mod lost_exit_code;
pub(super) mod mac;
pub(super) mod node_never_comes_back;
pub(super) mod third_vm;
pub(super) mod worker_blocked;

use mac::{IMAGE, Mac, container, phase, terminated};
use russet_testkit::TestCluster;

use super::Stage;

/// Waits to be let go, and ends as it is told.
const WAITS: &str = "until [ -e /opt/work/go ]; do sleep 0.1; done; exit ";

/// The cluster, and the telling of the story apart from it: a Mac of the story borrows the one, its parts the other.
fn split<'s>(stage: &'s mut Stage<'_, TestCluster>) -> (&'s TestCluster, Stage<'s, ()>) {
    let Stage { world, narrator } = stage;
    let told = Stage {
        world: (),
        narrator: &mut **narrator,
    };
    (world, told)
}
