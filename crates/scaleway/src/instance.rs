//! Instances: virtual servers.
//!
//! The oldest of the products, with habits of its own: lists are counted in a header, a project is called `project`, and
//! refusals have another form. Making one, switching it on and putting it on a network are three calls on purpose: each is
//! sent once, and after each the caller can write down what it has.

mod products;
mod requests;
mod types;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use russet_api::values::{ServerId, Zone};
use russet_telemetry::Secret;
use serde::Deserialize;
use serde_json::json;

use crate::call::{Call, Endpoint};
use crate::client::Client;
use crate::error::Error;
use crate::filter::{has_tags, is_named, only_ours};
use crate::ids::{PrivateNetworkId, PrivateNicId, PublicIpId, VolumeId};
use crate::wire::null_is_default;

pub use products::{InstanceType, Stock, TypeStock};
pub use requests::{Action, CreateInstance, InstanceFilter, IpFilter, RootVolume, VolumeFilter};
pub use types::{
    AttachedVolume, Holder, Image, Instance, Ip, NicState, PrivateNic, PublicIp, State, Task, TaskStatus, Volume,
    VolumeType,
};

/// The user data an Instance boots with.
pub const CLOUD_INIT: &str = "cloud-init";

const PERMISSION: &str = "InstancesFullAccess";
static LIST: Endpoint = Endpoint::read("instance.list_servers", PERMISSION);
static GET: Endpoint = Endpoint::read("instance.get_server", PERMISSION);
static CREATE: Endpoint = Endpoint::once("instance.create_server", Method::POST, PERMISSION);
static ACTION: Endpoint = Endpoint::once("instance.server_action", Method::POST, PERMISSION);
static DELETE: Endpoint = Endpoint::remove("instance.delete_server", PERMISSION);
static LIST_USER_DATA: Endpoint = Endpoint::read("instance.list_user_data", PERMISSION);
static SET_USER_DATA: Endpoint = Endpoint::set("instance.set_user_data", Method::PATCH, PERMISSION);
static DELETE_USER_DATA: Endpoint = Endpoint::remove("instance.delete_user_data", PERMISSION);
static LIST_NICS: Endpoint = Endpoint::read("instance.list_private_nics", PERMISSION);
static CREATE_NIC: Endpoint = Endpoint::once("instance.create_private_nic", Method::POST, PERMISSION);
static DELETE_NIC: Endpoint = Endpoint::remove("instance.delete_private_nic", PERMISSION);
static LIST_IPS: Endpoint = Endpoint::read("instance.list_ips", PERMISSION);
static DELETE_IP: Endpoint = Endpoint::remove("instance.delete_ip", PERMISSION);
static LIST_VOLUMES: Endpoint = Endpoint::read("instance.list_volumes", PERMISSION);
static DELETE_VOLUME: Endpoint = Endpoint::remove("instance.delete_volume", PERMISSION);

counted_listing!(Servers { servers: Instance });
counted_listing!(Nics {
    private_nics: PrivateNic
});
counted_listing!(Ips { ips: Ip });
counted_listing!(Volumes { volumes: Volume });
row!(Instance, PrivateNic, Ip, Volume);

#[derive(Deserialize)]
struct OneServer {
    server: Instance,
}

#[derive(Deserialize)]
struct OneNic {
    private_nic: PrivateNic,
}

#[derive(Deserialize)]
struct OneTask {
    task: Task,
}

#[derive(Deserialize)]
struct Keys {
    #[serde(default, deserialize_with = "null_is_default")]
    user_data: Vec<String>,
}

fn base(zone: &Zone) -> String {
    format!("/instance/v1/zones/{zone}")
}

fn server_path(zone: &Zone, id: &ServerId) -> String {
    format!("{}/servers/{id}", base(zone))
}

fn user_data_path(zone: &Zone, id: &ServerId, key: &str) -> String {
    /// What a segment of a path may hold as it is.
    const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    format!(
        "{}/user_data/{}",
        server_path(zone, id),
        utf8_percent_encode(key, SEGMENT)
    )
}

/// Asks for rows with all these tags. The API takes them in one text, parted by commas, so a tag with a comma in it cannot be
/// asked for; such rows are chosen by us.
fn tagged(call: Call, tags: &[String]) -> Call {
    let sayable: Vec<&str> = tags
        .iter()
        .map(String::as_str)
        .filter(|tag| !tag.contains(','))
        .collect();
    if sayable.is_empty() {
        return call;
    }
    call.query("tags", sayable.join(","))
}

impl Client {
    /// Makes an Instance and leaves it off. Sent once: if the answer is lost, look for its tags before trying again.
    pub async fn create_instance(&self, zone: &Zone, wanted: &CreateInstance) -> Result<Instance, Error> {
        let call = Call::new(&CREATE, format!("{}/servers", base(zone)));
        let made: OneServer = self.fetch(call.body(wanted.body(self.project()))).await?;
        Ok(made.server)
    }

    /// The Instances of the project in this zone, oldest first.
    pub async fn instances(&self, zone: &Zone, filter: &InstanceFilter) -> Result<Vec<Instance>, Error> {
        let mut call = Call::new(&LIST, format!("{}/servers", base(zone)))
            .query("project", self.project().as_str())
            .query("order", "creation_date_asc");
        if let Some(name) = &filter.name {
            call = call.query("name", name);
        }
        let mut found = self.list_counted::<Servers, _>(tagged(call, &filter.tags)).await?;
        only_ours(&LIST, self.project(), &mut found, |server| &server.project);
        found.retain(|server| is_named(&server.name, filter.name.as_deref()) && has_tags(&server.tags, &filter.tags));
        Ok(found)
    }

    /// One Instance. It may belong to another project: look at `project` before touching it.
    pub async fn instance(&self, zone: &Zone, id: &ServerId) -> Result<Instance, Error> {
        let one: OneServer = self.fetch(Call::new(&GET, server_path(zone, id))).await?;
        Ok(one.server)
    }

    /// Switches an Instance on or off, restarts it or gives it up. What it asks for happens later.
    pub async fn instance_action(&self, zone: &Zone, id: &ServerId, action: Action) -> Result<Task, Error> {
        let call = Call::new(&ACTION, format!("{}/action", server_path(zone, id)));
        let begun: OneTask = self.fetch(call.body(json!({ "action": action.as_str() }))).await?;
        Ok(begun.task)
    }

    /// Deletes an Instance that is off. Its volumes and its addresses stay, and are paid for.
    pub async fn delete_instance(&self, zone: &Zone, id: &ServerId) -> Result<(), Error> {
        self.send(Call::new(&DELETE, server_path(zone, id))).await
    }

    /// The keys of an Instance's user data. What they hold is never read back.
    pub async fn user_data_keys(&self, zone: &Zone, id: &ServerId) -> Result<Vec<String>, Error> {
        let call = Call::new(&LIST_USER_DATA, format!("{}/user_data", server_path(zone, id)));
        let keys: Keys = self.fetch(call).await?;
        Ok(keys.user_data)
    }

    /// Sets user data, such as [`CLOUD_INIT`]. Anything that runs on the Instance can read it there.
    pub async fn set_user_data(
        &self,
        zone: &Zone,
        id: &ServerId,
        key: &str,
        value: Secret<String>,
    ) -> Result<(), Error> {
        self.send(Call::new(&SET_USER_DATA, user_data_path(zone, id, key)).sealed_text(value))
            .await
    }

    /// Removes user data.
    pub async fn delete_user_data(&self, zone: &Zone, id: &ServerId, key: &str) -> Result<(), Error> {
        self.send(Call::new(&DELETE_USER_DATA, user_data_path(zone, id, key)))
            .await
    }

    /// The interfaces of an Instance on Private Networks.
    pub async fn private_nics(&self, zone: &Zone, id: &ServerId) -> Result<Vec<PrivateNic>, Error> {
        let call = Call::new(&LIST_NICS, format!("{}/private_nics", server_path(zone, id)));
        self.list_counted::<Nics, _>(call).await
    }

    /// Puts an Instance on a Private Network. Its address is known to IPAM, later.
    pub async fn create_private_nic(
        &self,
        zone: &Zone,
        id: &ServerId,
        network: &PrivateNetworkId,
    ) -> Result<PrivateNic, Error> {
        let call = Call::new(&CREATE_NIC, format!("{}/private_nics", server_path(zone, id)));
        let made: OneNic = self.fetch(call.body(json!({ "private_network_id": network }))).await?;
        Ok(made.private_nic)
    }

    /// Takes an Instance off a Private Network.
    pub async fn delete_private_nic(&self, zone: &Zone, id: &ServerId, nic: &PrivateNicId) -> Result<(), Error> {
        let path = format!("{}/private_nics/{nic}", server_path(zone, id));
        self.send(Call::new(&DELETE_NIC, path)).await
    }

    /// The public addresses of the project in this zone, those that no Instance has included.
    pub async fn instance_ips(&self, zone: &Zone, filter: &IpFilter) -> Result<Vec<Ip>, Error> {
        let call = Call::new(&LIST_IPS, format!("{}/ips", base(zone))).query("project", self.project().as_str());
        let mut found = self.list_counted::<Ips, _>(tagged(call, &filter.tags)).await?;
        only_ours(&LIST_IPS, self.project(), &mut found, |ip| &ip.project);
        found.retain(|ip| has_tags(&ip.tags, &filter.tags) && is_held(ip.server.as_ref(), filter.server.as_ref()));
        Ok(found)
    }

    /// Gives a public address up.
    pub async fn delete_instance_ip(&self, zone: &Zone, id: &PublicIpId) -> Result<(), Error> {
        self.send(Call::new(&DELETE_IP, format!("{}/ips/{id}", base(zone))))
            .await
    }

    /// The volumes of the Instance product, those that no Instance has included. Block storage is not among them: see
    /// [`Client::block_volumes`].
    pub async fn instance_volumes(&self, zone: &Zone, filter: &VolumeFilter) -> Result<Vec<Volume>, Error> {
        let mut call =
            Call::new(&LIST_VOLUMES, format!("{}/volumes", base(zone))).query("project", self.project().as_str());
        if let Some(name) = &filter.name {
            call = call.query("name", name);
        }
        let mut found = self.list_counted::<Volumes, _>(tagged(call, &filter.tags)).await?;
        only_ours(&LIST_VOLUMES, self.project(), &mut found, |volume| &volume.project);
        found.retain(|volume| {
            is_named(&volume.name, filter.name.as_deref())
                && has_tags(&volume.tags, &filter.tags)
                && is_held(volume.server.as_ref(), filter.server.as_ref())
        });
        Ok(found)
    }

    /// Deletes a volume of the Instance product for good.
    pub async fn delete_instance_volume(&self, zone: &Zone, id: &VolumeId) -> Result<(), Error> {
        self.send(Call::new(&DELETE_VOLUME, format!("{}/volumes/{id}", base(zone))))
            .await
    }
}

fn is_held(holder: Option<&Holder>, wanted: Option<&ServerId>) -> bool {
    wanted.is_none_or(|wanted| holder.is_some_and(|holder| holder.id == *wanted))
}
