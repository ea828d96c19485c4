//! What tests and scenarios play on: programs that ship among emulated machines, on a cluster of real parts. One way to put each up.
//!
//! ```text
//!   macs    Fleet   Cluster API core, the provider, emulated minis that join by themselves or are set up over SSH
//!           host    one Mac with the agent that ships and the emulated `tart`
//!   linux   Site    the same with Linux servers that really boot, join and run Pods; needs root
//!   kura    Node    a cache node
//! ```
//!
//! Stages know the programs by what they are started with, never as libraries.

pub mod for_good;
pub mod kura;
pub mod linux;
pub mod macs;
