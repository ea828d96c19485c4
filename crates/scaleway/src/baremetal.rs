//! Elastic Metal: whole servers, by the hour or by the month.
//!
//! Delivery and installation take up to two hours. Private Networks need three things, in any order but all of them: the
//! option on the server, an attachment, and its VLAN. The API gives a VLAN and an address even while the option is off, and
//! then nothing gets through.

mod offers;
mod partitions;
mod requests;
mod types;

use reqwest::Method;
use russet_api::values::{ServerId, Zone};
use serde_json::json;

use crate::call::{Call, Endpoint};
use crate::client::Client;
use crate::error::{Error, Kind};
use crate::filter::{has_tags, is_named, only_ours};
use crate::ids::{OfferId, OptionId, OsId, PrivateNetworkId};

pub use offers::{Offer, OfferFilter, Stock, Subscription};
pub use partitions::{Disk, Filesystem, Partition, Raid, Schema};
pub use requests::{Install, Login, MetalFilter, OrderMetal, UpdateMetal};
pub use types::{
    Attachment, AttachmentStatus, Event, InstallStatus, Installed, Ip, MetalOption, OptionStatus, Os,
    PrivateNetworkOption, Server, ServerOption, Status,
};

const PERMISSION: &str = "ElasticMetalFullAccess";
static LIST: Endpoint = Endpoint::read("baremetal.list_servers", PERMISSION);
static GET: Endpoint = Endpoint::read("baremetal.get_server", PERMISSION);
static LIST_OFFERS: Endpoint = Endpoint::read("baremetal.list_offers", PERMISSION);
static LIST_OS: Endpoint = Endpoint::read("baremetal.list_os", PERMISSION);
static LIST_OPTIONS: Endpoint = Endpoint::read("baremetal.list_options", PERMISSION);
static LIST_EVENTS: Endpoint = Endpoint::read("baremetal.list_server_events", PERMISSION);
static LIST_ATTACHMENTS: Endpoint = Endpoint::read("baremetal.list_server_private_networks", PERMISSION);
static GET_PARTITIONS: Endpoint = Endpoint::read("baremetal.get_default_partitioning_schema", PERMISSION);
static VALIDATE_PARTITIONS: Endpoint =
    Endpoint::judge("baremetal.validate_partitioning_schema", Method::POST, PERMISSION);
static ORDER: Endpoint = Endpoint::once("baremetal.create_server", Method::POST, PERMISSION);
static UPDATE: Endpoint = Endpoint::once("baremetal.update_server", Method::PATCH, PERMISSION);
static INSTALL: Endpoint = Endpoint::once("baremetal.install_server", Method::POST, PERMISSION);
static REBOOT: Endpoint = Endpoint::once("baremetal.reboot_server", Method::POST, PERMISSION);
static ADD_OPTION: Endpoint = Endpoint::once("baremetal.add_server_option", Method::POST, PERMISSION);
static REMOVE_OPTION: Endpoint = Endpoint::remove("baremetal.delete_server_option", PERMISSION);
static ATTACH: Endpoint = Endpoint::once("baremetal.attach_private_network", Method::POST, PERMISSION);
static DETACH: Endpoint = Endpoint::remove("baremetal.detach_private_network", PERMISSION);
static DELETE: Endpoint = Endpoint::remove("baremetal.delete_server", PERMISSION);

listing!(Servers { servers: Server });
listing!(Offers { offers: Offer });
listing!(OsPage { os: Os });
listing!(Options { options: MetalOption });
listing!(Events { events: Event });
listing!(Attachments {
    server_private_networks: Attachment
});
row!(Server, Offer, Os, MetalOption, Event, Attachment);

fn base(zone: &Zone) -> String {
    format!("/baremetal/v1/zones/{zone}")
}

fn server_path(zone: &Zone, id: &ServerId) -> String {
    format!("{}/servers/{id}", base(zone))
}

impl Client {
    /// What can be ordered in this zone.
    pub async fn metal_offers(&self, zone: &Zone, filter: &OfferFilter) -> Result<Vec<Offer>, Error> {
        let mut call = Call::new(&LIST_OFFERS, format!("{}/offers", base(zone)));
        if let Some(subscription) = &filter.subscription {
            call = call.query("subscription_period", subscription.as_str());
        }
        if let Some(name) = &filter.name {
            call = call.query("name", name);
        }
        let mut found = self.list::<Offers, _>(call).await?;
        let fits = |period: &Subscription| filter.subscription.as_ref().is_none_or(|wanted| wanted == period);
        found.retain(|offer| is_named(&offer.name, filter.name.as_deref()) && fits(&offer.subscription_period));
        Ok(found)
    }

    /// The offer of exactly this name that is paid for like this. An hourly and a monthly one share the name, and the monthly
    /// one costs a fee and a month.
    pub async fn find_metal_offer(
        &self,
        zone: &Zone,
        name: &str,
        subscription: Subscription,
    ) -> Result<Option<Offer>, Error> {
        let filter = OfferFilter {
            name: Some(name.to_owned()),
            subscription: Some(subscription),
        };
        let mut found = self.metal_offers(zone, &filter).await?;
        if found.len() > 1 {
            let ids = found.into_iter().map(|offer| offer.id.into()).collect();
            let name = name.to_owned();
            return Err(Error::of(&LIST_OFFERS, Kind::Ambiguous { name, ids }));
        }
        Ok(found.pop())
    }

    /// The images this hardware can run.
    pub async fn metal_os(&self, zone: &Zone, offer: &OfferId) -> Result<Vec<Os>, Error> {
        let call = Call::new(&LIST_OS, format!("{}/os", base(zone)));
        self.list::<OsPage, _>(call.query("offer_id", offer.as_str())).await
    }

    /// The options this hardware can have.
    pub async fn metal_options(&self, zone: &Zone, offer: &OfferId) -> Result<Vec<MetalOption>, Error> {
        let call = Call::new(&LIST_OPTIONS, format!("{}/options", base(zone)));
        self.list::<Options, _>(call.query("offer_id", offer.as_str())).await
    }

    /// Orders a server. Sent once: if the answer is lost, look for its tags before trying again.
    pub async fn order_metal(&self, zone: &Zone, order: &OrderMetal) -> Result<Server, Error> {
        let sealed = order.sealed(self.project());
        let call = Call::new(&ORDER, format!("{}/servers", base(zone)));
        self.fetch(call.sealed_body(&sealed.body, sealed.secrets)).await
    }

    /// The servers of the project in this zone, oldest first.
    pub async fn metal_servers(&self, zone: &Zone, filter: &MetalFilter) -> Result<Vec<Server>, Error> {
        let mut call = Call::new(&LIST, format!("{}/servers", base(zone)))
            .query("order_by", "created_at_asc")
            .query("project_id", self.project().as_str())
            .queries("tags", filter.tags.iter().map(String::as_str))
            .queries("status", filter.statuses.iter().map(Status::as_str));
        if let Some(name) = &filter.name {
            call = call.query("name", name);
        }
        let mut found = self.list::<Servers, _>(call).await?;
        only_ours(&LIST, self.project(), &mut found, |server| &server.project_id);
        found.retain(|server| {
            is_named(&server.name, filter.name.as_deref())
                && has_tags(&server.tags, &filter.tags)
                && (filter.statuses.is_empty() || filter.statuses.contains(&server.status))
        });
        Ok(found)
    }

    /// One server. It may belong to another project: look at `project_id` before touching it.
    pub async fn metal_server(&self, zone: &Zone, id: &ServerId) -> Result<Server, Error> {
        self.fetch(Call::new(&GET, server_path(zone, id))).await
    }

    /// Changes the name, the tags or the user data of a server. The last write wins, so check what is there right before.
    pub async fn update_metal(&self, zone: &Zone, id: &ServerId, update: &UpdateMetal) -> Result<Server, Error> {
        let sealed = update.sealed();
        let call = Call::new(&UPDATE, server_path(zone, id));
        self.fetch(call.sealed_body(&sealed.body, sealed.secrets)).await
    }

    /// **Wipes** a server and installs an image.
    pub async fn install_metal(&self, zone: &Zone, id: &ServerId, install: &Install) -> Result<Server, Error> {
        let sealed = install.sealed();
        let call = Call::new(&INSTALL, format!("{}/install", server_path(zone, id)));
        self.fetch(call.sealed_body(&sealed.body, sealed.secrets)).await
    }

    /// Restarts a server from its own disks.
    pub async fn reboot_metal(&self, zone: &Zone, id: &ServerId) -> Result<Server, Error> {
        let call = Call::new(&REBOOT, format!("{}/reboot", server_path(zone, id)));
        self.fetch(call.body(json!({ "boot_type": "normal" }))).await
    }

    /// Gives a server up for good. It is gone when it is no longer found.
    pub async fn delete_metal(&self, zone: &Zone, id: &ServerId) -> Result<(), Error> {
        self.send(Call::new(&DELETE, server_path(zone, id))).await
    }

    /// What happened to a server.
    pub async fn metal_events(&self, zone: &Zone, id: &ServerId) -> Result<Vec<Event>, Error> {
        let call = Call::new(&LIST_EVENTS, format!("{}/events", server_path(zone, id)));
        self.list::<Events, _>(call.query("order_by", "created_at_asc")).await
    }

    /// Gives a server an option. Takes effect later; see [`Server::options`].
    pub async fn add_metal_option(&self, zone: &Zone, id: &ServerId, option: &OptionId) -> Result<Server, Error> {
        let path = format!("{}/options/{option}", server_path(zone, id));
        self.fetch(Call::new(&ADD_OPTION, path).body(json!({}))).await
    }

    /// Takes an option away from a server; it is paid for until it is gone.
    pub async fn remove_metal_option(&self, zone: &Zone, id: &ServerId, option: &OptionId) -> Result<(), Error> {
        let path = format!("{}/options/{option}", server_path(zone, id));
        self.send(Call::new(&REMOVE_OPTION, path)).await
    }

    /// The Private Networks a server is on.
    pub async fn metal_private_networks(&self, zone: &Zone, id: &ServerId) -> Result<Vec<Attachment>, Error> {
        let call = Call::new(&LIST_ATTACHMENTS, format!("{}/server-private-networks", base(zone)));
        let call = call.query("order_by", "created_at_asc");
        self.list::<Attachments, _>(call.query("server_id", id.as_str())).await
    }

    /// Puts a server on a Private Network. Its VLAN is known later.
    pub async fn attach_metal_private_network(
        &self,
        zone: &Zone,
        id: &ServerId,
        network: &PrivateNetworkId,
    ) -> Result<Attachment, Error> {
        let call = Call::new(&ATTACH, format!("{}/private-networks", server_path(zone, id)));
        self.fetch(call.body(json!({ "private_network_id": network }))).await
    }

    /// Takes a server off a Private Network.
    pub async fn detach_metal_private_network(
        &self,
        zone: &Zone,
        id: &ServerId,
        network: &PrivateNetworkId,
    ) -> Result<(), Error> {
        let path = format!("{}/private-networks/{network}", server_path(zone, id));
        self.send(Call::new(&DETACH, path)).await
    }

    /// How the disks of this hardware are divided unless somebody says otherwise.
    pub async fn default_metal_partitions(&self, zone: &Zone, offer: &OfferId, os: &OsId) -> Result<Schema, Error> {
        let call = Call::new(&GET_PARTITIONS, format!("{}/partitioning-schemas/default", base(zone)))
            .query("offer_id", offer.as_str())
            .query("os_id", os.as_str());
        self.fetch(call).await
    }

    /// Whether the API would take this division. Changes nothing.
    pub async fn validate_metal_partitions(
        &self,
        zone: &Zone,
        offer: &OfferId,
        os: &OsId,
        schema: &Schema,
    ) -> Result<(), Error> {
        let body = json!({ "offer_id": offer, "os_id": os, "partitioning_schema": schema });
        let path = format!("{}/partitioning-schemas/validate", base(zone));
        self.send(Call::new(&VALIDATE_PARTITIONS, path).body(body)).await
    }
}
