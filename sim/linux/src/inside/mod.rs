//! What runs inside an emulated server: a manager in the place of systemd and cloud-init, and the commands that are not the
//! real ones. One program; what it is called as says what it is.

mod cloud_init;
mod data;
mod kernel;
mod moved;
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

pub(crate) use cloud_init::parse as parse_user_data;

/// The command of a unit, without the variables that only a server knows.
pub(crate) fn parse_unit(name: &str, text: &str) -> Option<Vec<String>> {
    let unit = unit::parse(name, &[text.to_owned()]).ok()?;
    Some(unit.start.first()?.argv(&std::collections::BTreeMap::new()))
}

/// Manages the server this process is in. Only for [`crate::Fleet`], which starts it inside.
pub async fn manage() -> anyhow::Result<()> {
    world::manage().await
}
