//! The calls about private networks of a server.

use super::{Attachment, AttachmentStatus, Product, Version};
use crate::account::{Action, Owner};
use crate::call::{Answer, Call, Reply};
use crate::ids::{Id, Zone};
use crate::page;
use crate::refusal::{Reason, Refusal};
use crate::sorting::{Sorting, Stamps};
use crate::strict::{Fields, Query};
use crate::world::{Caller, World};
use serde_json::{Value, json};

/// Which server was called about, and in whose words.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) product: Product,
    pub(crate) version: Version,
    pub(crate) zone: &'a Zone,
    pub(crate) server: &'a Id,
}

impl At<'_> {
    fn writable(self, world: &World, caller: &Caller) -> Result<(), Refusal> {
        let Self { zone, server, .. } = self;
        match self.product {
            Product::Apple => world.writable_server(caller, zone, server, Action::Update).map(drop),
            Product::Metal => world.writable_metal(caller, zone, server, Action::Update).map(drop),
        }
    }
}

/// POST `/servers/{id}/private-networks`
pub(crate) fn add(world: &mut World, caller: &Caller, at: At<'_>, call: &Call) -> Answer {
    at.writable(world, caller)?;
    let mut fields = Fields::new(call.json()?)?;
    let network = fields.id("private_network_id");
    if network.is_none() {
        fields.refuse("private_network_id", Reason::Required, "cannot be empty");
    }
    // None can be booked here.
    if at.version == Version::V3 && !fields.ids("ipam_ip_ids").is_empty() {
        fields.refuse("ipam_ip_ids", Reason::Constraint, "no such booked address");
    }
    fields.finish()?;
    let network =
        network.ok_or_else(|| Refusal::argument("private_network_id", Reason::Required, "cannot be empty"))?;
    let attached = world.attach(at.product, caller, at.server, &network)?;
    Ok(Reply::ok(attached.wire(at.version)))
}

/// The networks a PUT asks for.
fn wanted(fields: &mut Fields, version: Version) -> Vec<Id> {
    const NAME: &str = "per_private_network_ipam_ip_ids";
    if version == Version::V1 {
        return fields.ids("private_network_ids");
    }
    let map = fields.value(NAME).unwrap_or_else(|| json!({}));
    let pairs = map.as_object().into_iter().flatten();
    let ids: Option<Vec<Id>> = pairs
        .map(|(network, ips)| {
            let booked = ips.as_array().is_some_and(|ips| !ips.is_empty());
            network.parse().ok().filter(|_| !booked)
        })
        .collect();
    ids.filter(|_| map.is_object()).unwrap_or_else(|| {
        fields.refuse(NAME, Reason::Format, "must map network ids to empty lists");
        Vec::new()
    })
}

/// PUT `/servers/{id}/private-networks`: all or nothing, so it is tried on a copy first.
pub(crate) fn set(world: &mut World, caller: &Caller, at: At<'_>, call: &Call) -> Answer {
    at.writable(world, caller)?;
    let mut fields = Fields::new(call.json()?)?;
    let networks = wanted(&mut fields, at.version);
    fields.finish()?;
    let mut changed = world.clone();
    let leaves = |attachment: &&Attachment| {
        attachment.status != AttachmentStatus::Detaching && !networks.contains(&attachment.private_network_id)
    };
    let present = changed.attachments(at.product).of(at.server);
    let leaving: Vec<Id> = present.filter(leaves).map(|one| one.id.clone()).collect();
    for id in &leaving {
        changed.detach(at.product, caller.now, id);
    }
    for network in &networks {
        if changed.attachments(at.product).on(at.server, network).is_none() {
            changed.attach(at.product, caller, at.server, network)?;
        }
    }
    *world = changed;
    let all = world.attachments(at.product).of(at.server);
    let shown: Vec<Value> = all.map(|attachment| attachment.wire(at.version)).collect();
    Ok(Reply::ok(json!({"server_private_networks": shown})))
}

/// DELETE `/servers/{id}/private-networks/{pn}`
pub(crate) fn remove(world: &mut World, caller: &Caller, at: At<'_>, network: &Id) -> Answer {
    at.writable(world, caller)?;
    let attachment = found(world, at, network)?;
    let (id, status) = (attachment.id.clone(), attachment.status);
    if status == AttachmentStatus::Detaching {
        return Err(Refusal::Transient {
            resource: "server_private_network",
            id,
            state: "detaching".to_owned(),
        });
    }
    world.detach(at.product, caller.now, &id);
    Ok(Reply::no_content())
}

/// The attachment of a server to a network.
pub(crate) fn found<'a>(world: &'a World, at: At<'_>, network: &Id) -> Result<&'a Attachment, Refusal> {
    let attached = world.attachments(at.product).on(at.server, network);
    attached.ok_or_else(|| Refusal::not_found("server_private_network", network.as_str()))
}

/// GET `/server-private-networks`
pub(crate) fn list(
    world: &World,
    caller: &Caller,
    (product, version): (Product, Version),
    zone: &Zone,
    call: &Call,
) -> Answer {
    let mut query = Query::new(&call.query);
    let owner = Owner::read(&mut query);
    let server = query.id("server_id");
    let network = query.id("private_network_id");
    let ips = match version {
        Version::V1 => Vec::new(),
        Version::V3 => query.ids("ipam_ip_ids"),
    };
    let sorting = Sorting::read(
        &mut query,
        "order_by",
        &["created_at_asc", "created_at_desc", "updated_at_asc", "updated_at_desc"],
    );
    let page = page::last(query, world.settings.page_cap)?;
    world.may_list(caller, product.resource(), &owner)?;
    let mut found = world.attachments(product).as_of(world.lagging(caller.now));
    found.retain(|attachment| {
        let on = |wanted: &Option<Id>, is: &Id| wanted.as_ref().is_none_or(|wanted| wanted == is);
        attachment.zone == *zone
            && world.accounts.lists(&caller.key, &attachment.project_id, &owner)
            && on(&server, &attachment.server_id)
            && on(&network, &attachment.private_network_id)
            && (ips.is_empty() || attachment.ips.iter().any(|ip| ips.contains(ip)))
    });
    sorting.sort(&mut found, |attachment| Stamps {
        created: attachment.created_at,
        updated: attachment.updated_at,
        ..Stamps::of(&attachment.id)
    });
    Ok(page.reply("server_private_networks", &found, |attachment| attachment.wire(version)))
}
