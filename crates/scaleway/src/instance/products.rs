//! What Instances cost, and whether there are any.

use std::collections::BTreeMap;

use russet_api::values::Zone;
use serde::Deserialize;

use super::base;
use crate::call::{Call, Endpoint};
use crate::client::Client;
use crate::error::Error;
use crate::pages::Row;
use crate::wire::null_is_default;

/// The list is public; no permission set is needed.
const PERMISSION: &str = "(none, the list is public)";
static LIST_TYPES: Endpoint = Endpoint::read("instance.list_server_types", PERMISSION);
static LIST_STOCK: Endpoint = Endpoint::read("instance.list_server_types_availability", PERMISSION);

words! {
    /// How many Scaleway has.
    pub enum Stock {
        /// None.
        Shortage = "shortage",
        /// Few.
        Scarce = "scarce",
        /// Enough.
        Available = "available",
    }
}

/// A size of Instances.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceType {
    /// Such as `PRO2-S`.
    pub name: String,
    /// Such as `x86_64`.
    pub arch: String,
    /// Euros per hour while it is on.
    pub euros_per_hour: f64,
}

/// How many there are of a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeStock {
    /// Such as `PRO2-S`.
    pub name: String,
    /// How many.
    pub stock: Stock,
}

impl Row for InstanceType {
    fn id(&self) -> &str {
        &self.name
    }
}

impl Row for TypeStock {
    fn id(&self) -> &str {
        &self.name
    }
}

/// A page of these lists is an object, not an array.
#[derive(Deserialize)]
struct Types {
    #[serde(default, deserialize_with = "null_is_default")]
    servers: BTreeMap<String, Type>,
}

#[derive(Deserialize)]
struct Type {
    #[serde(default, deserialize_with = "null_is_default")]
    arch: String,
    hourly_price: f64,
}

impl From<Types> for Vec<InstanceType> {
    fn from(page: Types) -> Self {
        let rows = page.servers.into_iter().map(|(name, row)| InstanceType {
            name,
            arch: row.arch,
            euros_per_hour: row.hourly_price,
        });
        rows.collect()
    }
}

#[derive(Deserialize)]
struct Availabilities {
    #[serde(default, deserialize_with = "null_is_default")]
    servers: BTreeMap<String, Availability>,
}

#[derive(Deserialize)]
struct Availability {
    availability: Stock,
}

impl From<Availabilities> for Vec<TypeStock> {
    fn from(page: Availabilities) -> Self {
        let rows = page.servers.into_iter().map(|(name, row)| TypeStock {
            name,
            stock: row.availability,
        });
        rows.collect()
    }
}

impl Client {
    /// The sizes of Instances in this zone, with prices.
    pub async fn instance_types(&self, zone: &Zone) -> Result<Vec<InstanceType>, Error> {
        let call = Call::new(&LIST_TYPES, format!("{}/products/servers", base(zone)));
        self.list_counted::<Types, _>(call).await
    }

    /// How many there are of each size in this zone.
    pub async fn instance_stock(&self, zone: &Zone) -> Result<Vec<TypeStock>, Error> {
        let call = Call::new(&LIST_STOCK, format!("{}/products/servers/availability", base(zone)));
        self.list_counted::<Availabilities, _>(call).await
    }
}
