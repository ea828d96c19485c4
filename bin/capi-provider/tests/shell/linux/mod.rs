//! Linux machines on a real apiserver, with real Cluster API core, identities and keys, and the emulator.

mod calls;
mod instances;
mod local_volumes;
mod metals;
mod over_ssh;
mod refusals;
mod slow;
mod ssh_host;
mod support;
