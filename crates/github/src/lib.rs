//! GitHub as Russet uses it: an App's credentials become a token with which a host registers as a self-hosted runner.
//!
//! ```text
//!  Secret ─► credentials ─► jwt ──POST access_tokens──► installation token ──► runners of an organisation
//!            (app-id,        9 min                       1 h, kept until        registration token (1 h), list,
//!             installation-id,                           shortly before         remove, just-in-time config
//!             private-key)                               its end
//! ```
//!
//! - [`credentials`]: what an operator pasted into a Secret, and what to do when it is not what it should be.
//! - [`client`]: one App installation. [`runners`]: what can be asked of it.
//! - [`error`]: every way a call can fail, each with a sentence that says what to do.
//! - [`resolver`]: the seam between a machine's `ghActionsRunner` and whoever can mint a token for it.
//! - [`clock`]: time and chance as arguments.
//!
//! # What is promised
//! - **No blind repeat.** A call that registers a runner is sent at most once. Minting a token and removing a runner may be
//!   repeated: a second token ends by itself, a runner is removed only once.
//! - **Least privilege.** The installation token is asked for with the one permission that is needed, whatever else the
//!   App may do.
//! - **A wrong clock heals.** When GitHub refuses a JWT and its `Date` shows that our clock is off, GitHub's time is used.
//! - **Limits are kept.** While GitHub says to wait, nothing is sent.
//! - **Silence.** No error, log line, span or `Debug` output holds a key, a JWT or a token.

mod answer;
mod call;
mod jwt;

pub mod client;
pub mod config;
pub mod credentials;
pub mod error;
pub mod org;
pub mod resolver;
pub mod runners;

pub use call::{Effect, Endpoint};
pub use client::{Client, Context};
pub use config::Config;
pub use credentials::Credentials;
pub use error::{Error, Kind};
pub use org::Org;
pub use resolver::Resolver;
pub use russet_rest::clock::{self, Chance, Clock, SystemChance, SystemClock};
