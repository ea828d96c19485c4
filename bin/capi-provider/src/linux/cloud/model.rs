//! From what the API says to what decisions need.

use std::net::IpAddr;

use russet_scaleway::{baremetal, instance};

use crate::linux::server::{Attachment, AttachmentState, Networking, Server, State, Volume, VolumeKind};

pub(super) fn instance(it: &instance::Instance) -> Server {
    use instance::{State as Word, VolumeType};
    Server {
        id: it.id.clone(),
        name: it.name.clone(),
        project: it.project.clone(),
        tags: it.tags.clone(),
        type_: it.commercial_type.clone(),
        os: it.image.as_ref().map(|image| image.id.to_string()),
        user: "root".to_owned(),
        state: match &it.state {
            // In place is off, but on its hypervisor: it has to be switched off before it can be deleted, and on to be of use.
            Word::Running | Word::StoppedInPlace => State::Running,
            Word::Stopped => State::Stopped,
            Word::Starting => State::Starting,
            Word::Stopping => State::Stopping,
            Word::Locked => State::Locked,
            Word::Other(word) => State::Busy(word.clone()),
        },
        address: it.public_ipv4().map(IpAddr::V4),
        networking: Networking::On,
        volumes: it
            .volumes
            .values()
            .filter(|volume| volume.volume_type != VolumeType::Scratch)
            .map(|volume| Volume {
                id: volume.id.to_string(),
                kind: if volume.volume_type == VolumeType::Block {
                    VolumeKind::Block
                } else {
                    VolumeKind::Local
                },
            })
            .collect(),
        ips: it
            .public_ips()
            .filter(|ip| !ip.dynamic)
            .filter_map(|ip| ip.id.as_ref().map(ToString::to_string))
            .collect(),
    }
}

pub(super) fn metal(it: &baremetal::Server) -> Server {
    use baremetal::OptionStatus;
    Server {
        id: it.id.clone(),
        name: it.name.clone(),
        project: it.project_id.clone(),
        tags: it.tags.clone(),
        type_: it.offer_name.clone(),
        os: it.install.as_ref().map(|install| install.os_id.to_string()),
        user: it
            .install
            .as_ref()
            .map(|install| install.user.clone())
            .filter(|user| !user.is_empty())
            .unwrap_or_else(|| "ubuntu".to_owned()),
        state: metal_state(it),
        address: it.public_ipv4().map(IpAddr::V4),
        networking: match it.private_network_option().map(|option| &option.status) {
            None => Networking::Off,
            Some(OptionStatus::Enabled) => Networking::On,
            Some(OptionStatus::Error) => Networking::Failed,
            Some(_) => Networking::Enabling,
        },
        volumes: Vec::new(),
        ips: Vec::new(),
    }
}

fn metal_state(it: &baremetal::Server) -> State {
    use baremetal::{InstallStatus, Status};
    match &it.status {
        Status::Ordered | Status::Delivering => State::Ordered,
        Status::OutOfStock | Status::Error => State::Failed(it.status.as_str().to_owned()),
        Status::Deleting => State::Deleting,
        Status::Locked => State::Locked,
        Status::Stopped => State::Stopped,
        Status::Starting => State::Starting,
        Status::Stopping => State::Stopping,
        Status::Ready => match it.install.as_ref().map(|install| &install.status) {
            None => State::Bare,
            Some(InstallStatus::Completed) => State::Running,
            Some(InstallStatus::Error) => State::Failed("an installation that failed".to_owned()),
            Some(InstallStatus::ToInstall | InstallStatus::Installing) => State::Installing,
            Some(InstallStatus::Other(word)) => State::Busy(word.clone()),
        },
        other => State::Busy(other.as_str().to_owned()),
    }
}

pub(super) fn nic(it: &instance::PrivateNic) -> Attachment {
    Attachment {
        id: it.id.to_string(),
        network: it.private_network_id.clone(),
        // A card is usable when the server starts; until then it may stay in `syncing`.
        state: match it.state {
            instance::NicState::SyncingError => AttachmentState::Failed,
            _ if it.mac_address.is_some() => AttachmentState::Attached,
            _ => AttachmentState::Pending,
        },
        mac: it.mac_address.as_ref().map(|mac| mac.as_str().to_owned()),
        vlan: None,
    }
}

pub(super) fn attachment(it: &baremetal::Attachment) -> Attachment {
    Attachment {
        id: it.id.clone(),
        network: it.private_network_id.clone(),
        state: match it.status {
            baremetal::AttachmentStatus::Error | baremetal::AttachmentStatus::Locked => AttachmentState::Failed,
            baremetal::AttachmentStatus::Detaching => AttachmentState::Leaving,
            baremetal::AttachmentStatus::Attached if it.vlan.is_some() => AttachmentState::Attached,
            _ => AttachmentState::Pending,
        },
        mac: None,
        vlan: it.vlan,
    }
}
