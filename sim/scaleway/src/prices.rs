//! Product catalogue: `/product-catalog/v2alpha1/public-catalog/products`, the only place where the API tells prices.
//!
//! Public: it needs no token.

use crate::bill::MicroEuro;
use crate::call::{Call, Reply};
use crate::ids::Zone;
use crate::page;
use crate::refusal::Refusal;
use crate::strict::Query;
use crate::world::World;
use http::Method;
use serde_json::{Value, json};

/// GET `/products`
pub(crate) fn answer(world: &World, rest: &[&str], call: &Call) -> Result<Reply, Refusal> {
    if rest != ["public-catalog", "products"] {
        return Err(Refusal::Route(format!("{} {}", call.method, call.path)));
    }
    if call.method != Method::GET {
        return Err(Refusal::Method { allowed: "GET" });
    }
    let mut query = Query::new(&call.query);
    let types = query.many("product_types");
    let zone = query.text("zone");
    let region = query.text("region");
    let page = page::last(query, world.settings.page_cap)?;
    let wanted = types.is_empty() || types.iter().any(|name| name == "apple_silicon");
    let mut products = Vec::new();
    for (offered_in, offers) in world.apple.catalog.offers.iter().filter(|_| wanted) {
        let here = zone.as_ref().is_none_or(|zone| offered_in.as_str() == zone)
            && region
                .as_ref()
                .is_none_or(|region| offered_in.region().as_str() == region);
        for offer in offers.values().filter(|_| here) {
            products.push(product(&offer.name, "month", offered_in, offer.monthly));
            products.push(product(&offer.name, "hour", offered_in, offer.hourly));
        }
    }
    Ok(page.reply("products", &products, Value::clone))
}

fn product(server_type: &str, unit: &str, zone: &Zone, price: MicroEuro) -> Value {
    let name = server_type.to_lowercase();
    let monthly = if unit == "month" { "/monthly" } else { "" };
    json!({
        "sku": format!("/apple-silicon/{name}{monthly}/run_{}", zone.as_str().replace('-', "_")),
        "service_category": "BareMetal",
        "product_category": "Apple Silicon",
        "product": format!("Mac Mini {server_type}"),
        "variant": format!("Mac Mini {server_type} - {unit} - {zone}"),
        "description": "",
        "locality": {"zone": zone},
        "price": {"retail_price": {
            "currency_code": "EUR",
            "units": price.0 / 1_000_000,
            "nanos": (price.0 % 1_000_000) * 1000,
        }},
        "properties": {"apple_silicon": {"server_type": server_type}},
        "unit_of_measure": {"unit": unit, "size": 1},
        "status": "general_availability",
    })
}
