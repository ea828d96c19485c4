//! User data: texts by key that the server reads from its metadata service. `cloud-init` is the one that boots it.
//!
//! They are no JSON: the body is the text, and the type of the body says so.

use crate::account::Action;
use crate::call::{Answer, Call, Reply};
use crate::ids::{Id, Zone};
use crate::refusal::{Reason, Refusal};
use crate::strict::Query;
use crate::world::{Caller, World};
use serde_json::json;

/// GET `/servers/{id}/user_data`
pub(super) fn keys(world: &World, caller: &Caller, zone: &Zone, id: &Id) -> Answer {
    let server = world.visible_instance(caller, zone, id, Action::Read)?;
    let keys: Vec<&String> = server.user_data.keys().collect();
    Ok(Reply::ok(json!({"user_data": keys})))
}

/// GET `/servers/{id}/user_data/{key}`
pub(super) fn get(world: &World, caller: &Caller, zone: &Zone, id: &Id, key: &str) -> Answer {
    let server = world.visible_instance(caller, zone, id, Action::Read)?;
    let text = server.user_data.get(key);
    text.map(|text| Reply::text(200, "text/plain", text.clone()))
        .ok_or_else(|| Refusal::not_found("instance_user_data", key))
}

/// PATCH `/servers/{id}/user_data/{key}`
pub(super) fn set(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, key: &str, call: &Call) -> Answer {
    Query::new(&call.query).finish()?;
    let wrong = |reason, help| Refusal::argument("user_data", reason, help);
    if call.content_type.as_deref() != Some("text/plain") {
        return Err(wrong(
            Reason::Format,
            "the body is the text itself; send it as text/plain",
        ));
    }
    if !key
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    {
        return Err(Refusal::argument(
            "key",
            Reason::Format,
            "letters, digits, dots, dashes and underscores",
        ));
    }
    let text = String::from_utf8(call.body.clone())
        .map_err(|_| wrong(Reason::Constraint, "the emulator keeps only texts in UTF-8"))?;
    if text.is_empty() {
        return Err(wrong(Reason::Required, "cannot be empty; DELETE takes a key away"));
    }
    world.writable_instance(caller, zone, id, Action::Update)?;
    world.instance.servers.change(caller.now, id, |server| {
        server.user_data.insert(key.to_owned(), text);
        server.updated_at = caller.now;
    });
    Ok(Reply::no_content())
}

/// DELETE `/servers/{id}/user_data/{key}`
pub(super) fn delete(world: &mut World, caller: &Caller, zone: &Zone, id: &Id, key: &str) -> Answer {
    world.writable_instance(caller, zone, id, Action::Update)?;
    let gone = world.instance.servers.change(caller.now, id, |server| {
        server.updated_at = caller.now;
        server.user_data.remove(key).is_some()
    });
    if gone == Some(true) {
        Ok(Reply::no_content())
    } else {
        Err(Refusal::not_found("instance_user_data", key))
    }
}
