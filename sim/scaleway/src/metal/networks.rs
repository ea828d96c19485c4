//! Private networks of a server.
//!
//! That one is `attached` does not say that a packet passes. For that the option must be enabled, and in time: see
//! [`crate::EarlyAttachment`].

use super::catalog::ExtraKind;
use super::server::Status;
use crate::attachment::calls::{self, At};
use crate::attachment::{Attachment, AttachmentStatus};
use crate::call::{Answer, Call};
use crate::ids::{Id, Zone};
use crate::refusal::Refusal;
use crate::settings::EarlyAttachment;
use crate::world::{Caller, World, id_in_path};
use http::Method;
use jiff::Timestamp;

impl World {
    /// Whether the option for private networks is enabled.
    pub(crate) fn networked(&self, server: &Id) -> bool {
        let extras = self.metal.catalog.extras.iter();
        let extras = extras.filter(|extra| extra.kind == ExtraKind::PrivateNetwork);
        let ids: Vec<Id> = extras.map(|extra| extra.id.clone()).collect();
        self.metal
            .servers
            .get(server)
            .is_some_and(|server| server.enabled(&ids))
    }

    /// Whether packets pass.
    pub(super) fn lit(&self, attachment: &Attachment) -> bool {
        let in_time = !attachment.early || self.settings.early_attachment == EarlyAttachment::LightsUp;
        attachment.status == AttachmentStatus::Attached && in_time && self.networked(&attachment.server_id)
    }

    /// What is stuck about networks ends, now.
    pub(super) fn unstick_metal_attachments(&mut self, now: Timestamp, server: &Id) {
        let busy = |status| matches!(status, AttachmentStatus::Attaching | AttachmentStatus::Detaching);
        let stuck = self.metal.attachments.of(server);
        let stuck: Vec<Id> = stuck.filter(|one| busy(one.status)).map(|one| one.id.clone()).collect();
        for id in stuck {
            self.metal
                .attachments
                .change(now, &id, |attachment| attachment.until = Some(now));
        }
    }

    /// Where a server is and whose, if it can be attached to anything.
    pub(crate) fn attachable_metal(&self, server: &Id) -> Result<(Zone, Id), Refusal> {
        let Some(owner) = self.metal.servers.get(server) else {
            return Err(Refusal::not_found("server", server.as_str()));
        };
        if matches!(owner.status, Status::Ordered | Status::Delivering) {
            return Err(owner.transient());
        }
        Ok((owner.zone.clone(), owner.project_id.clone()))
    }
}

/// Answers a call below `/servers/{id}/private-networks`.
pub(super) fn answer(world: &mut World, caller: &Caller, at: At<'_>, rest: &[&str], call: &Call) -> Answer {
    match (rest, &call.method) {
        ([], &Method::POST) => calls::add(world, caller, at, call),
        ([], &Method::PUT) => calls::set(world, caller, at, call),
        ([], _) => Err(Refusal::Method("POST, PUT")),
        ([network], &Method::DELETE) => {
            let network = id_in_path("private_network_id", network)?;
            calls::remove(world, caller, at, &network)
        }
        ([_], _) => Err(Refusal::Method("DELETE")),
        _ => Err(Refusal::Route(format!("{} {}", call.method, call.path))),
    }
}
