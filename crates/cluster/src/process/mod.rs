//! Child processes that are kept alive, and never outlive us.
//!
//! A [`Supervisor`] owns one thread with a small tokio runtime of its own. Every child is started and watched there, one
//! driver task per child:
//!
//! ```text
//!            start             probe passes                exit
//!   (none) ────────► Starting ──────────────► Running ───────────► BackingOff ──┐
//!                       │ ▲                      │                     │        │ delay over
//!                       │ └──────────────────────┼─────────────────────┼────────┘
//!        never ready    │                        │ stop                │ stop
//!                       ▼                        ▼                     ▼
//!                     Failed                  Stopped ◄────────────────┘
//! ```
//!
//! A child that was ready once is restarted for ever, with growing delays; one that never became ready is not, because
//! whoever started it is waiting for an answer, and that answer carries the end of its log.
//!
//! # Why a thread of its own
//! On Linux children run under `setpriv --pdeathsig KILL`, so the kernel ends them when their parent dies, however it
//! dies. The kernel takes "parent" to mean the *thread* that started the child: a child started from a tokio worker would
//! be killed whenever that worker goes away. The supervisor's thread lives exactly as long as the last handle.
//!
//! # Nothing is left behind
//! - Handles dropped, also by a panic: the children are stopped before `drop` returns.
//! - The process is killed: the kernel kills the children (Linux); on other systems, or in the moment between fork and
//!   `prctl`, the next run's [`sweep`] does, from the ledger in `pids.json`.
//! - Each child leads a process group; whatever remains of the group goes with it. Ctrl-C in a terminal therefore
//!   reaches us alone, and we stop the children in order.
//!
//! # Environment
//! Children inherit only `PATH`, `HOME`, `TMPDIR`, `TZ` and `LANG`, plus what their [`Spec`] names: a `KUBECONFIG` or a cloud
//! credential of the user's shell must not change what a test does. Secrets travel in files, never in arguments.

mod driver;
mod environment;
mod error;
mod ledger;
mod log;
mod probe;
mod restart;
mod snapshot;
mod spec;
mod supervisor;
mod threads;

pub use error::{Error, LogTail};
pub use ledger::{Swept, sweep};
pub use restart::Restart;
pub use snapshot::{Snapshot, State};
pub use spec::{ClientIdentity, Probe, Spec};
pub use supervisor::Supervisor;
pub use threads::has_live_threads;
