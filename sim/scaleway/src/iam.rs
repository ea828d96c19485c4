//! IAM: `/iam/v1alpha1/ssh-keys`. Every call concerns a project, or is refused.

use crate::account::{Action, Owner, Resource};
use crate::call::{Answer, Call, Reply};
use crate::ids::Id;
use crate::page;
use crate::refusal::{Reason, Refusal};
use crate::settings::Permission;
use crate::sorting::{Sorting, Stamps};
use crate::strict::{Fields, Query};
use crate::table::{Table, rows};
use crate::world::{Caller, World, id_in_path};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD as BASE64, STANDARD_NO_PAD};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const TYPES: [&str; 5] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
];

/// A registered key.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct SshKey {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) public_key: String,
    pub(crate) project_id: Id,
    pub(crate) organization_id: Id,
    pub(crate) disabled: bool,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

rows!(SshKey);

/// All keys.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Iam {
    pub(crate) ssh_keys: Table<SshKey>,
}

/// The type and the blob of a public key line; none if it is not one.
fn parse(line: &str) -> Option<(&str, Vec<u8>)> {
    let mut words = line.split_whitespace();
    let kind = words.next().filter(|kind| TYPES.contains(kind))?;
    let blob = BASE64.decode(words.next()?).ok()?;
    let (length, rest) = blob.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let complete = rest.get(..length) == Some(kind.as_bytes()) && rest.len() > length;
    complete.then(|| (kind, blob.clone()))
}

impl SshKey {
    fn fingerprint(&self) -> String {
        let Some((kind, blob)) = parse(&self.public_key) else {
            return String::new();
        };
        let comment = self.public_key.split_whitespace().nth(2).unwrap_or("no comment");
        format!(
            "256 SHA256:{} {comment} ({kind})",
            STANDARD_NO_PAD.encode(Sha256::digest(&blob))
        )
    }

    fn wire(&self) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "public_key": self.public_key,
            "fingerprint": self.fingerprint(),
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "organization_id": self.organization_id,
            "project_id": self.project_id,
            "disabled": self.disabled,
        })
    }
}

/// Answers a call below `/iam/v1alpha1/`.
pub(crate) fn answer(world: &mut World, caller: &Caller, rest: &[&str], call: &Call) -> Answer {
    match rest {
        ["ssh-keys"] => match call.method {
            Method::GET => list(world, caller, call),
            Method::POST => create(world, caller, call),
            _ => Err(Refusal::Method("GET, POST")),
        },
        ["ssh-keys", id] => {
            let id = id_in_path("ssh_key_id", id)?;
            match call.method {
                Method::GET => world
                    .visible_key(caller, &id, Action::Read)
                    .map(|key| Reply::ok(key.wire())),
                Method::PATCH => update(world, caller, &id, call),
                Method::DELETE => {
                    world.visible_key(caller, &id, Action::Delete)?;
                    world.iam.ssh_keys.remove(caller.now, &id);
                    Ok(Reply::no_content())
                }
                _ => Err(Refusal::Method("GET, PATCH, DELETE")),
            }
        }
        [
            "api-keys" | "applications" | "policies" | "rules" | "users" | "groups",
            ..,
        ] => Err(Refusal::NotEmulated(call.path.clone())),
        _ => Err(Refusal::Route(format!("{} {}", call.method, call.path))),
    }
}

impl World {
    fn visible_key(&self, caller: &Caller, id: &Id, action: Action) -> Result<&SshKey, Refusal> {
        let found = self.iam.ssh_keys.get(id);
        let found = found.map(|key| (key, &key.project_id));
        self.permitted(caller, action, Resource::SshKey, id, found)
    }
}

/// GET `/ssh-keys`
fn list(world: &World, caller: &Caller, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let owner = Owner::read(&mut query);
    let name = query.text("name");
    let disabled = query.flag("disabled");
    let sorting = Sorting::read(
        &mut query,
        "order_by",
        &[
            "created_at_asc",
            "created_at_desc",
            "updated_at_asc",
            "updated_at_desc",
            "name_asc",
            "name_desc",
        ],
    );
    let page = page::last(query, world.settings.page_cap)?;
    // Without a project this is a question about the organisation, whatever projects the key may see.
    world
        .accounts
        .authorise(&caller.key, Action::List, Resource::SshKey, owner.project.as_ref())?;
    let mut found = world.iam.ssh_keys.as_of(world.lagging(caller.now));
    found.retain(|key| {
        world.accounts.lists(&caller.key, &key.project_id, &owner)
            && name.as_ref().is_none_or(|name| key.name.contains(name.as_str()))
            && disabled.is_none_or(|disabled| key.disabled == disabled)
    });
    sorting.sort(&mut found, |key| Stamps {
        created: key.created_at,
        updated: key.updated_at,
        name: &key.name,
        ..Stamps::of(&key.id)
    });
    Ok(page.reply("ssh_keys", &found, |key| key.wire()))
}

/// POST `/ssh-keys`
fn create(world: &mut World, caller: &Caller, call: &Call) -> Answer {
    let mut fields = Fields::new(call.json()?)?;
    let name = fields.text("name").unwrap_or_default();
    let public_key = fields.required("public_key").trim().to_owned();
    let project_id = fields.id("project_id");
    if !public_key.is_empty() && parse(&public_key).is_none() {
        fields.refuse("public_key", Reason::Format, "not an OpenSSH public key");
    }
    fields.finish()?;
    world
        .accounts
        .authorise(&caller.key, Action::Create, Resource::SshKey, project_id.as_ref())?;
    let required = || Refusal::argument("project_id", Reason::Required, "cannot be empty");
    let project_id = project_id.ok_or_else(required)?;
    let same = |key: &&SshKey| key.project_id == project_id && parse(&key.public_key) == parse(&public_key);
    if world.settings.duplicate_ssh_keys == Permission::Refuse
        && let Some(key) = world.iam.ssh_keys.iter().find(same)
    {
        return Err(Refusal::Exists {
            resource: "ssh_key",
            id: key.id.clone(),
            help: "this public key is registered in the project already".to_owned(),
        });
    }
    let key = SshKey {
        id: world.dice.id(),
        name,
        public_key,
        organization_id: world.organization_of(&project_id),
        project_id,
        disabled: false,
        created_at: caller.now,
        updated_at: caller.now,
    };
    let shown = key.wire();
    world.iam.ssh_keys.put(caller.now, key);
    Ok(Reply::ok(shown))
}

/// PATCH `/ssh-keys/{id}`
fn update(world: &mut World, caller: &Caller, id: &Id, call: &Call) -> Answer {
    let mut fields = Fields::new(call.json()?)?;
    let name = fields.text("name");
    let disabled = fields.flag("disabled");
    fields.finish()?;
    world.visible_key(caller, id, Action::Update)?;
    let shown = world.iam.ssh_keys.change(caller.now, id, |key| {
        if let Some(name) = name {
            key.name = name;
        }
        if let Some(disabled) = disabled {
            key.disabled = disabled;
        }
        key.updated_at = caller.now;
        key.wire()
    });
    shown
        .map(Reply::ok)
        .ok_or_else(|| Refusal::not_found("ssh_key", id.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_key_says_twice_what_it_is() {
        let good = crate::host::HostKey::new([1; 32]).public_openssh();
        assert!(parse(&good).is_some());
        assert!(parse(&format!("{good} comment")).is_some());
        let bad = ["", "ssh-ed25519", "ssh-ed25519 !!!", "ssh-dss AAAA", "ssh-ed25519 AAAA"];
        for bad in bad
            .into_iter()
            .chain([good.replace("ssh-ed25519 ", "ssh-rsa ").as_str()])
        {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
