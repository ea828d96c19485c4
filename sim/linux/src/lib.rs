//! Emulated Linux servers, the machines behind Instances and Elastic Metal of the emulated Scaleway API.

pub mod cli;
mod disk;
mod error;
mod fault;
mod fleet;
mod follow;
mod image;
pub mod inside;
mod mounts;
mod row;
mod server;

pub use error::Error;
pub use fault::{Fault, SshFault};
pub use fleet::{Fleet, Options, tools};
pub use follow::follow;
pub use inside::protocol::CloudInit;
pub use row::{Kind, Power, PrivateLeg, Row};
pub use server::{Phase, State};
