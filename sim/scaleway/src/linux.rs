//! What Instances and Elastic Metal have in common: the fate of changes, and public addresses.

use crate::deed::Which;
use crate::ids::Id;
use crate::world::World;
use jiff::Timestamp;
use russet_sim_kit::clock::after;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// A change of a Linux server that takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// An Instance is powered on, or rebooted.
    Boot,
    /// An Instance is powered off, or terminated.
    Stop,
    /// A private NIC of an Instance is made.
    Nic,
    /// Elastic Metal is delivered.
    Delivery,
    /// Elastic Metal is installed.
    Install,
    /// Elastic Metal is rebooted, started or stopped.
    Power,
    /// An option is switched on or off.
    Option,
    /// A private network is attached.
    Attachment,
    /// Elastic Metal is deleted.
    Deletion,
}

/// How such a change ends, if not well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoxOutcome {
    /// It does not.
    Stuck,
    /// In an error, in whatever way the product shows one.
    Error,
    /// A delivery: there was none left after all.
    OutOfStock,
}

/// What shall become of changes of Linux servers that begin from now on.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoxFate {
    /// Which changes.
    pub stage: Stage,
    /// Of this server; none means any.
    #[serde(default)]
    pub server: Option<Which>,
    /// How they end.
    pub outcome: BoxOutcome,
    /// How many of them.
    #[serde(default = "once")]
    pub times: u32,
}

fn once() -> u32 {
    1
}

/// What both products share.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Linux {
    pub(crate) fates: Vec<BoxFate>,
    /// Labels of images that cannot be had any more; servers that have one keep it.
    #[serde(default)]
    pub(crate) retired: BTreeSet<String>,
    /// How many public addresses were ever given.
    addresses: u32,
}

/// When a change ends, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Course {
    /// None: it does not.
    pub(crate) at: Option<Timestamp>,
    pub(crate) wrong: Option<BoxOutcome>,
}

impl Course {
    /// All goes well.
    pub(crate) fn smooth(now: Timestamp, takes: Duration) -> Self {
        Self {
            at: Some(after(now, takes)),
            wrong: None,
        }
    }
}

impl World {
    /// The course of a change that begins now; each decision about it counts down.
    pub(crate) fn course(&mut self, now: Timestamp, stage: Stage, id: &Id, takes: Duration) -> Course {
        let name = self.linux_name(id).map(str::to_owned);
        let fits = |fate: &&mut BoxFate| {
            fate.stage == stage
                && match &fate.server {
                    None => true,
                    Some(Which::Id(wanted)) => wanted == id,
                    Some(Which::Name(wanted)) => Some(wanted) == name.as_ref(),
                }
        };
        let fates = &mut self.linux.fates;
        let outcome = fates.iter_mut().find(fits).map(|fate| {
            fate.times = fate.times.saturating_sub(1);
            fate.outcome
        });
        fates.retain(|fate| fate.times > 0);
        match outcome {
            Some(BoxOutcome::Stuck) => Course { at: None, wrong: None },
            wrong => Course {
                wrong,
                ..Course::smooth(now, takes)
            },
        }
    }

    /// A public address nobody has: not the network, its router, nor its broadcast. They go round, so that one that was given back is not given out at once.
    pub(crate) fn public_address(&mut self) -> Option<IpAddr> {
        let range = self.settings.linux_public;
        let taken = self.public_addresses();
        let size = range.size().saturating_sub(3).min(1 << 20);
        let size = u32::try_from(size).unwrap_or(u32::MAX).max(1);
        for _ in 0..size {
            let offset = 2 + self.linux.addresses % size;
            self.linux.addresses = self.linux.addresses.wrapping_add(1);
            let address = range.nth(u128::from(offset)).filter(|address| !taken.contains(address));
            if address.is_some() {
                return address;
            }
        }
        None
    }

    fn public_addresses(&self) -> Vec<IpAddr> {
        let dynamic = self
            .instance
            .servers
            .iter()
            .filter_map(|server| server.dynamic_ip.as_ref());
        let flexible = self.instance.ips.iter().map(|ip| ip.address);
        let metals = self.metal.servers.iter().filter_map(|server| server.address);
        dynamic.map(|ip| ip.address).chain(flexible).chain(metals).collect()
    }
}
