//! An Elastic Metal server, and how the API shows it.

use crate::host::HostKey;
use crate::ids::{Id, Zone};
use crate::refusal::Refusal;
use crate::table::rows;
use crate::words::words;
use crate::world::World;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::net::IpAddr;

words! {
    /// What a server is doing.
    pub enum MetalStatus {
        /// Ordered; nobody has picked a machine yet.
        Ordered = "ordered",
        /// A machine is being prepared.
        Delivering = "delivering",
        /// Delivered, installed or not.
        Ready = "ready",
        /// Going off.
        Stopping = "stopping",
        /// Off, and paid for.
        Stopped = "stopped",
        /// Booting.
        Starting = "starting",
        /// Something failed.
        Error = "error",
        /// About to be gone.
        Deleting = "deleting",
        /// Nothing goes.
        Locked = "locked",
        /// There was none left after all.
        OutOfStock = "out_of_stock",
    }
}

pub(crate) use MetalStatus as Status;

impl MetalStatus {
    pub(crate) const ALL: [Self; 10] = [
        Self::Ordered,
        Self::Delivering,
        Self::Ready,
        Self::Stopping,
        Self::Stopped,
        Self::Starting,
        Self::Error,
        Self::Deleting,
        Self::Locked,
        Self::OutOfStock,
    ];
}

/// Where an installation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InstallStatus {
    ToInstall,
    Installing,
    Completed,
    Error,
}

/// What is on the disk, or will be.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Installation {
    pub(crate) os: Id,
    pub(crate) hostname: String,
    pub(crate) user: String,
    pub(crate) ssh_key_ids: Vec<Id>,
    pub(crate) schema: Value,
    pub(crate) status: InstallStatus,
    /// The public keys behind the ids when the installation began.
    pub(crate) authorized_keys: Vec<String>,
    pub(crate) host_key: HostKey,
}

/// What happens when the present state ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Then {
    Deliver,
    Delivered,
    FailedDelivery,
    OutOfStock,
    Rebooted,
    Stopped,
    FailedPower,
    Gone,
}

/// What happens next to the installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InstallStep {
    Begins,
    Ends,
    Fails,
}

/// A change that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Pending<T> {
    pub(crate) then: T,
    /// None: it is stuck.
    pub(crate) at: Option<Timestamp>,
}

/// Where an option stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum OptionStatus {
    #[serde(rename = "option_status_enable")]
    Enable,
    #[serde(rename = "option_status_enabling")]
    Enabling,
    #[serde(rename = "option_status_disabling")]
    Disabling,
    #[serde(rename = "option_status_error")]
    Error,
}

/// An option of a server.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct ServerOption {
    pub(crate) id: Id,
    pub(crate) status: OptionStatus,
    pub(crate) fails: bool,
    pub(crate) until: Option<Timestamp>,
    /// Its line on the bill.
    pub(crate) line: Id,
}

/// Something that happened.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Event {
    pub(crate) id: Id,
    pub(crate) action: String,
    pub(crate) at: Timestamp,
}

/// An Elastic Metal server.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Server {
    pub(crate) id: Id,
    pub(crate) zone: Zone,
    pub(crate) offer: Id,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) project_id: Id,
    pub(crate) organization_id: Id,
    pub(crate) tags: Vec<String>,
    pub(crate) protected: bool,
    pub(crate) status: Status,
    pub(crate) pending: Option<Pending<Then>>,
    /// Known from delivery on.
    pub(crate) address: Option<IpAddr>,
    pub(crate) mac: String,
    pub(crate) install: Option<Installation>,
    /// What the API will show as `install` once it has noticed.
    pub(crate) next_install: Option<Installation>,
    pub(crate) installing: Option<Pending<InstallStep>>,
    pub(crate) options: Vec<ServerOption>,
    /// The text, not what carries it.
    pub(crate) user_data: Option<String>,
    /// 0 before the first installation, one more with each.
    pub(crate) generation: u32,
    pub(crate) boots: u32,
    pub(crate) events: Vec<Event>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

rows!(Server);

impl Server {
    pub(crate) fn transient(&self) -> Refusal {
        let state = if self.installing.is_some() && self.status == Status::Ready {
            "installing"
        } else {
            self.status.as_str()
        };
        Refusal::Transient {
            resource: "server",
            id: self.id.clone(),
            state: state.to_owned(),
        }
    }

    /// Refuses what needs a server at rest: delivered, and nothing under way.
    pub(crate) fn at_rest(&self) -> Result<(), Refusal> {
        let resting = matches!(self.status, Status::Ready | Status::Stopped | Status::Error);
        if resting && self.installing.is_none() {
            return Ok(());
        }
        match self.status {
            Status::OutOfStock => Err(Refusal::Precondition {
                precondition: "resource_not_usable",
                help: "the server was never delivered".to_owned(),
            }),
            _ => Err(self.transient()),
        }
    }

    /// Whether an option is there and done.
    pub(crate) fn enabled(&self, ids: &[Id]) -> bool {
        let mut options = self.options.iter();
        options.any(|option| ids.contains(&option.id) && option.status == OptionStatus::Enable)
    }
}

impl World {
    /// A server as GET shows it.
    pub(crate) fn show_metal(&self, server: &Server) -> Value {
        let catalog = &self.metal.catalog;
        let offer = catalog.offer(&server.zone, &server.offer);
        let address = server.address.map(|address| {
            json!({
                "id": Id::named(&format!("metal-ip/{}", server.id)),
                "address": address,
                "reverse": format!("{}.instances.example", server.id),
                "version": if address.is_ipv6() { "IPv6" } else { "IPv4" },
                "reverse_status": "active",
                "reverse_status_message": "",
            })
        });
        let install = server.install.as_ref().map(|install| {
            json!({
                "os_id": install.os,
                "hostname": install.hostname,
                "ssh_key_ids": install.ssh_key_ids,
                "status": install.status,
                "user": install.user,
                "service_user": "",
                "service_url": "",
                "partitioning_schema": install.schema,
            })
        });
        let option = |option: &ServerOption| {
            let extra = catalog.extra(&option.id)?;
            Some(extra.typed(json!({
                "id": option.id,
                "name": extra.name,
                "status": option.status,
                "manageable": true,
                "expires_at": null,
            })))
        };
        json!({
            "id": server.id,
            "organization_id": server.organization_id,
            "project_id": server.project_id,
            "name": server.name,
            "description": server.description,
            "updated_at": server.updated_at,
            "created_at": server.created_at,
            "status": server.status,
            "offer_id": server.offer,
            "offer_name": offer.map(|offer| offer.name.as_str()),
            "tags": server.tags,
            "ips": address.into_iter().collect::<Vec<_>>(),
            "domain": format!("{}.instances.example", server.id),
            "boot_type": "normal",
            "zone": server.zone,
            "install": install,
            "ping_status": "ping_status_unknown",
            "options": server.options.iter().filter_map(option).collect::<Vec<_>>(),
            "rescue_server": null,
            "protected": server.protected,
            "user_data": server.user_data.as_ref().map(|text| BASE64.encode(text)),
        })
    }
}
