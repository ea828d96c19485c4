//! A strict emulator of the Scaleway API, for tests and for a fleet on a laptop.
//!
//! It answers over real HTTP on loopback what the real API would answer, including what nobody reads in the documentation:
//! sealed passwords, names that two controllers write at once, addresses that appear late, 403 for what is gone. It is
//! strict: an unknown field or parameter, a wrong zone, a missing project is an error, so a client that passes here knows
//! what it says. And it misbehaves on request, see [`Fault`] and [`Settings`].
//!
//! ```text
//!   client ──HTTP──▶ server ──▶ core ── lock, clock, faults, journal
//!                                 └──▶ world ── apple, instance, metal, block, vpc, ipam, iam, account: (state, call, now) → answer
//!   tests  ──Handle or /_sim/──▶ core            bill: what is owed
//!   sim/mac   ◀──HostFactory or /_sim/events──── what happened to minis
//!   sim/linux ◀──BoxFactory or /_sim/box-events── what changed about Linux machines
//! ```
//!
//! Nothing here is shared with our client of the same API: both were written from the same facts, and that they
//! understand each other proves something.
//!
//! A further product is a file like `vpc.rs`: its state in `World`, its paths in `World::answer`, its permission sets in
//! `account.rs`, its lines on the bill. Until it is there its paths answer 501 `not_emulated`.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use russet_sim_scaleway::{Act, Factor, Fault, Minis, Options, Sim};
//!
//! let sim = Sim::start(Options { clock_factor: Factor::MANUAL, ..Options::default() }).await?;
//! let pool = sim.handle().add_minis(Minis { count: 3, ..Minis::default() })?;
//! sim.handle().inject(Fault::new("PATCH", "/apple-silicon/**", Act::Status(502)).after_effect());
//! println!("SCW_API_URL={} {pool:?}", sim.url());
//! # Ok(()) }
//! ```

mod account;
mod apple;
mod attachment;
mod bill;
mod block;
mod boxes;
mod call;
mod cidr;
pub mod cli;
mod control;
mod core;
mod deed;
mod dice;
mod fault;
mod follow;
mod handle;
mod host;
mod iam;
mod ids;
mod instance;
mod ipam;
mod journal;
mod labels;
mod linux;
mod marketplace;
mod metal;
mod page;
mod prices;
mod projects;
mod refusal;
mod server;
mod settings;
mod sim;
mod snapshot;
mod sorting;
mod strict;
mod table;
mod vpc;
mod words;
mod world;

pub use account::{ApiKey, PermissionSet, Project, Scope};
pub use apple::catalog::{Offer, Os};
pub use apple::life::{Fate, Outcome};
pub use apple::server::{Commitment, Health, Status, VpcStatus};
pub use bill::{Bill, BilledLine, Line, MicroEuro, Plan, Stretch};
pub use boxes::{BoxChange, BoxEvent, BoxFactory, BoxKind, Filesystem, LinuxBox, NoBoxes, Power, PrivateLeg};
pub use cidr::Cidr;
pub use deed::{Deed, DeedError, Minis, NewInstances, NewMetals, Which};
pub use fault::{Act, Fault};
pub use follow::{Event, FollowError, Follower, follow};
pub use handle::Handle;
pub use host::{AddressPlan, Host, HostChange, HostEvent, HostFactory, HostKey, NoHosts};
pub use ids::{BadId, Id, Region, Zone};
pub use instance::catalog::CommercialType;
pub use instance::server::State;
pub use journal::Entry;
pub use linux::{BoxFate, BoxOutcome, Stage};
pub use metal::catalog::{MetalOffer, MetalOs, Period};
pub use metal::server::MetalStatus;
pub use russet_sim_kit::{BadFactor, Factor, FaultId, When};
pub use settings::{
    Delays, DynamicIp, EarlyAttachment, ErrorStyle, Passwords, Permission, PrivateNics, Settings, Vanished, VpcToggle,
};
pub use sim::{Options, Sim, SimError};
pub use snapshot::{Snapshot, SnapshotError};
pub use world::{DEFAULT_ACCESS_KEY, DEFAULT_ORGANIZATION, DEFAULT_PROJECT, DEFAULT_SECRET_KEY};
