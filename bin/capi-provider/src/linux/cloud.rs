//! The servers at Scaleway: what is read and what is sent, for both products.

mod catalog;
mod install;
mod model;
mod partitions;
mod send;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use russet_api::values::{ServerId, Zone};
use russet_scaleway::baremetal::{MetalFilter, Schema};
use russet_scaleway::instance::InstanceFilter;
use russet_scaleway::ipam::ResourceType;
use russet_scaleway::{Client, Error, Kind, OfferId, OsId, PrivateNetworkId};
use tokio::time::Instant;

use super::server::{Attachment, Product, Server, machine_tag};
use super::wanted::{Catalog, Network, NetworkSight, Wanted};

pub use catalog::Offered;
pub use send::{Payload, Sent, Shown};

/// What changes seldom is read this often, however many machines ask.
pub(super) const KEPT_FOR: Duration = Duration::from_mins(1);

/// Something that was read a while ago.
type Kept<K, V> = Mutex<HashMap<K, (Instant, V)>>;

/// One product. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cloud(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client,
    product: Product,
    /// Bare metal gets a file system of its own for what caches keep.
    local_data: bool,
    offers: Kept<(Zone, String, String), Offered>,
    networks: Kept<(String, String), PrivateNetworkId>,
    prices: Kept<Zone, Arc<HashMap<String, f64>>>,
    /// How the disks of an offer are divided for an operating system.
    schemas: Kept<(Zone, OfferId, OsId), Schema>,
}

fn kept<K: Eq + std::hash::Hash, V: Clone>(store: &Kept<K, V>, key: &K) -> Option<V> {
    kept_for(store, key, |_| KEPT_FOR)
}

fn kept_for<K: Eq + std::hash::Hash, V: Clone>(
    store: &Kept<K, V>,
    key: &K,
    holds: impl Fn(&V) -> Duration,
) -> Option<V> {
    let store = store.lock().unwrap_or_else(PoisonError::into_inner);
    let (at, value) = store.get(key)?;
    (at.elapsed() < holds(value)).then(|| value.clone())
}

fn keep<K: Eq + std::hash::Hash, V>(store: &Kept<K, V>, key: K, value: V) {
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    store.insert(key, (Instant::now(), value));
}

impl Cloud {
    /// This product, over this client.
    pub fn new(client: Client, product: Product, local_data: bool) -> Self {
        Self(Arc::new(Inner {
            client,
            product,
            local_data,
            offers: Mutex::default(),
            networks: Mutex::default(),
            prices: Mutex::default(),
            schemas: Mutex::default(),
        }))
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// The product.
    pub fn product(&self) -> Product {
        self.0.product
    }

    /// All servers of the project in a zone.
    pub async fn list(&self, zone: &Zone) -> Result<Vec<Server>, Error> {
        self.filtered(zone, Vec::new()).await
    }

    /// The servers of this machine, past every cache.
    pub async fn mine(&self, zone: &Zone, uid: &str) -> Result<Vec<Server>, Error> {
        let listed = self.filtered(zone, vec![machine_tag(uid)]).await?;
        // A list shows servers for a while after they are gone.
        let mut found = Vec::new();
        for server in listed {
            found.extend(self.see(zone, &server.id).await?);
        }
        Ok(found)
    }

    async fn filtered(&self, zone: &Zone, tags: Vec<String>) -> Result<Vec<Server>, Error> {
        Ok(match self.0.product {
            Product::Instance => {
                let filter = InstanceFilter {
                    tags,
                    ..InstanceFilter::default()
                };
                let found = self.0.client.instances(zone, &filter).await?;
                found.iter().map(model::instance).collect()
            }
            Product::Metal => {
                let filter = MetalFilter {
                    tags,
                    ..MetalFilter::default()
                };
                let found = self.0.client.metal_servers(zone, &filter).await?;
                found.iter().map(model::metal).collect()
            }
        })
    }

    /// One server; none if it does not exist.
    pub async fn see(&self, zone: &Zone, id: &ServerId) -> Result<Option<Server>, Error> {
        let found = match self.0.product {
            Product::Instance => self.0.client.instance(zone, id).await.map(|it| model::instance(&it)),
            Product::Metal => self.0.client.metal_server(zone, id).await.map(|it| model::metal(&it)),
        };
        match found {
            Ok(server) => Ok(Some(server)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What a server is attached to.
    pub async fn attachments(&self, zone: &Zone, id: &ServerId) -> Result<Vec<Attachment>, Error> {
        let found = match self.0.product {
            Product::Instance => {
                let nics = self.0.client.private_nics(zone, id).await;
                nics.map(|nics| nics.iter().map(model::nic).collect())
            }
            Product::Metal => {
                let networks = self.0.client.metal_private_networks(zone, id).await;
                networks.map(|networks| networks.iter().map(model::attachment).collect())
            }
        };
        match found {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            other => other,
        }
    }

    /// The Private Network of a machine. One that was found is believed for a while; that there is none is not.
    pub async fn network(&self, zone: &Zone, network: &Network) -> Result<NetworkSight, Error> {
        let region = zone.region();
        let key = (region.to_string(), network.label().to_owned());
        if let Some(id) = kept(&self.0.networks, &key) {
            return Ok(NetworkSight::Found(id));
        }
        let sight = match network {
            Network::Id(id) => match self.0.client.private_network(&region, id).await {
                Ok(found) if found.project_id == *self.0.client.project() => NetworkSight::Found(found.id),
                Ok(_) => NetworkSight::Elsewhere,
                Err(error) if error.is_not_found() => NetworkSight::Elsewhere,
                Err(error) => return Err(error),
            },
            Network::Name { name, .. } => match self.0.client.find_private_network(&region, name).await {
                Ok(Some(found)) => NetworkSight::Found(found.id),
                Ok(None) => NetworkSight::Missing,
                Err(Error {
                    kind: Kind::Ambiguous { ids, .. },
                    ..
                }) => NetworkSight::Several(ids),
                Err(error) => return Err(error),
            },
        };
        if let NetworkSight::Found(id) = &sight {
            keep(&self.0.networks, key, id.clone());
        }
        Ok(sight)
    }

    /// The private address of a server, once IPAM knows it: by the id of its interface, of IPv4, in the region, whichever page
    /// it is on.
    pub async fn private_address(&self, zone: &Zone, attachment: &Attachment) -> Result<Option<IpAddr>, Error> {
        let type_ = match self.0.product {
            Product::Instance => ResourceType::InstancePrivateNic,
            Product::Metal => ResourceType::BaremetalPrivateNic,
        };
        let found = self
            .0
            .client
            .private_ipv4(&zone.region(), &attachment.network, type_, &attachment.id)
            .await?;
        Ok(found.map(IpAddr::V4))
    }

    /// What Scaleway has to offer for a machine, which may have a server already.
    pub async fn catalog(&self, zone: &Zone, wanted: &Wanted, has_server: bool) -> Result<Catalog, Error> {
        let holds = if has_server {
            Offered::holds_for_ours
        } else {
            Offered::holds
        };
        let offered = self.offered_for(zone, wanted, holds).await?;
        Ok(offered.catalog(wanted))
    }

    /// The same with the ids that an order or an installation needs.
    pub async fn offered(&self, zone: &Zone, wanted: &Wanted) -> Result<Offered, Error> {
        self.offered_for(zone, wanted, Offered::holds_for_ours).await
    }

    async fn offered_for(
        &self,
        zone: &Zone,
        wanted: &Wanted,
        holds: impl Fn(&Offered) -> Duration,
    ) -> Result<Offered, Error> {
        let key = (zone.clone(), wanted.type_.clone(), wanted.image.clone());
        if let Some(offered) = kept_for(&self.0.offers, &key, holds) {
            return Ok(offered);
        }
        let offered = match self.0.product {
            Product::Instance => catalog::instance(&self.0.client, zone, wanted).await?,
            Product::Metal => catalog::metal(&self.0.client, zone, wanted).await?,
        };
        keep(&self.0.offers, key, offered.clone());
        Ok(offered)
    }

    /// What a server of this type costs per hour, in euros; none if nobody knows.
    pub async fn price(&self, zone: &Zone, type_: &str) -> Result<Option<f64>, Error> {
        let prices = if let Some(prices) = kept(&self.0.prices, zone) {
            prices
        } else {
            let read = Arc::new(catalog::prices(&self.0.client, self.0.product, zone).await?);
            keep(&self.0.prices, zone.clone(), Arc::clone(&read));
            read
        };
        Ok(prices.get(&type_.to_ascii_lowercase()).copied())
    }
}
