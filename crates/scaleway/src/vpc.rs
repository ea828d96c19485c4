//! VPC: Private Networks. They belong to a region and reach all its zones: [`russet_api::values::Zone::region`] says which.

use reqwest::Method;
use russet_api::values::{CidrBlock, Region};
use serde::Deserialize;
use serde_json::json;

use crate::call::{Call, Endpoint};
use crate::client::Client;
use crate::error::{Error, Kind};
use crate::ids::{PrivateNetworkId, ProjectId};
use crate::pages::{Page, Row};
use crate::wire::null_is_default;

const PERMISSION: &str = "PrivateNetworksFullAccess";
static LIST: Endpoint = Endpoint::read("vpc.list_private_networks", PERMISSION);
static GET: Endpoint = Endpoint::read("vpc.get_private_network", PERMISSION);
static CREATE: Endpoint = Endpoint::once("vpc.create_private_network", Method::POST, PERMISSION);

/// A Private Network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PrivateNetwork {
    /// Its id.
    pub id: PrivateNetworkId,
    /// Its name; not unique.
    pub name: String,
    /// Its project.
    pub project_id: ProjectId,
    /// Its tags.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tags: Vec<String>,
    /// Its address ranges.
    #[serde(default, deserialize_with = "null_is_default")]
    pub subnets: Vec<Subnet>,
}

/// An address range of a Private Network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Subnet {
    /// In CIDR form.
    pub subnet: String,
}

#[derive(Deserialize)]
struct Networks {
    #[serde(default, deserialize_with = "null_is_default")]
    private_networks: Vec<PrivateNetwork>,
    total_count: u64,
}

impl From<Networks> for Page<PrivateNetwork> {
    fn from(networks: Networks) -> Self {
        Self {
            rows: networks.private_networks,
            total: networks.total_count,
        }
    }
}

impl Row for PrivateNetwork {
    fn id(&self) -> &str {
        self.id.as_str()
    }
}

impl Client {
    /// The Private Network of exactly this name in the project. The API's own filter matches parts of names.
    pub async fn find_private_network(&self, region: &Region, name: &str) -> Result<Option<PrivateNetwork>, Error> {
        let call = Call::new(&LIST, format!("/vpc/v2/regions/{region}/private-networks"))
            .query("name", name)
            .query("project_id", self.project().as_str());
        let mut found = self.list::<Networks, _>(call).await?;
        found.retain(|network| network.name == name && network.project_id == *self.project());
        if found.len() > 1 {
            let ids = found.into_iter().map(|network| network.id.into()).collect();
            let name = name.to_owned();
            return Err(Error::of(&LIST, Kind::Ambiguous { name, ids }));
        }
        Ok(found.pop())
    }

    /// One Private Network. It may belong to another project: look at `project_id`.
    pub async fn private_network(&self, region: &Region, id: &PrivateNetworkId) -> Result<PrivateNetwork, Error> {
        self.fetch(Call::new(
            &GET,
            format!("/vpc/v2/regions/{region}/private-networks/{id}"),
        ))
        .await
    }

    /// Makes a Private Network in the project.
    pub async fn create_private_network(
        &self,
        region: &Region,
        name: &str,
        subnet: Option<&CidrBlock>,
        tags: &[&str],
    ) -> Result<PrivateNetwork, Error> {
        let mut body = json!({ "name": name, "project_id": self.project(), "tags": tags });
        if let (Some(subnet), Some(body)) = (subnet, body.as_object_mut()) {
            body.insert("subnets".to_owned(), json!([subnet.to_string()]));
        }
        self.fetch(Call::new(&CREATE, format!("/vpc/v2/regions/{region}/private-networks")).body(body))
            .await
    }
}
