//! PATCH: names, tags and switches of an Instance.

use super::server::security_group;
use crate::account::Action;
use crate::call::{Answer, Call, Reply};
use crate::ids::{Id, Zone};
use crate::labels::Labels;
use crate::refusal::{Reason, Refusal};
use crate::strict::{Fields, Query};
use crate::world::{Caller, World};
use serde_json::json;

/// PATCH `/servers/{id}`. There is no precondition to send along: the last writer wins.
pub(super) fn apply(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let mut fields = Fields::new(call.json()?)?;
    let labels = Labels::read_named(&mut fields);
    let dynamic = fields.flag("dynamic_ip_required");
    let protected = fields.flag("protected");
    let group = match fields.value("security_group") {
        None => None,
        Some(value) => {
            let mut inner = Fields::new(value)?;
            let group = inner.id("id");
            inner.text("name");
            inner.finish()?;
            group
        }
    };
    fields.choice("boot_type", &["local"]);
    for missing in [
        "volumes",
        "public_ips",
        "routed_ip_enabled",
        "enable_ipv6",
        "placement_group",
        "private_nics",
        "commercial_type",
        "admin_password_encryption_ssh_key_id",
    ] {
        fields.not_emulated(missing);
    }
    fields.finish()?;
    let server = world.writable_instance(caller, zone, id, Action::Update)?;
    if group.is_some_and(|group| group != security_group(&server.project_id, zone)) {
        return Err(Refusal::argument(
            "security_group",
            Reason::Constraint,
            "no such security group",
        ));
    }
    world.instance.servers.change(caller.now, id, |server| {
        labels.put(&mut server.name, &mut server.tags);
        if let Some(dynamic) = dynamic {
            server.dynamic_ip_required = dynamic;
        }
        if let Some(protected) = protected {
            server.protected = protected;
        }
        server.updated_at = caller.now;
    });
    world.dynamic_ip(caller.now, id);
    let server = world.visible_instance(caller, zone, id, Action::Update)?;
    Ok(Reply::ok(json!({"server": world.show_instance(server)})))
}
