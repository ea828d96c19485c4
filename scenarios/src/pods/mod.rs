//! The incidents of Pods on Macs: the agent that ships, on a Mac that the provider set up, with the emulated `tart`.
//!
//! Nearly all of them are what `tart` does to an agent that believes it.

pub(super) mod lost_exit_code;
pub(super) mod node_never_comes_back;
pub(super) mod third_vm;
pub(super) mod worker_blocked;

use super::Stage;
use super::mac::vms::{self, IMAGE, Mac, OTHER_IMAGE, PATIENCE, phase, terminated, waiting};

/// Waits to be let go, and ends as it is told.
const WAITS: &str = "until [ -e /opt/work/go ]; do sleep 0.1; done; exit ";

/// The Mac, and the telling of the story apart from it.
fn split<'s>(stage: &'s mut Stage<'_, Mac>) -> (&'s Mac, Stage<'s, ()>) {
    let Stage { world, narrator } = stage;
    let told = Stage {
        world: (),
        narrator: &mut **narrator,
    };
    (world, told)
}
