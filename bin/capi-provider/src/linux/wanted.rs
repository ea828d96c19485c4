//! What a machine wants, read from its spec once.

use russet_api::values::{CidrBlock, PoolPrefix};
use russet_scaleway::PrivateNetworkId;

use super::server::Product;

/// What a machine wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which product.
    pub product: Product,
    /// Commercial type or offer.
    pub type_: String,
    /// Label of the image, or operating system.
    pub image: String,
    /// Size of the root volume; of Instances only.
    pub root_volume_gb: u64,
    /// Where the server comes from.
    pub source: Source,
    /// The Private Network it is on.
    pub network: Option<Network>,
}

/// Where a server comes from, and goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is made, and deleted.
    Order,
    /// One whose name begins like this is taken, and wiped and freed.
    Adopt(PoolPrefix),
}

/// A Private Network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// This one.
    Id(PrivateNetworkId),
    /// The one of this name; made if there is none.
    Name {
        /// The name.
        name: String,
        /// Its addresses, if it has to be made.
        cidr: Option<CidrBlock>,
    },
}

impl Network {
    /// How people know it.
    pub fn label(&self) -> &str {
        match self {
            Self::Id(id) => id.as_str(),
            Self::Name { name, .. } => name,
        }
    }
}

/// What Scaleway has to offer for a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Catalog {
    /// It can be had.
    Available {
        /// The operating system takes a script at its first boot.
        cloud_init: bool,
        /// Ids of the images that are meant.
        images: Vec<String>,
    },
    /// There is no such type in the zone.
    NoSuchType {
        /// Some that there are.
        others: Vec<String>,
    },
    /// There is no such image for the type in the zone.
    NoSuchImage {
        /// Some that there are.
        others: Vec<String>,
    },
    /// There is none left.
    OutOfStock {
        /// The operating system takes a script at its first boot.
        cloud_init: bool,
    },
}

/// A Private Network, as it was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkSight {
    /// There it is.
    Found(PrivateNetworkId),
    /// None of this name.
    Missing,
    /// The id belongs to no network of the zone's region.
    Elsewhere,
    /// Several of this name.
    Several(Vec<String>),
}
