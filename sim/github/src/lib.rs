//! A strict emulator of what Russet uses of GitHub: App authentication and the self-hosted runners of an organisation.
//!
//! It answers over real HTTP on loopback what GitHub would answer: it checks the signature, times and issuer of a JWT, what an
//! installation may do and where, and it counts calls. It is strict: an unknown field or parameter, a missing `User-Agent`
//! or API version is an error. And it misbehaves on request, see [`Fault`] and [`Settings`].
//!
//! ```text
//!   client ──HTTP──▶ server ──▶ core ── lock, clock, faults, limits, journal
//!                                 └──▶ world ── apps, installations, runners: (state, call, now) → answer
//!   tests  ──Handle or /_sim/──▶ core
//! ```
//!
//! | Call | As | Answer |
//! | --- | --- | --- |
//! | `POST /app/installations/{id}/access_tokens` | App | 201, a token for an hour |
//! | `GET /app/installations/{id}` | App | 200 |
//! | `POST /orgs/{org}/actions/runners/registration-token` | installation | 201, a token for an hour |
//! | `GET /orgs/{org}/actions/runners` | installation | 200, pages |
//! | `DELETE /orgs/{org}/actions/runners/{id}` | installation | 204 |
//! | `POST /orgs/{org}/actions/runners/generate-jitconfig` | installation | 201 |
//!
//! The same paths work below `/api/v3`, as on an Enterprise Server. All others answer 501. Texts were taken from recorded
//! answers where there are any. Nothing here is shared with our client: both were written from the same facts.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use russet_sim_github::{Act, AppKey, Deed, Fault, Options, Sim};
//!
//! let key = AppKey::generate()?;
//! let sim = Sim::start(Options::default()).await?;
//! sim.handle().perform(Deed::AddApp { app: 7, public_key: key.public_pem() })?;
//! sim.handle().perform(Deed::install(7, 42, "tuist"))?;
//! sim.handle().inject(Fault::new("POST", "/orgs/**", Act::Status(502)).after_effect());
//! println!("{}", sim.url());
//! # Ok(()) }
//! ```

mod call;
pub mod cli;
mod control;
mod core;
mod deed;
mod fault;
mod handle;
mod journal;
mod jwt;
mod key;
mod limits;
mod refusal;
mod runners;
mod server;
mod settings;
mod sim;
mod strict;
mod world;

pub use deed::{Deed, DeedError};
pub use fault::{Act, Fault};
pub use handle::Handle;
pub use journal::Entry;
pub use key::{AppKey, KeyError};
pub use runners::RunnerStatus;
pub use russet_sim_kit::{BadFactor, Factor, FaultId, When};
pub use settings::Settings;
pub use sim::{Options, Sim, SimError};
