//! The real programs Russet runs, obtained on demand.
//!
//! Tests and `russet up` run a real etcd, a real kube-apiserver and so on. `parts.toml` names each of them once, with its version;
//! a [`Store`] finds or obtains them, and hands out their paths as [`Tools`].
//!
//! ```text
//! ensure(tool) ── given folder? ── cache? ── on PATH? ─┬─ yes ──────────────────────────────► path
//!                                                      └─ no: lock the part, look again, then
//!                                                         release download ─┐
//!                                                         package unpacked ─┼─► staged ─► cache ─► receipt ─► path
//!                                                         npm, pip, Maven  ─┤
//!                                                         go build         ─┘
//! ```
//!
//! Invariants
//! 1. A cached tool is used only if its receipt, written last and by rename, matches it. A builder killed at any point leaves at
//!    worst a file without a receipt, which the next one replaces. ([`receipt`])
//! 2. A part is built by one process at a time; the others wait and then use the result. ([`lock`])
//! 3. Nothing is installed on the system and nothing outside the cache folder is written, the own caches of Go, npm and pip apart.
//! 4. A download is used only after its published checksum matched. A Go build is fixed by the embedded go.sum, an npm package by
//!    its lock file, a Python one by its digest.
//! 5. What was tried, and why it failed, is never lost: the final error lists it with the ways out. ([`error`])
//!
//! The cache folder:
//!
//! ```text
//! parts/<part>-<version>-<os>-<arch>/<tool>                 the program, or a folder of files
//! parts/<part>-<version>-<os>-<arch>/<tool>.receipt.toml    what it is, where from, its digest
//! parts/<part>-<version>-<os>-<arch>/.staging-*             work in progress; swept by the next holder of the lock
//! locks/<part>.lock                                         flock; holds the pid of the builder
//! work/<module>-<digest>/                                   the embedded Go module, as written out for the go command
//! ```

mod archive;
mod attempt;
mod cache;
mod command;
mod config;
mod debian;
mod download;
pub mod error;
mod executable;
mod given;
mod gobuild;
mod golang;
pub mod lock;
mod manifest;
mod platform;
mod progress;
pub mod receipt;
mod registry;
mod space;
mod status;
mod store;
mod tools;
mod tree;

pub use crate::{
    config::{Options, default_cache_dir},
    error::{Attempt, Error, SourceError},
    manifest::{Manifest, Modules, Part, Tool, ToolKind},
    platform::Platform,
    progress::{Activity, Bars, Outcome, Progress, Silent},
    space::FreeSpace,
    status::{PartState, PartStatus, Verification},
    store::Store,
    tools::{Located, Origin, Tools},
};
