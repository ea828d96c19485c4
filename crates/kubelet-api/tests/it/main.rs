//! The kubelet API with real parts: kubectl, kube-apiserver, etcd, and a node whose containers are processes of this machine.

// Reads /proc, and the real parts are built for Linux.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the exemption of tests does not reach the functions they share"
)]

mod alone;
mod attach;
mod commands;
mod files;
mod local;
mod logs;
mod ports;
mod rights;
mod server;
mod stage;
mod terminal;
mod websocket;
