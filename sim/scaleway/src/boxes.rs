//! The Linux machines behind Instances and Elastic Metal servers.
//!
//! As with minis ([`crate::host`]), the emulator knows what a server is, not how one behaves. Whoever emulates the machine
//! gets one row per server and is told what changed in it: in process as a [`BoxFactory`], otherwise from `/_sim/boxes` and
//! `/_sim/box-events`.
//!
//! Rows are compared, not announced: whatever changes the world, a row that differs from what was last told is an event.
//! So nothing can be forgotten, and a change that was undone in between never happened.

use crate::host::HostKey;
use crate::ids::{Id, Zone};
use crate::world::World;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// Which product a machine belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoxKind {
    /// A virtual one.
    Instance,
    /// Elastic Metal.
    Metal,
}

/// Whether a machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Power {
    /// It does: its operating system boots, or has booted.
    On,
    /// It does not. Its disk is as it was, unless the generation says otherwise.
    Off,
}

/// The leg of a machine in a private network, as DHCP would configure it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PrivateLeg {
    /// The network itself.
    pub private_network_id: Id,
    /// Address and prefix, for example `172.16.0.2/22`.
    pub address: String,
    /// The MAC, lower case as Linux prints it.
    pub mac: String,
    /// The VLAN on the one NIC of an Elastic Metal server; an Instance has a NIC of its own for it.
    pub vlan: Option<u32>,
}

/// A file system that the installation was asked to make.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Filesystem {
    /// For example `xfs`.
    pub format: String,
    /// Where it is mounted.
    pub mountpoint: String,
}

/// A Linux machine as whoever emulates it must make it.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LinuxBox {
    /// Whose machine it is.
    pub server_id: Id,
    pub kind: BoxKind,
    pub name: String,
    pub zone: Zone,
    /// Its type, for example `PRO2-S`.
    pub commercial_type: String,
    /// 1 for the first installation, one more after each wipe: another generation has nothing of the disk before.
    pub generation: u32,
    /// How often it was started. A number that grew while the power is on is a reboot that nobody saw.
    pub boots: u32,
    /// Whether it runs.
    pub power: Power,
    /// Its public address; none until there is one.
    pub public_ip: Option<IpAddr>,
    /// Its leg in a private network. None also while the network is dark, whatever the API shows.
    pub private: Option<PrivateLeg>,
    /// What the metadata service has: cloud-init.
    pub user_data: Option<String>,
    /// Who may log in.
    pub authorized_keys: Vec<String>,
    pub hostname: String,
    /// The image, for example `ubuntu_noble`.
    pub os: String,
    /// What the disks of an Elastic Metal server were divided into; an Instance has what its image has.
    #[serde(default)]
    pub filesystems: Vec<Filesystem>,
    /// The account of the authorised keys.
    pub ssh_user: String,
    /// Where SSH listens.
    pub ssh_port: u16,
    /// The host key of this installation.
    pub host_key: HostKey,
}

impl LinuxBox {
    /// An Instance that is on for the first time, with nothing but a name.
    pub fn instance(server_id: Id, name: &str) -> Self {
        Self {
            server_id,
            kind: BoxKind::Instance,
            name: name.to_owned(),
            zone: Zone::new("fr-par-1"),
            commercial_type: "PRO2-S".to_owned(),
            generation: 1,
            boots: 1,
            power: Power::On,
            public_ip: None,
            private: None,
            user_data: None,
            authorized_keys: Vec::new(),
            hostname: name.to_owned(),
            os: "ubuntu_noble".to_owned(),
            filesystems: Vec::new(),
            ssh_user: "root".to_owned(),
            ssh_port: 22,
            host_key: HostKey::new([1; 32]),
        }
    }
}

impl fmt::Debug for LinuxBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinuxBox")
            .field("server_id", &self.server_id)
            .field("kind", &self.kind)
            .field("name", &self.name)
            .field("generation", &self.generation)
            .field("boots", &self.boots)
            .field("power", &self.power)
            .field("public_ip", &self.public_ip)
            .field("private", &self.private)
            .finish_non_exhaustive()
    }
}

/// What happened to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoxChange {
    /// It is new.
    Added,
    /// Some of its fields are others.
    Changed,
    /// It belongs to nobody any more; the row is the last one.
    Gone,
}

/// One entry of the event feed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BoxEvent {
    /// Counts from 1 in each run of the emulator.
    pub number: u64,
    /// What happened.
    pub change: BoxChange,
    /// The names of the fields that changed.
    pub fields: Vec<String>,
    /// The row as it is now.
    #[serde(rename = "box")]
    pub row: LinuxBox,
}

/// Somebody who makes the Linux machines.
///
/// Events arrive one at a time and in order, on a task of the emulator, as with [`crate::HostFactory`]. When the emulator
/// starts with servers, each is announced as added.
pub trait BoxFactory: Send + Sync + 'static {
    /// Something happened to a machine.
    fn changed(&self, event: &BoxEvent) -> impl Future<Output = ()> + Send;
}

/// Nobody: the machines exist on paper only.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoBoxes;

impl BoxFactory for NoBoxes {
    async fn changed(&self, _: &BoxEvent) {}
}

/// What was told so far.
#[derive(Default)]
pub(crate) struct Told {
    rows: BTreeMap<Id, LinuxBox>,
}

impl Told {
    /// What is to be told now that the rows are these.
    pub(crate) fn catch_up(&mut self, present: Vec<LinuxBox>) -> Vec<(BoxChange, Vec<String>, LinuxBox)> {
        let present: BTreeMap<Id, LinuxBox> = present.into_iter().map(|row| (row.server_id.clone(), row)).collect();
        let mut news = Vec::new();
        for row in self.rows.values().filter(|row| !present.contains_key(&row.server_id)) {
            news.push((BoxChange::Gone, Vec::new(), row.clone()));
        }
        for row in present.values() {
            match self.rows.get(&row.server_id) {
                None => news.push((BoxChange::Added, Vec::new(), row.clone())),
                Some(before) if before != row => news.push((BoxChange::Changed, differing(before, row), row.clone())),
                Some(_) => {}
            }
        }
        self.rows = present;
        news
    }
}

/// The names of the fields in which two rows differ.
fn differing(before: &LinuxBox, now: &LinuxBox) -> Vec<String> {
    let fields = |row: &LinuxBox| match serde_json::to_value(row) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let before = fields(before);
    let now = fields(now).into_iter();
    now.filter(|(name, value)| before.get(name) != Some(value))
        .map(|(name, _)| name)
        .collect()
}

impl World {
    /// Every machine there is.
    pub(crate) fn boxes(&self) -> Vec<LinuxBox> {
        let mut all = self.instance_boxes();
        all.extend(self.metal_boxes());
        all
    }

    /// Every Instance of every project.
    pub(crate) fn all_instances(&self) -> Vec<Value> {
        let servers = self.instance.servers.iter();
        servers.map(|server| self.show_instance(server)).collect()
    }

    /// Every Elastic Metal server of every project.
    pub(crate) fn all_metals(&self) -> Vec<Value> {
        let servers = self.metal.servers.iter();
        servers.map(|server| self.show_metal(server)).collect()
    }

    /// Every volume, local or block.
    pub(crate) fn all_volumes(&self) -> Vec<Value> {
        let local = self.instance.volumes.iter().map(|volume| self.show_volume(volume));
        local
            .chain(self.block.volumes.iter().map(crate::block::Volume::wire))
            .collect()
    }

    /// Every public address somebody keeps.
    pub(crate) fn all_addresses(&self) -> Vec<Value> {
        self.instance.ips.iter().map(|ip| self.show_ip(ip)).collect()
    }

    /// The name of a Linux server.
    pub(crate) fn linux_name(&self, id: &Id) -> Option<&str> {
        let instance = self.instance.servers.get(id).map(|server| server.name.as_str());
        instance.or_else(|| self.metal.servers.get(id).map(|server| server.name.as_str()))
    }

    /// Whether a Linux server is on a private network.
    pub(crate) fn linux_uses(&self, network: &Id) -> bool {
        let instance = self.instance.nics.iter().any(|nic| nic.private_network_id == *network);
        let mut metals = self.metal.attachments.iter();
        instance || metals.any(|attachment| attachment.private_network_id == *network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> LinuxBox {
        LinuxBox {
            boots: 0,
            power: Power::Off,
            ..LinuxBox::instance(Id::named("a"), "a")
        }
    }

    #[test]
    fn only_what_differs_is_told_and_by_name() {
        let mut told = Told::default();
        assert_eq!(told.catch_up(vec![row()])[0].0, BoxChange::Added);
        assert!(told.catch_up(vec![row()]).is_empty());
        let on = LinuxBox {
            power: Power::On,
            boots: 1,
            ..row()
        };
        let news = told.catch_up(vec![on]);
        assert_eq!(
            (news[0].0, news[0].1.as_slice()),
            (BoxChange::Changed, ["boots".to_owned(), "power".to_owned()].as_slice())
        );
        assert_eq!(told.catch_up(Vec::new())[0].0, BoxChange::Gone);
    }
}
