//! How a bare Mac becomes a node, and stays as it should be.
//!
//! ```text
//! Fleet ─┬─ plan(&Fleet, &Host) ──► Vec<Step> ──► Engine ── survey: one program, all checks ──► ok | drift | held
//! Host  ─┘        │                                 │                                             │
//!                 │                                 └── change: upload, program, check again ◄────┘ only what drifted
//!                 └─ desired(&Fleet) = hash of the very same steps for a host without properties
//! ```
//!
//! What is promised
//! - There is one plan. First set-up, drift and roll-out of a new binary all run it; a step cannot be in one and not in another.
//! - The hash of a fleet's configuration is made of the rendered steps, so what is hashed is a step, and every step is hashed.
//!   [`Fleet`] is what is hashed, [`Host`] is what is not; there is no third kind of setting.
//! - A host on which nothing has changed costs one command and no upload.
//! - What changes on a host by itself, such as the signature of a tool that was upgraded, is found by [`Engine::watch`]: one command, no
//!   change.
//! - A run may be cut at any byte. Files and programs get their name when they are whole, and a job counts as started only
//!   when its new process stays.
//! - No secret is in an argument, an error or a status: programs travel by standard input, and what they say is scrubbed.

mod artifact;
mod check;
mod config;
mod engine;
mod plan;
mod plist;
mod program;
mod resource;
mod scrub;
mod step;
mod steps;
#[cfg(test)]
mod tests;

pub use artifact::{Artifact, ArtifactError, Artifacts};
pub use check::Invalid;
pub use config::{Agent, ApiServer, Firewall, Fleet, Host, LogShipping, Runner, Tailnet};
pub use engine::{Engine, Failed, Progress, Remote, Report, StepState};
pub use plan::{Hash, desired, plan, watched};
pub use program::Patience;
pub use step::Step;
