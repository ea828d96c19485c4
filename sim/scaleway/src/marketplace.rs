//! Marketplace: `/marketplace/v2/local-images`, where a label becomes the id of an image in a zone.
//!
//! Public: it needs no token.

use crate::call::{Answer, Call, Reply};
use crate::instance::catalog::{Catalog, Image};
use crate::page;
use crate::refusal::{Reason, Refusal};
use crate::strict::Query;
use crate::world::{World, id_in_path};
use http::Method;
use serde_json::{Value, json};

fn wire(catalog: &Catalog, image: &Image) -> Value {
    json!({
        "id": image.id,
        "arch": image.arch,
        "zone": image.zone,
        "label": image.label,
        "type": image.kind.as_str(),
        "compatible_commercial_types": catalog.compatible(image),
    })
}

/// Answers a call below `/marketplace/v2/`.
pub(crate) fn answer(world: &World, rest: &[&str], call: &Call) -> Answer {
    if call.method != Method::GET {
        return Err(Refusal::Method("GET"));
    }
    let catalog = &world.instance.catalog;
    match rest {
        ["local-images"] => list(world, call),
        ["local-images", id] => {
            let id = id_in_path("local_image_id", id)?;
            let image = catalog.image(&id);
            image
                .map(|image| Reply::ok(wire(catalog, image)))
                .ok_or_else(|| Refusal::not_found("local_image", id.as_str()))
        }
        ["images" | "versions" | "categories", ..] => Err(Refusal::NotEmulated(call.path.clone())),
        _ => Err(Refusal::Route(format!("{} {}", call.method, call.path))),
    }
}

/// GET `/local-images`: one of the label, the image and the version must be named.
fn list(world: &World, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let label = query.text("image_label");
    let zone = query.text("zone");
    let arch = query.text("arch");
    let kind = query.choice("type", &["unknown_type", "instance_local", "instance_sbs"]);
    query.choice(
        "order_by",
        &["type_asc", "type_desc", "created_at_asc", "created_at_desc"],
    );
    for missing in ["image_id", "version_id"] {
        if query.text(missing).is_some() {
            query.refuse(missing, Reason::Constraint, "the emulator knows labels only");
        }
    }
    if label.is_none() {
        query.refuse("image_label", Reason::Required, "name a label, an image or a version");
    }
    let page = page::last(query, world.settings.page_cap)?;
    let catalog = &world.instance.catalog;
    let mut found: Vec<&Image> = catalog
        .images
        .iter()
        .filter(|image| {
            label.as_ref().is_some_and(|label| image.label == *label)
                && !world.linux.retired.contains(&image.label)
                && zone.as_ref().is_none_or(|zone| image.zone.as_str() == zone)
                && arch.as_ref().is_none_or(|arch| image.arch == *arch)
                && (kind == "unknown_type" || image.kind.as_str() == kind)
        })
        .collect();
    found.sort_by_key(|image| (image.kind, image.zone.clone()));
    Ok(page.reply("local_images", &found, |image| wire(catalog, image)))
}
