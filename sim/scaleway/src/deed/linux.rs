//! What others do to Linux servers.

use super::{DeedError, Kind, Which, owner_project};
use crate::ids::{Id, Zone};
use crate::instance::Order;
use crate::instance::catalog::ImageKind;
use crate::instance::server::State;
use crate::metal::catalog::{ExtraKind, Period};
use crate::metal::server::MetalStatus;
use crate::world::World;
use jiff::Timestamp;

/// Instances that are simply there, as a colleague's of yesterday.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewInstances {
    /// The name; with several, a dash and a number are added.
    pub name: String,
    pub count: u32,
    pub zone: Zone,
    pub commercial_type: String,
    /// Which image, by label.
    pub image: String,
    /// Whose; none means the default project.
    pub project_id: Option<Id>,
    pub tags: Vec<String>,
    /// Whether they run.
    pub running: bool,
    /// Whether they have a public address when they run.
    pub dynamic_ip: bool,
}

impl Default for NewInstances {
    fn default() -> Self {
        Self {
            name: "instance".to_owned(),
            count: 1,
            zone: Zone::new("fr-par-1"),
            commercial_type: "PRO2-S".to_owned(),
            image: "ubuntu_noble".to_owned(),
            project_id: None,
            tags: Vec::new(),
            running: true,
            dynamic_ip: true,
        }
    }
}

/// Elastic Metal servers that are simply there, delivered and installed, as a pool that was ordered yesterday.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewMetals {
    /// The name; with several, a dash and a number are added.
    pub name: String,
    pub count: u32,
    pub zone: Zone,
    /// Which offer, by name.
    pub offer: String,
    /// How they are paid.
    pub period: Period,
    /// Which system, by label.
    pub os: String,
    /// Whose; none means the default project.
    pub project_id: Option<Id>,
    pub tags: Vec<String>,
    /// Whether the option for private networks is enabled.
    pub private_network: bool,
}

impl Default for NewMetals {
    fn default() -> Self {
        Self {
            name: "tuist-kura-em".to_owned(),
            count: 1,
            zone: Zone::new("fr-par-1"),
            offer: "EM-B220E-NVME".to_owned(),
            period: Period::Hourly,
            os: "ubuntu_noble".to_owned(),
            project_id: None,
            tags: Vec::new(),
            private_network: false,
        }
    }
}

/// The name of one of several.
pub(super) fn numbered(name: &str, count: u32, number: u32) -> String {
    if count == 1 {
        name.to_owned()
    } else {
        format!("{name}-{number}")
    }
}

impl World {
    pub(super) fn add_instances(&mut self, now: Timestamp, new: &NewInstances) -> Result<Vec<Id>, DeedError> {
        let project_id = owner_project(self, new.project_id.as_ref())?;
        let no_offer = || DeedError::NoOffer {
            zone: new.zone.clone(),
            server_type: new.commercial_type.clone(),
        };
        let catalog = &self.instance.catalog;
        let offered = catalog
            .commercial_type(&new.zone, &new.commercial_type)
            .ok_or_else(no_offer)?;
        let image = catalog.images.iter().find(|image| {
            image.label == new.image
                && image.zone == new.zone
                && image.kind == ImageKind::InstanceSbs
                && image.arch == offered.arch
        });
        let image = image.ok_or_else(|| DeedError::NoOs(new.image.clone()))?.id.clone();
        let mut made = Vec::new();
        for number in 1..=new.count {
            let order = Order {
                zone: new.zone.clone(),
                name: numbered(&new.name, new.count, number),
                project_id: project_id.clone(),
                commercial_type: new.commercial_type.clone(),
                image: image.clone(),
                tags: new.tags.clone(),
                dynamic_ip_required: new.dynamic_ip,
                protected: false,
                volumes: std::collections::BTreeMap::new(),
            };
            let id = self.order_instance(now, &order).map_err(|_| no_offer())?;
            if new.running {
                self.power_on(now, &id).map_err(|_| no_offer())?;
                self.instance.servers.change(now, &id, |server| server.pending = None);
                self.run(now, &id);
            }
            made.push(id);
        }
        Ok(made)
    }

    pub(super) fn add_metals(&mut self, now: Timestamp, new: &NewMetals) -> Result<Vec<Id>, DeedError> {
        let project_id = owner_project(self, new.project_id.as_ref())?;
        let no_offer = || DeedError::NoOffer {
            zone: new.zone.clone(),
            server_type: new.offer.clone(),
        };
        let catalog = &self.metal.catalog;
        let offer = catalog
            .offer_named(&new.zone, &new.offer, new.period)
            .ok_or_else(no_offer)?;
        let os = catalog.systems.iter().find(|os| os.label == new.os);
        let os = os.ok_or_else(|| DeedError::NoOs(new.os.clone()))?.id.clone();
        let option = catalog
            .extras
            .iter()
            .find(|extra| extra.kind == ExtraKind::PrivateNetwork && extra.period == new.period && new.private_network);
        let options: Vec<Id> = option.map(|extra| extra.id.clone()).into_iter().collect();
        let offer = offer.id.clone();
        let mut made = Vec::new();
        for number in 1..=new.count {
            let name = numbered(&new.name, new.count, number);
            if let Some(left) = self.metal.catalog.left_mut(&new.zone, &new.offer) {
                *left = left.saturating_add(1);
            }
            let order = crate::metal::Order {
                zone: new.zone.clone(),
                offer: offer.clone(),
                name: name.clone(),
                description: String::new(),
                project_id: project_id.clone(),
                tags: new.tags.clone(),
                protected: false,
                install: None,
                options: options.clone(),
                user_data: None,
            };
            let id = self.order_metal(now, &order).map_err(|_| no_offer())?;
            self.deliver_installed(now, &id, os.clone(), name);
            made.push(id);
        }
        Ok(made)
    }

    /// Somebody renames a Linux server.
    pub(super) fn rename_linux(&mut self, now: Timestamp, kind: Kind, id: &Id, name: String) {
        match kind {
            Kind::Mini => {}
            Kind::Instance => {
                self.instance.servers.change(now, id, |server| {
                    server.name = name;
                    server.updated_at = now;
                });
            }
            Kind::Metal => {
                self.metal.servers.change(now, id, |server| {
                    server.name = name;
                    server.updated_at = now;
                });
            }
        }
    }

    /// Somebody deletes a Linux server, whatever its state.
    pub(super) fn vanish_linux(&mut self, now: Timestamp, kind: Kind, id: &Id) {
        match kind {
            Kind::Mini => {}
            Kind::Instance => self.remove_instance(now, id, crate::instance::LocalVolumes::StayBehind),
            Kind::Metal => self.remove_metal(now, id),
        }
    }

    /// What is stuck about a Linux server ends well, now.
    pub(super) fn unstick_linux(&mut self, now: Timestamp, kind: Kind, id: &Id) {
        match kind {
            Kind::Mini => {}
            Kind::Instance => self.unstick_instance(now, id),
            Kind::Metal => self.unstick_metal(now, id),
        }
    }

    fn unstick_instance(&mut self, now: Timestamp, id: &Id) {
        self.instance.servers.change(now, id, |server| {
            if let Some(pending) = &mut server.pending {
                pending.at = Some(now);
            }
        });
        let nics = self
            .instance
            .nics
            .iter()
            .filter(|nic| nic.server_id == *id && nic.stuck());
        for nic in nics.map(|nic| nic.id.clone()).collect::<Vec<_>>() {
            self.instance.nics.change(now, &nic, |nic| nic.until = Some(now));
        }
    }

    /// The vendor puts a Linux server into a state; what was under way is off.
    pub(super) fn set_state(&mut self, now: Timestamp, server: &Which, state: &str) -> Result<(), DeedError> {
        let (kind, id) = self.which(server)?;
        let no_state = || DeedError::NoState(state.to_owned());
        let parsed = serde_json::Value::String(state.to_owned());
        match kind {
            Kind::Mini => return Err(no_state()),
            Kind::Instance => {
                let state: State = serde_json::from_value(parsed).map_err(|_| no_state())?;
                self.force_instance(now, &id, state);
            }
            Kind::Metal => {
                let status: MetalStatus = serde_json::from_value(parsed).map_err(|_| no_state())?;
                self.force_metal(now, &id, status);
            }
        }
        Ok(())
    }
}
