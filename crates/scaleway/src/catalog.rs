//! The product catalogue: the only place where the API tells prices.

use russet_api::values::Zone;
use serde::Deserialize;

use crate::call::{Call, Endpoint};
use crate::client::Client;
use crate::error::Error;
use crate::money::Money;
use crate::pages::{Page, Row};
use crate::wire::null_is_default;

/// The catalogue is public; no permission set is needed.
const PERMISSION: &str = "(none, the catalogue is public)";
static LIST: Endpoint = Endpoint::read("catalog.list_products", PERMISSION);

/// What a Mac of some type costs.
#[derive(Clone, Debug, PartialEq)]
pub struct MacPrice {
    /// Hardware, such as `M2-L`.
    pub type_: String,
    /// Euros per hour, without commitment.
    pub euros_per_hour: f64,
}

#[derive(Debug, Deserialize)]
struct Product {
    #[serde(default, deserialize_with = "null_is_default")]
    sku: String,
    #[serde(default)]
    price: Option<Price>,
    #[serde(default)]
    properties: Option<Properties>,
    #[serde(default)]
    unit_of_measure: Option<Unit>,
}

#[derive(Debug, Deserialize)]
struct Price {
    #[serde(default)]
    retail_price: Option<Money>,
}

#[derive(Debug, Deserialize)]
struct Properties {
    #[serde(default)]
    apple_silicon: Option<AppleSilicon>,
}

#[derive(Debug, Deserialize)]
struct AppleSilicon {
    #[serde(default, deserialize_with = "null_is_default")]
    server_type: String,
}

#[derive(Debug, Deserialize)]
struct Unit {
    #[serde(default, deserialize_with = "null_is_default")]
    unit: String,
}

#[derive(Debug, Deserialize)]
struct Products {
    #[serde(default, deserialize_with = "null_is_default")]
    products: Vec<Product>,
    total_count: u64,
}

impl From<Products> for Page<Product> {
    fn from(page: Products) -> Self {
        Self {
            rows: page.products,
            total: page.total_count,
        }
    }
}

impl Row for Product {
    fn id(&self) -> &str {
        &self.sku
    }
}

/// The price per hour in euros, if this is a Mac by the hour.
fn by_the_hour(product: &Product) -> Option<MacPrice> {
    let type_ = &product.properties.as_ref()?.apple_silicon.as_ref()?.server_type;
    let euros_per_hour = product.price.as_ref()?.retail_price.as_ref()?.euros()?;
    let hourly = product.unit_of_measure.as_ref()?.unit == "hour";
    (hourly && !type_.is_empty()).then(|| MacPrice {
        type_: type_.clone(),
        euros_per_hour,
    })
}

impl Client {
    /// What Macs cost in this zone by the hour.
    pub async fn list_mac_prices(&self, zone: &Zone) -> Result<Vec<MacPrice>, Error> {
        let call = Call::new(&LIST, "/product-catalog/v2alpha1/public-catalog/products".to_owned())
            .query("product_types", "apple_silicon")
            .query("zone", zone.as_str());
        let products = self.list::<Products, _>(call).await?;
        Ok(products.iter().filter_map(by_the_hour).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(unit: &str, currency: &str) -> Product {
        serde_json::from_value(serde_json::json!({
            "sku": "/apple-silicon/m2-l/run_fr_par_1",
            "price": {"retail_price": {"currency_code": currency, "units": 0, "nanos": 210_000_000}},
            "properties": {"apple_silicon": {"server_type": "M2-L"}},
            "unit_of_measure": {"unit": unit, "size": 1},
        }))
        .unwrap()
    }

    #[test]
    fn only_prices_by_the_hour_in_euros_count() {
        let price = by_the_hour(&product("hour", "EUR")).unwrap();
        assert_eq!(price.type_, "M2-L");
        assert!((price.euros_per_hour - 0.21).abs() < 1e-9);
        assert_eq!(by_the_hour(&product("month", "EUR")), None);
        assert_eq!(by_the_hour(&product("hour", "USD")), None);
    }
}
