//! Virtual machines of one host, behind one trait.
//!
//! ```text
//!                 ┌─ Tart: the `tart` command of a Mac ── supervisor (outlives the agent) ── tart run ── the VM
//! agent ─ Runtime ┤                                              └─▶ started.json, exit.json, a lock
//!                 └─ Synthetic: the same behaviour in memory, with the delays one asks for
//! ```
//!
//! The agent that uses this may be killed at any moment, and VMs must not notice. So nothing here depends on a child
//! process of the agent: what runs, and how it ended, is on disk, written by a small supervisor per process
//! ([`supervise`]). A runtime made by the next agent over the same folders sees the same VMs and the true ends.
//!
//! Three rules hold for every implementation; the tests in `tests/conformance` hold both to them:
//! - only VMs whose name is a [`VmName`] are ever changed, and nobody else's VM has one ([`name`]);
//! - every call may be dropped at any time, and repeated: what it began is found or redone, never doubled;
//! - what `tart` claims is believed only where nothing better is known. It lists running VMs as stopped, gives addresses of dead
//!   ones, and ends with 0 after a crash.
//!
//! ```no_run
//! # use russet_vm::{Error, Goldens, Hardware, ImageRef, Launch, PodVm, Pull, PullPolicy, Runtime, Source, VmName};
//! # use std::{sync::Arc, time::Duration};
//! # async fn example(runtime: Arc<dyn Runtime>) -> Result<(), Box<dyn std::error::Error>> {
//! let image = ImageRef::parse("ghcr.io/acme/mac:v1")?;
//! let golden = Goldens::new(runtime.clone()).ensure(&image, PullPolicy::IfNotPresent, Pull::default()).await?;
//! let name: VmName = PodVm::new("ci", "job-1", "main", "0b5d7f3c-8a4e-4f0c-9d1a-2b3c4d5e6f70", 0)?.into();
//! runtime.clone_vm(&Source::Vm(golden.vm), &name).await?;
//! runtime.configure(&name, Hardware { own_identity: true, ..Hardware::default() }).await?;
//! let process = runtime.start(&name, &Launch::default()).await?; // for the ledger
//! let exit = runtime.ended(&name).await?; // in this agent or in a later one
//! runtime.delete(&name).await?;
//! # Ok(()) }
//! ```

mod error;
pub mod golden;
pub mod image;
pub mod log;
pub mod name;
mod process;
pub mod retain;
mod runtime;
pub mod supervise;
pub mod synthetic;
pub mod tart;

pub use error::{Error, Retry};
pub use golden::{Golden, Goldens, PullPolicy};
pub use image::{Digest, ImageRef, Pinned};
pub use name::{GoldenKey, PodVm, VmName};
pub use process::{Process, is_alive};
pub use runtime::{
    Access, Credentials, DiskUsage, Exec, ExecRequest, Exit, GuestCommand, Hardware, How, Image, Launch, Listed,
    Listing, Outcome, Owner, Power, Pull, Runtime, Screen, Share, Source, StartFailure, Step, TerminalSize, collect,
};
pub use synthetic::Synthetic;
pub use tart::Tart;
