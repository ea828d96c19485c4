//! Our client for the parts of the Scaleway API that Russet uses.
//!
//! ```text
//!  caller ─► product (apple_silicon, instance, …) ─► Client::call ─► limiter ─► one HTTP exchange
//!                                                      ▲    │
//!                                                      └────┴── retry, only where a repeat cannot do harm
//! ```
//!
//! - [`apple_silicon`], [`instance`], [`baremetal`] (Elastic Metal), [`block`], [`marketplace`], [`vpc`], [`ipam`],
//!   [`iam`]: one module per product; requests and answers as types.
//! - [`error`]: every way a call can fail, each with a sentence that says what to do.
//! - [`limiter`]: one token bucket per API key, shared by everybody who uses the key.
//! - [`retry`], [`pages`]: the decisions, pure and tested on their own.
//! - [`observer`]: hooks for metrics. [`clock`]: time and chance as arguments.
//!
//! # What is promised
//! - **No blind repeat.** A call that pays, wipes or renames is sent at most once. When the answer is lost the error is
//!   [`error::Kind::Unknown`], and the caller has to look before it acts again.
//! - **Whole lists.** A list is returned only if it was read without a row slipping between two pages; see [`pages`].
//! - **One project.** Every list and every creation carries the project of the client; there is no way to leave it out.
//! - **Silence.** No error, log line, span or `Debug` output holds the API key, a host's password or the text it boots with,
//!   not even where the API quotes it.

#[macro_use]
mod wire;

mod body;
mod call;
mod censor;
mod client;
mod filter;

pub mod apple_silicon;
pub mod baremetal;
pub mod block;
pub mod catalog;
pub mod config;
pub mod error;
pub mod iam;
pub mod ids;
pub mod instance;
pub mod ipam;
pub mod limiter;
pub mod mac_address;
pub mod marketplace;
pub mod money;
pub mod observer;
pub mod pages;
pub mod retry;
pub mod vpc;

pub use call::{Effect, Endpoint};
pub use client::{Client, Context};
pub use config::Config;
pub use error::{Error, Kind};
pub use ids::{
    DiagnosticId, ImageId, IpId, OfferId, OptionId, OsId, PrivateNetworkId, PrivateNicId, ProjectId, PublicIpId,
    SshKeyId, VolumeId,
};
pub use limiter::{Limiter, Limiters, Rate};
pub use mac_address::MacAddress;
pub use money::Money;
pub use observer::{Deaf, Observer};
pub use russet_rest::clock::{self, Chance, Clock, SystemChance, SystemClock};
