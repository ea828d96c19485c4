//! Apple silicon: Mac minis.
//!
//! There is no way to order one here on purpose: hosts come from a pool that people fill.

mod types;

use reqwest::Method;
use russet_api::values::{ServerId, Zone};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::{Call, Endpoint};
use crate::client::Client;
use crate::error::Error;
use crate::ids::{DiagnosticId, OsId, PrivateNetworkId};
use crate::pages::{Page, Row};
use crate::wire::null_is_default;

pub use types::{
    Attachment, AttachmentStatus, Diagnostic, DiagnosticStatus, Health, Os, Password, Server, ServerStatus, ServerType,
    Stock, VpcStatus,
};

const PERMISSION: &str = "AppleSiliconFullAccess";
static LIST_SERVERS: Endpoint = Endpoint::read("apple_silicon.list_servers", PERMISSION);
static GET_SERVER: Endpoint = Endpoint::read("apple_silicon.get_server", PERMISSION);
static LIST_OS: Endpoint = Endpoint::read("apple_silicon.list_os", PERMISSION);
static LIST_TYPES: Endpoint = Endpoint::read("apple_silicon.list_server_types", PERMISSION);
static LIST_ATTACHMENTS: Endpoint = Endpoint::read("apple_silicon.list_server_private_networks", PERMISSION);
static GET_DIAGNOSTIC: Endpoint = Endpoint::read("apple_silicon.get_connectivity_diagnostic", PERMISSION);
static RENAME: Endpoint = Endpoint::once("apple_silicon.rename_server", Method::PATCH, PERMISSION);
static SET_VPC: Endpoint = Endpoint::once("apple_silicon.set_server_vpc", Method::PATCH, PERMISSION);
static SCHEDULE_DELETION: Endpoint = Endpoint::once("apple_silicon.schedule_deletion", Method::PATCH, PERMISSION);
static REBOOT: Endpoint = Endpoint::once("apple_silicon.reboot_server", Method::POST, PERMISSION);
static REINSTALL: Endpoint = Endpoint::once("apple_silicon.reinstall_server", Method::POST, PERMISSION);
static ATTACH: Endpoint = Endpoint::once("apple_silicon.attach_private_network", Method::POST, PERMISSION);
static START_DIAGNOSTIC: Endpoint =
    Endpoint::once("apple_silicon.start_connectivity_diagnostic", Method::POST, PERMISSION);
static DETACH: Endpoint = Endpoint::remove("apple_silicon.detach_private_network", PERMISSION);
static DELETE: Endpoint = Endpoint::remove("apple_silicon.delete_server", PERMISSION);

#[derive(Deserialize)]
struct Servers {
    #[serde(default, deserialize_with = "null_is_default")]
    servers: Vec<Server>,
    total_count: u64,
}

impl From<Servers> for Page<Server> {
    fn from(servers: Servers) -> Self {
        Self {
            rows: servers.servers,
            total: servers.total_count,
        }
    }
}

impl Row for Server {
    fn id(&self) -> &str {
        self.id.as_str()
    }
}

#[derive(Deserialize)]
struct OsPage {
    #[serde(default, deserialize_with = "null_is_default")]
    os: Vec<Os>,
    total_count: u64,
}

impl From<OsPage> for Page<Os> {
    fn from(page: OsPage) -> Self {
        Self {
            rows: page.os,
            total: page.total_count,
        }
    }
}

impl Row for Os {
    fn id(&self) -> &str {
        self.id.as_str()
    }
}

#[derive(Deserialize)]
struct Attachments {
    #[serde(default, deserialize_with = "null_is_default")]
    server_private_networks: Vec<Attachment>,
    total_count: u64,
}

impl From<Attachments> for Page<Attachment> {
    fn from(page: Attachments) -> Self {
        Self {
            rows: page.server_private_networks,
            total: page.total_count,
        }
    }
}

impl Row for Attachment {
    fn id(&self) -> &str {
        &self.id
    }
}

#[derive(Deserialize)]
struct ServerTypes {
    #[serde(default, deserialize_with = "null_is_default")]
    server_types: Vec<ServerType>,
}

#[derive(Deserialize)]
struct StartedDiagnostic {
    diagnostic_id: DiagnosticId,
}

fn base(zone: &Zone) -> String {
    format!("/apple-silicon/v1alpha1/zones/{zone}")
}

fn server_path(zone: &Zone, id: &ServerId) -> String {
    format!("{}/servers/{id}", base(zone))
}

impl Client {
    /// All Macs of the project in this zone, oldest first. Rows of other projects that the API may show are left out.
    pub async fn list_macs(&self, zone: &Zone) -> Result<Vec<Server>, Error> {
        let call = Call::new(&LIST_SERVERS, format!("{}/servers", base(zone)))
            .query("order_by", "created_at_asc")
            .query("project_id", self.project().as_str());
        let mut servers = self.list::<Servers, _>(call).await?;
        let all = servers.len();
        servers.retain(|server| server.project_id == *self.project());
        if servers.len() < all {
            tracing::warn!(
                zone = zone.as_str(),
                foreign = all - servers.len(),
                "the API listed Macs of other projects; they are left alone"
            );
        }
        Ok(servers)
    }

    /// One Mac. It may belong to another project: look at `project_id` before touching it.
    pub async fn get_mac(&self, zone: &Zone, id: &ServerId) -> Result<Server, Error> {
        self.fetch(Call::new(&GET_SERVER, server_path(zone, id))).await
    }

    /// Renames a Mac. The last write wins whatever the name was, so check it right before.
    pub async fn rename_mac(&self, zone: &Zone, id: &ServerId, name: &str) -> Result<Server, Error> {
        self.patch_mac(&RENAME, zone, id, json!({ "name": name })).await
    }

    /// Allows or forbids Private Networks on a Mac. Takes effect later; see [`Server::vpc_status`].
    pub async fn set_mac_vpc(&self, zone: &Zone, id: &ServerId, enabled: bool) -> Result<Server, Error> {
        self.patch_mac(&SET_VPC, zone, id, json!({ "enable_vpc": enabled }))
            .await
    }

    /// Asks for, or calls off, the deletion of a Mac as soon as its minimum lease ends.
    pub async fn schedule_mac_deletion(&self, zone: &Zone, id: &ServerId, scheduled: bool) -> Result<Server, Error> {
        self.patch_mac(&SCHEDULE_DELETION, zone, id, json!({ "schedule_deletion": scheduled }))
            .await
    }

    async fn patch_mac(
        &self,
        endpoint: &'static Endpoint,
        zone: &Zone,
        id: &ServerId,
        body: Value,
    ) -> Result<Server, Error> {
        self.fetch(Call::new(endpoint, server_path(zone, id)).body(body)).await
    }

    /// Restarts a Mac.
    pub async fn reboot_mac(&self, zone: &Zone, id: &ServerId) -> Result<Server, Error> {
        self.fetch(Call::new(&REBOOT, format!("{}/reboot", server_path(zone, id))).body(json!({})))
            .await
    }

    /// **Wipes** a Mac and installs this image, or the default image of the day. Host key and password change; the keys
    /// registered with IAM at that moment are put on it.
    pub async fn reinstall_mac(&self, zone: &Zone, id: &ServerId, os: Option<&OsId>) -> Result<Server, Error> {
        let body = os.map_or_else(|| json!({}), |os| json!({ "os_id": os }));
        self.fetch(Call::new(&REINSTALL, format!("{}/reinstall", server_path(zone, id))).body(body))
            .await
    }

    /// Gives a Mac up for good. Refused before its `deletable_at`.
    pub async fn delete_mac(&self, zone: &Zone, id: &ServerId) -> Result<(), Error> {
        self.send(Call::new(&DELETE, server_path(zone, id))).await
    }

    /// The images this type of hardware can run.
    pub async fn list_mac_os(&self, zone: &Zone, server_type: &str) -> Result<Vec<Os>, Error> {
        let call = Call::new(&LIST_OS, format!("{}/os", base(zone)));
        self.list::<OsPage, _>(call.query("server_type", server_type)).await
    }

    /// Hardware, with stock.
    pub async fn list_mac_types(&self, zone: &Zone) -> Result<Vec<ServerType>, Error> {
        let types: ServerTypes = self
            .fetch(Call::new(&LIST_TYPES, format!("{}/server-types", base(zone))))
            .await?;
        Ok(types.server_types)
    }

    /// The Private Networks a Mac is on.
    pub async fn list_mac_attachments(&self, zone: &Zone, id: &ServerId) -> Result<Vec<Attachment>, Error> {
        let call = Call::new(&LIST_ATTACHMENTS, format!("{}/server-private-networks", base(zone)));
        self.list::<Attachments, _>(call.query("server_id", id.as_str())).await
    }

    /// Puts a Mac on a Private Network. Its VLAN is known later.
    pub async fn attach_mac(
        &self,
        zone: &Zone,
        id: &ServerId,
        network: &PrivateNetworkId,
    ) -> Result<Attachment, Error> {
        let body = json!({ "private_network_id": network });
        self.fetch(Call::new(&ATTACH, format!("{}/private-networks", server_path(zone, id))).body(body))
            .await
    }

    /// Takes a Mac off a Private Network.
    pub async fn detach_mac(&self, zone: &Zone, id: &ServerId, network: &PrivateNetworkId) -> Result<(), Error> {
        self.send(Call::new(
            &DETACH,
            format!("{}/private-networks/{network}", server_path(zone, id)),
        ))
        .await
    }

    /// Has Scaleway look whether a Mac can be reached.
    pub async fn start_mac_diagnostic(&self, zone: &Zone, id: &ServerId) -> Result<DiagnosticId, Error> {
        let call = Call::new(&START_DIAGNOSTIC, format!("{}/connectivity-diagnostics", base(zone)));
        let started: StartedDiagnostic = self.fetch(call.body(json!({ "server_id": id }))).await?;
        Ok(started.diagnostic_id)
    }

    /// What it found.
    pub async fn get_mac_diagnostic(&self, zone: &Zone, id: &DiagnosticId) -> Result<Diagnostic, Error> {
        self.fetch(Call::new(
            &GET_DIAGNOSTIC,
            format!("{}/connectivity-diagnostics/{id}", base(zone)),
        ))
        .await
    }
}
