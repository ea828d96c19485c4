//! Minis that others ordered.

use super::{DeedError, linux, owner_project};
use crate::apple::server::{Commitment, VpcStatus};
use crate::host::HostChange;
use crate::ids::{Id, Zone};
use crate::settings::Passwords;
use crate::world::World;
use jiff::Timestamp;
use std::time::Duration;

/// Minis that are simply there, delivered and ready, as a fleet that was ordered yesterday.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Minis {
    /// The name; with several, a dash and a number are added.
    pub name: String,
    pub count: u32,
    pub zone: Zone,
    #[serde(rename = "type")]
    pub server_type: String,
    /// Which image, by name; none means the default.
    pub os: Option<String>,
    /// Whose; none means the default project.
    pub project_id: Option<Id>,
    /// How long ago they were ordered, in hours. From 24 on they can be deleted.
    pub age_hours: u64,
    /// Whether the private-network feature is on.
    pub vpc: bool,
    /// How they are paid.
    pub commitment: Commitment,
    /// How their credentials are shown.
    pub passwords: Passwords,
}

impl Default for Minis {
    fn default() -> Self {
        Self {
            name: "tuist-pool".to_owned(),
            count: 1,
            zone: Zone::new("fr-par-1"),
            server_type: "M2-L".to_owned(),
            os: None,
            project_id: None,
            age_hours: 48,
            vpc: false,
            commitment: Commitment::Duration24h,
            passwords: Passwords::Shown,
        }
    }
}

impl World {
    pub(super) fn add_minis(&mut self, now: Timestamp, minis: &Minis) -> Result<Vec<Id>, DeedError> {
        let project_id = owner_project(self, minis.project_id.as_ref())?;
        let offer = self.offered(&minis.zone, &minis.server_type)?.clone();
        let os = match &minis.os {
            Some(name) => self.os_named(name)?,
            None => offer.default_os.clone(),
        };
        let order = crate::apple::Order {
            zone: minis.zone.clone(),
            project_id,
            server_type: minis.server_type.clone(),
            os: Some(os.clone()),
            enable_vpc: minis.vpc,
            commitment: minis.commitment,
            bandwidth: 0,
            kext: false,
        };
        let age = jiff::SignedDuration::from_hours(i64::try_from(minis.age_hours).unwrap_or(i64::MAX / 4000));
        let ordered = now.checked_sub(age).unwrap_or(Timestamp::MIN);
        let disclosure = self.settings.delays.disclosure;
        let mut made = Vec::new();
        for number in 1..=minis.count {
            let name = linux::numbered(&minis.name, minis.count, number);
            let id = self.make_server(ordered, &order, &offer, &name, &os);
            // As old as the order itself, so that lists that lag have it too.
            self.apple.servers.change(ordered, &id, |server| {
                server.delivered = true;
                server.passwords = minis.passwords;
                server.vpc_status = if minis.vpc {
                    VpcStatus::VpcEnabled
                } else {
                    VpcStatus::VpcDisabled
                };
                server.installation.disclosed_until =
                    russet_sim_kit::clock::after(now, disclosure.max(Duration::from_secs(1)));
            });
            self.announce(HostChange::Installed, &id);
            made.push(id);
        }
        Ok(made)
    }
}
