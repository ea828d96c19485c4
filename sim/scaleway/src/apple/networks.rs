//! Private networks of a mini, which come with a feature that is switched on first.

use crate::account::Action;
use crate::attachment::calls::{self, At};
use crate::attachment::{Product, Version};
use crate::call::{Answer, Reply};
use crate::ids::{Id, Zone};
use crate::refusal::Refusal;
use crate::settings::Permission;
use crate::world::{Caller, World};
use jiff::Timestamp;

use super::server::VpcStatus;

impl World {
    /// Ends what is due.
    pub(crate) fn settle_attachments(&mut self, now: Timestamp) {
        let all = self.apple.attachments.iter();
        let mut due: Vec<(Timestamp, Id)> = all
            .filter_map(|attachment| Some((attachment.until.filter(|at| *at <= now)?, attachment.id.clone())))
            .collect();
        due.sort();
        for (at, id) in due {
            self.end_attachment(Product::Apple, at, &id);
        }
    }

    /// The feature was switched off.
    pub(crate) fn detach_all(&mut self, now: Timestamp, server: &Id) {
        for attachment in self.apple.attachments.ids_of(server) {
            self.detach(Product::Apple, now, &attachment);
        }
    }

    /// Where a mini is and whose, if it can be attached to anything.
    pub(crate) fn attachable_mini(&self, server: &Id) -> Result<(Zone, Id), Refusal> {
        let Some(owner) = self.apple.servers.get(server) else {
            return Err(Refusal::not_found("server", server.as_str()));
        };
        match owner.vpc_status {
            VpcStatus::VpcEnabled => {}
            VpcStatus::VpcUpdating if self.settings.attach_while_updating == Permission::Accept => {}
            VpcStatus::VpcUpdating => {
                return Err(Refusal::Transient {
                    resource: "server",
                    id: server.clone(),
                    state: "vpc_updating".to_owned(),
                });
            }
            VpcStatus::VpcDisabled => {
                return Err(Refusal::Precondition {
                    precondition: "attribute_must_be_set",
                    help: "the private network feature of this server is off; set enable_vpc first".to_owned(),
                });
            }
        }
        Ok((owner.zone.clone(), owner.project_id.clone()))
    }
}

/// A mini that was called about.
pub(super) fn at<'a>(zone: &'a Zone, server: &'a Id) -> At<'a> {
    At {
        product: Product::Apple,
        version: Version::V3,
        zone,
        server,
    }
}

/// GET `/servers/{id}/private-networks/{pn}`
pub(super) fn get(world: &World, caller: &Caller, zone: &Zone, server: &Id, network: &Id) -> Answer {
    world.visible_server(caller, zone, server, Action::Read)?;
    let attachment = calls::found(world, at(zone, server), network)?;
    Ok(Reply::ok(attachment.wire(Version::V3)))
}
