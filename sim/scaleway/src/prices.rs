//! Product catalogue: `/product-catalog/v2alpha1/public-catalog/products`, the only place where the API tells prices.
//!
//! Public: it needs no token.

use crate::bill::MicroEuro;
use crate::call::{Answer, Call};
use crate::ids::Zone;
use crate::instance::catalog::BLOCK_GB;
use crate::metal::catalog::Period;
use crate::page;
use crate::refusal::Refusal;
use crate::strict::Query;
use crate::world::World;
use http::Method;
use serde_json::{Value, json};

/// GET `/products`
pub(crate) fn answer(world: &World, rest: &[&str], call: &Call) -> Answer {
    if rest != ["public-catalog", "products"] {
        return Err(Refusal::Route(format!("{} {}", call.method, call.path)));
    }
    if call.method != Method::GET {
        return Err(Refusal::Method("GET"));
    }
    let mut query = Query::new(&call.query);
    let types = query.many("product_types");
    let zone = query.text("zone");
    let region = query.text("region");
    let page = page::last(query, world.settings.page_cap)?;
    let mut products = Vec::new();
    for (kind, catalogue) in [
        ("apple_silicon", minis as fn(&World) -> Vec<Product>),
        ("instance", instances),
        ("elastic_metal", metals),
        ("block_storage", volumes),
    ] {
        if types.is_empty() || types.iter().any(|name| name == kind) {
            products.extend(catalogue(world));
        }
    }
    products.retain(|product| {
        let here = &product.zone;
        zone.as_ref().is_none_or(|zone| here.as_str() == zone)
            && region.as_ref().is_none_or(|region| here.region().as_str() == region)
    });
    Ok(page.reply("products", &products, Product::wire))
}

/// One line of the price list.
struct Product {
    zone: Zone,
    /// Where it is in the list of all products.
    sku: String,
    service: &'static str,
    category: &'static str,
    title: String,
    /// Per what.
    unit: &'static str,
    price: MicroEuro,
    properties: Value,
}

impl Product {
    fn wire(&self) -> Value {
        let (zone, unit) = (&self.zone, self.unit);
        json!({
            "sku": format!("{}/run_{}", self.sku, zone.as_str().replace('-', "_")),
            "service_category": self.service,
            "product_category": self.category,
            "product": self.title,
            "variant": format!("{} - {unit} - {zone}", self.title),
            "description": "",
            "locality": {"zone": zone},
            "price": {"retail_price": {
                "currency_code": "EUR",
                "units": self.price.0 / 1_000_000,
                "nanos": (self.price.0 % 1_000_000) * 1000,
            }},
            "properties": self.properties,
            "unit_of_measure": {"unit": unit, "size": 1},
            "status": "general_availability",
        })
    }
}

/// A month has a place of its own in the list.
fn sku(product: &str, name: &str, unit: &str) -> String {
    let monthly = if unit == "month" { "/monthly" } else { "" };
    format!("/{product}/{}{monthly}", name.to_lowercase())
}

fn minis(world: &World) -> Vec<Product> {
    let mut products = Vec::new();
    for (zone, offers) in &world.apple.catalog.offers {
        for offer in offers.values() {
            for (unit, price) in [("month", offer.monthly), ("hour", offer.hourly)] {
                products.push(Product {
                    zone: zone.clone(),
                    sku: sku("apple-silicon", &offer.name, unit),
                    service: "BareMetal",
                    category: "Apple Silicon",
                    title: format!("Mac Mini {}", offer.name),
                    unit,
                    price,
                    properties: json!({"apple_silicon": {"server_type": offer.name}}),
                });
            }
        }
    }
    products
}

fn instances(world: &World) -> Vec<Product> {
    let zones = world.instance.catalog.types.iter();
    let types = zones.flat_map(|(zone, types)| types.values().map(move |offered| (zone, offered)));
    types
        .map(|(zone, offered)| Product {
            zone: zone.clone(),
            sku: sku("compute", &offered.name, "hour"),
            service: "Compute",
            category: "Instance",
            title: offered.name.clone(),
            unit: "hour",
            price: offered.hourly,
            properties: json!({"instance": {
                "range": offered.name.split('-').next(),
                "offer_id": offered.name,
                "recommended_replacement_offer_ids": [],
            }}),
        })
        .collect()
}

fn metals(world: &World) -> Vec<Product> {
    let zones = world.metal.catalog.offers.iter();
    let offers = zones.flat_map(|(zone, offers)| offers.iter().map(move |offer| (zone, offer)));
    offers
        .map(|(zone, offer)| {
            let unit = match offer.period {
                Period::Hourly => "hour",
                Period::Monthly => "month",
            };
            Product {
                zone: zone.clone(),
                sku: sku("elastic-metal", &offer.name, unit),
                service: "BareMetal",
                category: "Elastic Metal",
                title: offer.name.clone(),
                unit,
                price: offer.price,
                properties: json!({"elastic_metal": {"range": "beryllium", "offer_id": offer.id}}),
            }
        })
        .collect()
}

/// What stays behind: per gigabyte and hour.
fn volumes(world: &World) -> Vec<Product> {
    let zones = world.instance.catalog.types.keys();
    zones
        .map(|zone| Product {
            zone: zone.clone(),
            sku: sku("storage/block", "sbs_5k", "hour"),
            service: "Storage",
            category: "Block Storage",
            title: "Block Storage 5K".to_owned(),
            unit: "gigabyte_hour",
            price: BLOCK_GB,
            properties: json!({"block_storage": {"volume": {"type": "sbs_5k"}}}),
        })
        .collect()
}
