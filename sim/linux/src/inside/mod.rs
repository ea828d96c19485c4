//! What runs inside an emulated server: a manager in the place of systemd and cloud-init, and the commands that are not the
//! real ones. One program; what it is called as says what it is.

mod cloud_init;
mod data;
mod kernel;
mod network;
mod packages;
pub(crate) mod protocol;
mod reply;
mod service;
pub(crate) mod shim;
mod systemctl;
mod unit;
mod world;

pub use protocol::MANAGE;
pub use shim::{called_as, run as run_stub};

/// Manages the server this process is in. Only for [`crate::Fleet`], which starts it inside.
pub async fn manage() -> anyhow::Result<()> {
    world::manage().await
}
