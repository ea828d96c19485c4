//! Connectivity diagnostics: what Scaleway sees of a machine that does not answer.

use super::server::Status;
use crate::account::Action;
use crate::call::{Answer, Call, Reply};
use crate::ids::{Id, Zone};
use crate::refusal::{Reason, Refusal};
use crate::strict::Fields;
use crate::world::{Caller, World};
use jiff::Timestamp;
use russet_sim_kit::clock::after;
use serde_json::json;

/// A diagnostic that was started.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Diagnostic {
    server_id: Id,
    done_at: Timestamp,
}

/// POST `/connectivity-diagnostics`
pub(super) fn start(world: &mut World, caller: &Caller, zone: &Zone, call: &Call) -> Answer {
    let mut fields = Fields::new(call.json()?)?;
    let server_id = fields.id("server_id");
    fields.finish()?;
    let server_id = server_id.ok_or_else(|| Refusal::argument("server_id", Reason::Required, "cannot be empty"))?;
    world.visible_server(caller, zone, &server_id, Action::Read)?;
    let id = world.dice.id();
    let done_at = after(caller.now, world.settings.delays.diagnostic);
    world
        .apple
        .diagnostics
        .insert(id.clone(), Diagnostic { server_id, done_at });
    Ok(Reply::ok(json!({"diagnostic_id": id})))
}

/// GET `/connectivity-diagnostics/{id}`
pub(super) fn get(world: &World, caller: &Caller, zone: &Zone, id: &Id) -> Answer {
    let not_found = || Refusal::not_found("connectivity_diagnostic", id.as_str());
    let diagnostic = world.apple.diagnostics.get(id).ok_or_else(not_found)?;
    let server = world.visible_server(caller, zone, &diagnostic.server_id, Action::Read)?;
    let done = diagnostic.done_at <= caller.now;
    let health = server.health;
    let up = server.status == Status::Ready;
    let (ssh, vnc) = (up && health.is_ssh_port_up, up && health.is_vnc_port_up);
    Ok(Reply::ok(json!({
        "id": id,
        "status": if done { "completed" } else { "processing" },
        "is_healthy": done && health.is_server_alive && ssh && vnc,
        "health_details": done.then(|| json!({
            "last_checkin_date": server.updated_at,
            "is_server_alive": health.is_server_alive,
            "is_agent_alive": health.is_agent_alive,
            "is_mdm_alive": health.is_agent_alive,
            "is_ssh_port_up": ssh,
            "is_vnc_port_up": vnc,
        })),
        "supported_actions": if done { vec!["reboot_server", "reinstall_server"] } else { Vec::new() },
        "error_message": "",
        "zone": zone,
    })))
}
