//! The incidents of Macs, and what their stories share: emulated Macs, a way onto them, programs for them.
//!
//! ```text
//!   Bench ── a few Macs, no cluster: the plan of `russet-bootstrap` over real SSH
//!   Fleet::over_ssh ── Macs under the provider, as a process, with a real API server and Cluster API core
//!        both ──▶ Mini ── one Mac: log in, run something by hand, run the plan, look at its launchd
//!   vms::Mac ── one of a fleet over SSH, with a `tart`: it serves, and runs Pods
//! ```

pub(super) mod btm_cap;
pub(super) mod crash_loop_pid;
pub(super) mod drift_path;
pub(super) mod legacy_launchctl;
pub(super) mod noop_kickstart;
pub(super) mod packer_upgrade;
pub(super) mod provider_id;
pub(super) mod stale_cdhash;
pub(super) mod tailscale_down;
pub(super) mod vms;

mod bench;
mod mini;
mod program;
mod runner;
mod under_provider;

use bench::Bench;
use mini::{HASTE, Mini};

/// The agent's job.
const LABEL: &str = "dev.tuist.tart-kubelet";
const JOB: &str = "system/dev.tuist.tart-kubelet";
const PLIST: &str = "/Library/LaunchDaemons/dev.tuist.tart-kubelet.plist";
const PROGRAM: &str = "/usr/local/bin/tart-kubelet";
/// What a new agent changes, and nothing else.
const ROLL: [&str; 2] = ["tart-kubelet", "tart-kubelet-job"];
