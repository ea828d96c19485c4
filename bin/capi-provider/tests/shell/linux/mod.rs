//! Linux machines on a real apiserver, with real Cluster API core, identities and keys, and the emulator.

mod instances;
mod metals;
mod support;
