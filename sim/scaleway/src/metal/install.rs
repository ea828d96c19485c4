//! Installations: with the order, or later and over what was there.

use super::catalog::MetalOffer;
use super::schema;
use super::server::{InstallStatus, InstallStep, Installation, Pending};
use crate::account::Action;
use crate::call::{Answer, Call};
use crate::host::HostKey;
use crate::ids::{Id, Zone};
use crate::linux::Stage;
use crate::refusal::{Reason, Refusal};
use crate::strict::{Fields, Query};
use crate::world::{Caller, World};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use russet_sim_kit::clock::after;
use serde_json::Value;

/// What shall be installed.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) os: Option<Id>,
    pub(crate) hostname: String,
    pub(crate) ssh_key_ids: Vec<Id>,
    pub(crate) user: Option<String>,
    pub(crate) schema: Option<Value>,
}

impl Request {
    pub(super) fn read(fields: &mut Fields) -> Self {
        let os = fields.id("os_id");
        if os.is_none() {
            fields.refuse("os_id", Reason::Required, "cannot be empty");
        }
        let request = Self {
            os,
            hostname: fields.required("hostname"),
            ssh_key_ids: fields.ids("ssh_key_ids"),
            user: fields.text("user").filter(|user| !user.is_empty()),
            schema: fields.value("partitioning_schema"),
        };
        fields.text("password");
        for name in ["service_user", "service_password"] {
            if fields.text(name).is_some_and(|text| !text.is_empty()) {
                fields.refuse(name, Reason::Constraint, "this system has no service account");
            }
        }
        request
    }
}

/// A text that was sent in base64.
pub(super) fn decoded(fields: &mut Fields, text: Option<String>) -> Option<String> {
    let text = text.filter(|text| !text.is_empty())?;
    let bytes = BASE64.decode(text).ok();
    let decoded = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    if decoded.is_none() {
        fields.refuse("user_data", Reason::Format, "must be a text in UTF-8, in base64");
    }
    decoded
}

/// User data of an installation, which come as a file.
fn file(fields: &mut Fields) -> Result<Option<String>, Refusal> {
    let Some(value) = fields.value("user_data") else {
        return Ok(None);
    };
    if !value.is_object() {
        fields.refuse(
            "user_data",
            Reason::Format,
            "must be a file: name, content_type and content in base64",
        );
        return Ok(None);
    }
    let mut inner = Fields::new(value)?;
    inner.text("name");
    inner.text("content_type");
    let content = inner.text("content");
    let text = decoded(&mut inner, content);
    inner.finish()?;
    Ok(text)
}

impl World {
    /// Checks what shall be installed.
    pub(super) fn planned(
        &mut self,
        offer: &MetalOffer,
        project: &Id,
        request: &Request,
        user_data: bool,
    ) -> Answer<Installation> {
        let required = || Refusal::argument("os_id", Reason::Required, "cannot be empty");
        let id = request.os.as_ref().ok_or_else(required)?;
        let os = self
            .metal
            .catalog
            .os(id)
            .filter(|os| !self.linux.retired.contains(&os.label));
        let os = os.ok_or_else(|| Refusal::not_found("os", id.as_str()))?.clone();
        if user_data && !os.cloud_init {
            let help = format!("{} {} has no cloud-init", os.name, os.version);
            return Err(Refusal::argument("user_data", Reason::Constraint, help));
        }
        if request.ssh_key_ids.is_empty() {
            let help = "this system needs at least one SSH key";
            return Err(Refusal::argument("ssh_key_ids", Reason::Required, help));
        }
        let usable = |key: &&Id| {
            let found = self.iam.ssh_keys.get(key);
            found.is_some_and(|found| found.project_id == *project && !found.disabled)
        };
        if let Some(unknown) = request.ssh_key_ids.iter().find(|key| !usable(key)) {
            return Err(Refusal::not_found("ssh_key", unknown.as_str()));
        }
        let schema = match &request.schema {
            None => schema::usual(offer),
            Some(_) if !os.partitioning => {
                let help = "this system chooses its own";
                return Err(Refusal::argument("partitioning_schema", Reason::Constraint, help));
            }
            Some(wanted) => {
                schema::fits(offer, wanted)?;
                wanted.clone()
            }
        };
        Ok(Installation {
            os: os.id,
            hostname: request.hostname.clone(),
            user: request.user.clone().unwrap_or(os.user),
            ssh_key_ids: request.ssh_key_ids.clone(),
            schema,
            status: InstallStatus::ToInstall,
            authorized_keys: Vec::new(),
            host_key: HostKey::new(self.dice.bytes()),
        })
    }

    /// The disk is wiped: from here on nothing of before is left, and keys are those registered now.
    pub(super) fn begin_install(&mut self, at: Timestamp, id: &Id) {
        let course = self.course(at, Stage::Install, id, self.settings.delays.metal_install);
        let Some(server) = self.metal.servers.get(id) else {
            return;
        };
        let next = server.next_install.clone().or_else(|| server.install.clone());
        let Some(mut next) = next else { return };
        let keys = next.ssh_key_ids.iter().filter_map(|key| self.iam.ssh_keys.get(key));
        next.authorized_keys = keys
            .filter(|key| !key.disabled)
            .map(|key| key.public_key.clone())
            .collect();
        next.status = InstallStatus::Installing;
        self.metal.servers.change(at, id, |server| {
            server.install = Some(next);
            server.next_install = None;
            server.generation = server.generation.saturating_add(1);
            server.installing = Some(Pending {
                then: match course.wrong {
                    None => InstallStep::Ends,
                    Some(_) => InstallStep::Fails,
                },
                at: course.at,
            });
            server.updated_at = at;
        });
        self.happened(at, id, "install");
    }

    /// The next step of an installation.
    pub(super) fn step_install(&mut self, at: Timestamp, id: &Id) {
        let step = self.metal.servers.get(id).and_then(|server| server.installing);
        let Some(step) = step.map(|pending| pending.then) else {
            return;
        };
        if step == InstallStep::Begins {
            self.begin_install(at, id);
            return;
        }
        self.metal.servers.change(at, id, |server| {
            server.installing = None;
            server.updated_at = at;
            if let Some(install) = &mut server.install {
                install.status = match step {
                    InstallStep::Fails => InstallStatus::Error,
                    InstallStep::Begins | InstallStep::Ends => InstallStatus::Completed,
                };
            }
            if step == InstallStep::Ends {
                server.boots = server.boots.saturating_add(1);
            }
        });
    }
}

/// POST `/servers/{id}/install`. What GET shows follows a moment later.
pub(super) fn install(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let mut fields = Fields::new(call.json()?)?;
    let request = Request::read(&mut fields);
    let user_data = file(&mut fields)?;
    fields.finish()?;
    let server = world.writable_metal(caller, zone, id, Action::Update)?;
    server.at_rest()?;
    let project = server.project_id.clone();
    let offer = world.metal.catalog.offer(zone, &server.offer).cloned();
    let offer = offer.ok_or_else(|| Refusal::not_found("offer", server.offer.as_str()))?;
    let plan = world.planned(&offer, &project, &request, user_data.is_some())?;
    let at = after(caller.now, world.settings.delays.metal_install_begins);
    world.metal.servers.change(caller.now, id, |server| {
        server.next_install = Some(plan);
        if user_data.is_some() {
            server.user_data = user_data;
        }
        server.installing = Some(Pending {
            then: InstallStep::Begins,
            at: Some(at),
        });
        server.updated_at = caller.now;
    });
    world.shown_metal(id)
}
