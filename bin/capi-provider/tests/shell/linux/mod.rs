//! Linux machines on a real apiserver, with real Cluster API core, identities and keys, and the emulator.

mod calls;
mod instances;
// The same scratch root that the script itself is tested in.
#[expect(dead_code, reason = "its own tests look at more of it")]
#[path = "../../../../../crates/bootstrap/tests/it/linux_box.rs"]
mod linux_box;
mod local_volumes;
mod metals;
mod over_ssh;
mod refusals;
mod slow;
mod ssh_host;
mod support;
