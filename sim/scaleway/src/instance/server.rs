//! An Instance, and how the API shows it.

use super::catalog::{Image, ImageKind};
use super::date;
use crate::host::HostKey;
use crate::ids::{Id, Zone};
use crate::table::rows;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What an Instance is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Off, and not paid for.
    Stopped,
    /// Booting.
    Starting,
    /// On.
    Running,
    /// Going off.
    Stopping,
    /// Off, but its place is kept and paid for.
    #[serde(rename = "stopped in place")]
    StoppedInPlace,
    /// Nothing goes.
    Locked,
}

impl State {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::StoppedInPlace => "stopped in place",
            Self::Locked => "locked",
        }
    }

    /// What may be asked of it.
    pub(crate) fn actions(self) -> &'static [&'static str] {
        match self {
            Self::Stopped => &["poweron", "backup"],
            Self::Running => &["poweroff", "terminate", "reboot", "stop_in_place", "backup"],
            Self::StoppedInPlace => &["poweron", "poweroff", "terminate", "backup"],
            Self::Starting | Self::Stopping | Self::Locked => &[],
        }
    }

    /// Whether it takes up a place, and is paid for.
    pub(crate) fn placed(self) -> bool {
        !matches!(self, Self::Stopped)
    }
}

/// What happens when the present state ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Then {
    Running,
    Stopped,
    /// It did not boot.
    Failed,
    StoppedInPlace,
    Gone,
}

/// A change that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Pending {
    pub(crate) then: Then,
    /// None: it is stuck.
    pub(crate) at: Option<Timestamp>,
}

/// The address an Instance has while it runs.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct DynamicIp {
    pub(crate) id: Id,
    pub(crate) address: IpAddr,
}

/// A volume in its slot.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Slot {
    pub(crate) volume: Id,
    pub(crate) kind: ImageKind,
    pub(crate) boot: bool,
}

/// An Instance.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Server {
    pub(crate) id: Id,
    pub(crate) zone: Zone,
    pub(crate) name: String,
    pub(crate) commercial_type: String,
    pub(crate) project_id: Id,
    pub(crate) organization_id: Id,
    pub(crate) tags: Vec<String>,
    pub(crate) image: Id,
    pub(crate) state: State,
    pub(crate) state_detail: String,
    pub(crate) pending: Option<Pending>,
    pub(crate) dynamic_ip_required: bool,
    pub(crate) dynamic_ip: Option<DynamicIp>,
    pub(crate) slots: BTreeMap<String, Slot>,
    pub(crate) mac: String,
    pub(crate) protected: bool,
    pub(crate) user_data: BTreeMap<String, String>,
    /// The project's keys when it last booted.
    pub(crate) authorized_keys: Vec<String>,
    pub(crate) host_key: HostKey,
    pub(crate) boots: u32,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

rows!(Server);

impl Server {
    /// The host name made of the name.
    pub(crate) fn hostname(&self) -> String {
        let clean = |letter: char| {
            if letter.is_ascii_alphanumeric() || letter == '-' {
                letter.to_ascii_lowercase()
            } else {
                '-'
            }
        };
        self.name.chars().map(clean).collect()
    }

    /// What a public address looks like inside the server.
    pub(crate) fn wire_address(id: &Id, address: IpAddr, dynamic: bool, tags: &[String]) -> Value {
        json!({
            "id": id,
            "address": address,
            "dynamic": dynamic,
            "gateway": "62.210.0.1",
            "netmask": "32",
            "family": "inet",
            "provisioning_mode": "dhcp",
            "tags": tags,
            "state": "attached",
            "ipam_id": Id::named(id.as_str()),
        })
    }

    /// As the API shows it, without what is in other tables.
    pub(crate) fn wire(&self, image: Option<&Image>, addresses: &[Value], volumes: &Map<String, Value>) -> Value {
        let location = self.state.placed().then(|| {
            json!({
                "cluster_id": "5",
                "hypervisor_id": "701",
                "node_id": "3",
                "platform_id": "30",
                "zone_id": self.zone,
            })
        });
        json!({
            "id": self.id,
            "name": self.name,
            "arch": image.map(|image| image.arch.as_str()),
            "commercial_type": self.commercial_type,
            "boot_type": "local",
            "organization": self.organization_id,
            "project": self.project_id,
            "hostname": self.hostname(),
            "image": image.map(|image| wire_image(image, self.created_at)),
            "volumes": volumes,
            "tags": self.tags,
            "state": self.state,
            "protected": self.protected,
            "state_detail": self.state_detail,
            "public_ip": addresses.first(),
            "public_ips": addresses,
            "mac_address": self.mac,
            "routed_ip_enabled": true,
            "ipv6": null,
            "extra_networks": [],
            "dynamic_ip_required": self.dynamic_ip_required,
            "enable_ipv6": false,
            "private_ip": null,
            "creation_date": date(self.created_at),
            "modification_date": date(self.updated_at),
            "bootscript": null,
            "security_group": {"id": security_group(&self.project_id, &self.zone), "name": "Default security group"},
            "location": location,
            "maintenances": [],
            "allowed_actions": self.state.actions(),
            "placement_group": null,
            "zone": self.zone,
            "filesystems": [],
            "end_of_service": false,
        })
    }
}

/// The one security group of a project in a zone.
pub(crate) fn security_group(project: &Id, zone: &Zone) -> Id {
    Id::named(&format!("security-group/{project}/{zone}"))
}

fn wire_image(image: &Image, at: Timestamp) -> Value {
    let owner = Id::named("the vendor");
    let (root_type, size) = match image.kind {
        ImageKind::InstanceLocal => ("l_ssd", 10_000_000_000_u64),
        ImageKind::InstanceSbs => ("sbs_snapshot", 0),
    };
    json!({
        "id": image.id,
        "name": image.name,
        "organization": owner,
        "project": owner,
        "root_volume": {
            "id": Id::named(&format!("snapshot/{}", image.id)),
            "name": if size == 0 { "" } else { image.name.as_str() },
            "volume_type": root_type,
            "size": size,
        },
        "extra_volumes": {},
        "public": true,
        "arch": image.arch,
        "creation_date": date(at),
        "modification_date": date(at),
        "default_bootscript": null,
        "from_server": "",
        "state": "available",
        "tags": [],
        "zone": image.zone,
    })
}
