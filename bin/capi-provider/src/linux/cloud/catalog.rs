//! What can be had, and under which ids.

use std::collections::HashMap;
use std::time::Duration;

use russet_api::values::Zone;
use russet_scaleway::baremetal::{MetalOption, OfferFilter, Os, Stock, Subscription};
use russet_scaleway::marketplace::LocalImageType;
use russet_scaleway::{Client, Error, ImageId, OfferId, OptionId, OsId};

use super::KEPT_FOR;
use crate::linux::server::Product;
use crate::linux::wanted::{Catalog, Source, Wanted};

/// What cannot be had is believed for this long.
const SOLD_OUT_FOR: Duration = Duration::from_secs(5);
/// Names that a sentence can hold.
const SOME: usize = 8;

/// What was found.
#[derive(Clone, Debug)]
pub enum Offered {
    /// An image for a virtual server.
    Instance {
        /// The image.
        image: ImageId,
        /// It lives on block storage.
        block: bool,
    },
    /// Bare metal.
    Metal {
        /// What is ordered.
        offer: OfferId,
        /// How many there are.
        in_stock: bool,
        /// What is installed.
        os: OsId,
        /// It takes a script at its first boot.
        cloud_init: bool,
        /// Its disks can be divided.
        partitions: bool,
        /// The option of Private Networks.
        networking: Option<OptionId>,
    },
    /// It cannot be had.
    Not(Catalog),
}

impl Offered {
    /// How long it may be kept. What cannot be had is asked for again, but not by every machine and at each event.
    pub(super) fn holds(&self) -> Duration {
        match self {
            Self::Instance { .. } | Self::Metal { in_stock: true, .. } => KEPT_FOR,
            Self::Metal { in_stock: false, .. } | Self::Not(_) => SOLD_OUT_FOR,
        }
    }

    /// The same if none has to be ordered: what is installed on one that is there does not depend on stock.
    pub(super) fn holds_for_ours(&self) -> Duration {
        match self {
            Self::Instance { .. } | Self::Metal { .. } => KEPT_FOR,
            Self::Not(_) => SOLD_OUT_FOR,
        }
    }

    pub(super) fn catalog(&self, wanted: &Wanted) -> Catalog {
        match self {
            Self::Not(catalog) => catalog.clone(),
            Self::Instance { image, .. } => Catalog::Available {
                cloud_init: true,
                images: vec![image.to_string()],
            },
            Self::Metal {
                in_stock: false,
                cloud_init,
                ..
            } if wanted.source == Source::Order => Catalog::OutOfStock {
                cloud_init: *cloud_init,
            },
            Self::Metal { os, cloud_init, .. } => Catalog::Available {
                cloud_init: *cloud_init,
                images: vec![os.to_string()],
            },
        }
    }
}

pub(super) async fn instance(client: &Client, zone: &Zone, wanted: &Wanted) -> Result<Offered, Error> {
    let mut others: Vec<String> = Vec::new();
    // Newer types start from block storage only, older ones from either.
    for (type_, block) in [(LocalImageType::Sbs, true), (LocalImageType::Local, false)] {
        for image in client.local_images(&wanted.image, zone, &type_).await? {
            if image.runs_on(&wanted.type_) {
                return Ok(Offered::Instance { image: image.id, block });
            }
            others.extend(image.compatible_commercial_types);
        }
    }
    others.sort();
    others.dedup();
    others.truncate(SOME);
    Ok(Offered::Not(if others.is_empty() {
        Catalog::NoSuchImage { others }
    } else {
        Catalog::NoSuchType { others }
    }))
}

pub(super) async fn metal(client: &Client, zone: &Zone, wanted: &Wanted) -> Result<Offered, Error> {
    let found = client
        .find_metal_offer(zone, &wanted.type_, Subscription::Hourly)
        .await?;
    let Some(offer) = found.filter(|offer| offer.enable) else {
        let all = client.metal_offers(zone, &OfferFilter::default()).await?;
        let mut others: Vec<String> = all.into_iter().map(|offer| offer.name).collect();
        others.sort();
        others.dedup();
        others.truncate(SOME);
        return Ok(Offered::Not(Catalog::NoSuchType { others }));
    };
    let systems = client.metal_os(zone, &offer.id).await?;
    let usable = |os: &&Os| os.can_be_installed() && !offer.incompatible_os_ids.iter().any(|id| id == os.id.as_str());
    let Some(os) = systems.iter().filter(usable).find(|os| os.is_labelled(&wanted.image)) else {
        let mut others: Vec<String> = systems.iter().map(|os| format!("{} {}", os.name, os.version)).collect();
        others.truncate(SOME);
        return Ok(Offered::Not(Catalog::NoSuchImage { others }));
    };
    let options = client.metal_options(zone, &offer.id).await?;
    let networking = |option: &&MetalOption| option.private_network.is_some();
    Ok(Offered::Metal {
        in_stock: offer.stock != Stock::Empty,
        os: os.id.clone(),
        cloud_init: os.cloud_init_supported,
        partitions: os.custom_partitioning_supported,
        networking: options.iter().find(networking).map(|option| option.id.clone()),
        offer: offer.id,
    })
}

/// Prices per hour in euros, by the type in lower case.
pub(super) async fn prices(client: &Client, product: Product, zone: &Zone) -> Result<HashMap<String, f64>, Error> {
    Ok(match product {
        Product::Instance => {
            let types = client.instance_types(zone).await?.into_iter();
            types
                .map(|known| (known.name.to_ascii_lowercase(), known.euros_per_hour))
                .collect()
        }
        Product::Metal => {
            let hourly = OfferFilter {
                subscription: Some(Subscription::Hourly),
                ..OfferFilter::default()
            };
            let offers = client.metal_offers(zone, &hourly).await?.into_iter();
            offers
                .filter_map(|offer| Some((offer.name.to_ascii_lowercase(), offer.euros_per_hour()?)))
                .collect()
        }
    })
}
