//! `KuraInstance`: the build cache of one account in one region.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::conditions::Condition;
use crate::labels;
use crate::open_enum::open_enum;
use crate::schema;
use crate::values::{AccountHandle, CacheRegion, CidrBlock, Invalid, Mbps, TenantId, non_empty};

/// Text that can be part of a DNS name.
const DNS_LABEL: &str = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$";

/// The build cache of one account in one region.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kura.tuist.dev",
    version = "v1alpha1",
    kind = "KuraInstance",
    plural = "kurainstances",
    shortname = "kura",
    namespaced,
    status = "KuraInstanceStatus",
    derive = "PartialEq",
    doc = "The build cache of one account in one region: a StatefulSet with its Services, certificates and network policy.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Host", type_ = "string", json_path = ".spec.publicHost"),
    printcolumn(name = "gRPC", type_ = "string", json_path = ".status.grpcPublicURL"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Account", type_ = "string", json_path = ".spec.accountHandle", priority = 1),
    printcolumn(name = "Region", type_ = "string", json_path = ".spec.region", priority = 1),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.observedImage", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = json!([{
    "rule": "!has(self.memoryFloorMib) || !has(self.memoryCeilingMib) || self.memoryFloorMib <= 0 || self.memoryCeilingMib <= 0 || self.memoryFloorMib <= self.memoryCeilingMib",
    "message": "memoryFloorMib must not be above memoryCeilingMib: a Pod cannot reserve more than its limit"
}])))]
pub struct KuraInstanceSpec {
    /// Account the cache belongs to. Instances of one account and `mesh: true` replicate with each other, and with no
    /// one else.
    #[schemars(length(min = 1, max = 63), pattern(DNS_LABEL))]
    pub account_handle: String,
    /// Tenant under which the cache files what it stores.
    #[serde(rename = "tenantID")]
    #[schemars(length(min = 1, max = 63), pattern(DNS_LABEL))]
    pub tenant_id: String,
    /// Region the cache serves, such as `scw-fr-par-runners`.
    #[schemars(length(min = 1, max = 63), pattern(DNS_LABEL))]
    pub region: String,
    /// Image of the cache, best with a digest.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// Number of replicas. Default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub replicas: Option<i32>,

    /// Public host name; an Ingress and a certificate are made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub public_host: Option<String>,
    /// Not used: gRPC is served under `publicHost`. Kept for older objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub grpc_public_host: Option<String>,
    /// Class of the Ingress. Default `nginx`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_class_name: Option<String>,
    /// Serve `publicHost` straight from the node the primary runs on, without a load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_host_network: Option<bool>,

    /// No public endpoint: the cache is reached inside the cluster or over a private network only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<bool>,
    /// Serve on a port of the primary's node, for clients such as macOS runner VMs that share a network with the node but
    /// are not Pods. `status.nodeAddress` and `status.nodePortCache` say where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expose_node_port: Option<bool>,
    /// Networks whose clients may reach the node port.
    #[serde(rename = "clientCIDRs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "client_cidrs")]
    pub client_cidrs: Vec<String>,
    /// Annotations of the cache Pods, such as `kubernetes.io/egress-bandwidth: 750M`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_annotations: BTreeMap<String, String>,

    /// Outgoing bandwidth that is reserved for this cache on its node, in Mbit/s. Nodes offer it as
    /// `tuist.dev/egress-mbps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub egress_guaranteed_mbps: Option<i64>,
    /// Memory that is reserved for each replica, in MiB. Default 2048.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub memory_floor_mib: Option<i64>,
    /// Memory a replica may grow to, in MiB. Default 4096, or the floor if that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub memory_ceiling_mib: Option<i64>,
    /// Count the ceiling against what the node offers as `tuist.dev/memory-ceiling-mib`, so that the ceilings of a node
    /// never add up to more than it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_ceiling_bin_packed: Option<bool>,

    /// Secret with a peer certificate of your own: `ca.pem`, `tls.crt`, `tls.key`. Default: one is issued.
    #[serde(rename = "peerTLSSecretName", default, skip_serializing_if = "Option::is_none")]
    pub peer_tls_secret_name: Option<String>,
    /// Replicate with the other instances of the account, under a certificate authority of the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<bool>,
    /// Public name under which nodes outside the cluster reach this instance's peer port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh_public_peer_host: Option<String>,
    /// URLs of peers outside the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mesh_external_peers: Vec<String>,
    /// Annotations of the load balancer in front of the peer port.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mesh_public_peer_load_balancer_annotations: BTreeMap<String, String>,
    /// Serve the peer port from the node, through one proxy per region, instead of a load balancer per instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh_peer_host_network: Option<bool>,
    /// Failover address of the peer port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh_peer_failover_ip: Option<String>,

    /// Storage class of the cache volumes. A change rebuilds them empty; the mesh fills them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Size of each cache volume. Default `200Gi`. It can grow, not shrink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_size: Option<String>,

    /// Nodes the cache may run on. Default `node.cluster.x-k8s.io/pool: kura`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints the cache tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::open_items)]
    pub tolerations: Vec<Toleration>,
    /// Further environment variables; they win over those the controller sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::open_items)]
    pub extra_env: Vec<EnvVar>,
}

/// The list has a bound only because the API server must be able to estimate the cost of checking its entries.
fn client_cidrs(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 256,
        "items": {
            "type": "string",
            "maxLength": 64,
            "x-kubernetes-validations": schema::cidr("an entry of clientCIDRs"),
        },
    })
}

impl KuraInstanceSpec {
    /// Replicas when `spec.replicas` is absent.
    pub const DEFAULT_REPLICAS: i32 = 3;
    /// Class when `spec.ingressClassName` is absent.
    pub const DEFAULT_INGRESS_CLASS: &'static str = "nginx";
    /// Floor when `spec.memoryFloorMib` is absent or 0.
    pub const DEFAULT_MEMORY_FLOOR_MIB: i64 = 2048;
    /// Ceiling when `spec.memoryCeilingMib` is absent or 0.
    pub const DEFAULT_MEMORY_CEILING_MIB: i64 = 4096;
    /// Size when `spec.storageSize` is absent.
    pub const DEFAULT_STORAGE_SIZE: &'static str = "200Gi";

    /// `spec.replicas`, or the default.
    pub fn replicas_or_default(&self) -> i32 {
        self.replicas.unwrap_or(Self::DEFAULT_REPLICAS)
    }

    /// `spec.ingressClassName`, or the default.
    pub fn ingress_class_or_default(&self) -> &str {
        non_empty(self.ingress_class_name.as_deref()).unwrap_or(Self::DEFAULT_INGRESS_CLASS)
    }

    /// `spec.storageSize`, or the default.
    pub fn storage_size_or_default(&self) -> &str {
        non_empty(self.storage_size.as_deref()).unwrap_or(Self::DEFAULT_STORAGE_SIZE)
    }

    /// Memory to reserve, in MiB.
    pub fn memory_floor_mib_or_default(&self) -> i64 {
        self.memory_floor_mib
            .filter(|m| *m > 0)
            .unwrap_or(Self::DEFAULT_MEMORY_FLOOR_MIB)
    }

    /// Memory limit, in MiB; never below the floor, or the Pod would be refused.
    pub fn memory_ceiling_mib_or_default(&self) -> i64 {
        let ceiling = self
            .memory_ceiling_mib
            .filter(|m| *m > 0)
            .unwrap_or(Self::DEFAULT_MEMORY_CEILING_MIB);
        ceiling.max(self.memory_floor_mib_or_default())
    }

    /// `spec.nodeSelector`, or the default.
    pub fn node_selector_or_default(&self) -> BTreeMap<String, String> {
        if self.node_selector.is_empty() {
            BTreeMap::from([(labels::POOL.to_owned(), labels::POOL_KURA.to_owned())])
        } else {
            self.node_selector.clone()
        }
    }

    /// `spec.accountHandle`, parsed.
    pub fn account(&self) -> Result<AccountHandle, Invalid> {
        AccountHandle::try_from(self.account_handle.as_str())
    }

    /// `spec.tenantID`, parsed.
    pub fn tenant(&self) -> Result<TenantId, Invalid> {
        TenantId::try_from(self.tenant_id.as_str())
    }

    /// `spec.region`, parsed.
    pub fn region(&self) -> Result<CacheRegion, Invalid> {
        CacheRegion::try_from(self.region.as_str())
    }

    /// `spec.clientCIDRs`, parsed.
    pub fn client_networks(&self) -> Result<Vec<CidrBlock>, Invalid> {
        self.client_cidrs
            .iter()
            .map(|c| CidrBlock::try_from(c.as_str()))
            .collect()
    }

    /// `spec.egressGuaranteedMbps`, if it reserves anything.
    pub fn egress_guaranteed(&self) -> Result<Option<Mbps>, Invalid> {
        self.egress_guaranteed_mbps
            .filter(|m| *m != 0)
            .map(Mbps::try_from)
            .transpose()
    }
}

open_enum! {
    /// Whether a cache serves.
    pub enum KuraPhase {
        /// Not everything is there yet.
        Pending = "Pending",
        /// The cache serves.
        Ready = "Ready",
    }
}

/// What is known about a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KuraInstanceStatus {
    /// Pending or Ready. For people; programs read conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<KuraPhase>,
    /// URL of the cache for HTTP clients.
    #[serde(rename = "publicURL", default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// URL of the cache for gRPC clients.
    #[serde(rename = "grpcPublicURL", default, skip_serializing_if = "Option::is_none")]
    pub grpc_public_url: Option<String>,
    /// Image all replicas run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_image: Option<String>,
    /// Replicas that are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// What the cache waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Private Network address of the node the primary runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_address: Option<String>,
    /// Port on that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port_cache: Option<i32>,
    /// Port on that node, under the name the first releases used.
    #[serde(rename = "nodePortHTTP", default, skip_serializing_if = "Option::is_none")]
    pub node_port_http: Option<i32>,
    /// Pod that serves clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
    /// When the controller last looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconciled_at: Option<Time>,
    /// What was observed: Ready, Exposed, Meshed, FieldsStored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The `metadata.generation` this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl KuraInstanceStatus {
    /// Address and port of the node-port endpoint, once both are known.
    pub fn node_endpoint(&self) -> Option<(&str, u16)> {
        let address = non_empty(self.node_address.as_deref())?;
        let port = self.node_port_cache.or(self.node_port_http)?;
        u16::try_from(port).ok().filter(|p| *p > 0).map(|p| (address, p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_defaults_hold() {
        let spec = KuraInstanceSpec::default();
        assert_eq!(spec.replicas_or_default(), 3);
        assert_eq!(spec.ingress_class_or_default(), "nginx");
        assert_eq!(spec.storage_size_or_default(), "200Gi");
        assert_eq!(spec.memory_floor_mib_or_default(), 2048);
        assert_eq!(spec.memory_ceiling_mib_or_default(), 4096);
        assert_eq!(spec.node_selector_or_default()["node.cluster.x-k8s.io/pool"], "kura");
        assert_eq!(spec.egress_guaranteed().unwrap(), None);
    }

    #[test]
    fn a_floor_above_the_default_ceiling_lifts_the_ceiling() {
        let spec = KuraInstanceSpec {
            memory_floor_mib: Some(8192),
            ..Default::default()
        };
        assert_eq!(spec.memory_ceiling_mib_or_default(), 8192);
    }

    #[test]
    fn the_node_endpoint_needs_an_address_and_a_port() {
        let mut status = KuraInstanceStatus {
            node_address: Some("172.16.0.2".into()),
            ..Default::default()
        };
        assert_eq!(status.node_endpoint(), None);
        status.node_port_http = Some(30985);
        assert_eq!(status.node_endpoint(), Some(("172.16.0.2", 30985)));
        status.node_port_cache = Some(31000);
        assert_eq!(status.node_endpoint(), Some(("172.16.0.2", 31000)));
    }
}
