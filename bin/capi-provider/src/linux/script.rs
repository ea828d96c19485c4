//! The join script of a machine: what it needs to know, gathered and rendered.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Service, Taint as KubeTaint};
use kube::api::Api;
use kube::config::Kubeconfig;
use kube::{Client, ResourceExt as _};
use russet_api::conditions::reasons;
use russet_api::values::{ProviderId, ServerId, Zone};
use russet_api::{labels, taints};
use russet_bootstrap::linux::{
    Data, Form, Join, KubernetesChannel, NodeAddress, PrivateNet, Rendered, Taint, cloud_init, render,
};
use russet_telemetry::Secret;
use tokio::time::Instant;

use super::kind::LinuxKind;
use super::server::{Attachment, Product};
use crate::bootstrap::{Identities, Problem};
use crate::claims::Holder;

/// What is the same for all servers of a cluster is read this often.
const FACTS_FOR: Duration = Duration::from_mins(10);
const RETRY: Duration = Duration::from_secs(30);

/// How scripts are made, as the flags say.
#[derive(Clone, Debug)]
pub struct ScriptSettings {
    /// Release of the kubelet; none: that of the API server.
    pub kubernetes: Option<KubernetesChannel>,
    /// Where Pods ask for names; none: the Service kube-dns.
    pub cluster_dns: Vec<IpAddr>,
    /// The domain of the cluster.
    pub cluster_domain: String,
    /// Which address a Node publishes.
    pub node_address: NodeAddress,
    /// Bare metal keeps what caches keep on a file system of its own.
    pub local_data: bool,
}

impl Default for ScriptSettings {
    fn default() -> Self {
        Self {
            kubernetes: None,
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            node_address: NodeAddress::default(),
            local_data: true,
        }
    }
}

/// What is the same for all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    dns: Vec<IpAddr>,
    kubernetes: KubernetesChannel,
}

/// Makes scripts.
#[derive(Debug)]
pub struct Scripts {
    settings: ScriptSettings,
    facts: Mutex<Option<(Instant, Facts)>>,
    /// The certificates of the last kubeconfig that was issued: what a hash can be made of without another.
    ca: Mutex<Option<String>>,
}

/// A server the script is for.
#[derive(Clone, Debug)]
pub struct For<'a> {
    /// Its machine.
    pub holder: &'a Holder,
    /// Its zone.
    pub zone: &'a Zone,
    /// The server.
    pub server: &'a ServerId,
    /// Its place on the Private Network.
    pub attachment: Option<&'a Attachment>,
}

fn problem(reason: &'static str, message: String) -> Problem {
    Problem {
        reason,
        message,
        retry: RETRY,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Scripts {
    /// With these settings.
    pub fn new(settings: ScriptSettings) -> Self {
        Self {
            settings,
            facts: Mutex::default(),
            ca: Mutex::default(),
        }
    }

    /// The script of one server.
    pub async fn script<K: LinuxKind>(
        &self,
        client: &Client,
        identities: &dyn Identities,
        object: &K,
        server: &For<'_>,
        form: Form,
    ) -> Result<Rendered, Problem> {
        let facts = self.facts(client).await?;
        let kubeconfig = identities.issue(server.holder).await?;
        let ca = authority(&kubeconfig)?;
        *lock(&self.ca) = Some(ca.clone());
        let join = self.join(object, server, &facts, kubeconfig, ca, form);
        render(&join).map_err(|invalid| problem(reasons::INVALID_SPEC, format!("the join script: {invalid}")))
    }

    /// The same as the user data of a first boot.
    pub fn user_data(rendered: &Rendered) -> Secret<String> {
        cloud_init(rendered)
    }

    /// The hash of what a server of this machine would be configured with now. None: not known yet.
    pub async fn config_hash<K: LinuxKind>(
        &self,
        client: &Client,
        identities: &dyn Identities,
        object: &K,
        server: &For<'_>,
    ) -> Result<String, Problem> {
        let known = lock(&self.ca).clone();
        let Some(ca) = known else {
            // Once per process: what a cluster's nodes trust does not change from one minute to the next.
            let rendered = self.script(client, identities, object, server, Form::Ssh).await?;
            return Ok(rendered.config_hash);
        };
        let facts = self.facts(client).await?;
        let join = self.join(object, server, &facts, Secret::new(placeholder()), ca, Form::Ssh);
        let rendered = render(&join);
        rendered
            .map(|rendered| rendered.config_hash)
            .map_err(|invalid| problem(reasons::INVALID_SPEC, format!("the join script: {invalid}")))
    }

    fn join<K: LinuxKind>(
        &self,
        object: &K,
        server: &For<'_>,
        facts: &Facts,
        kubeconfig: Secret<String>,
        ca: String,
        form: Form,
    ) -> Join {
        let provider = ProviderId::new(K::PROVIDER, server.zone.clone(), server.server.clone());
        Join {
            node_name: object.name_any(),
            provider_id: provider.to_string(),
            labels: node_labels(object),
            taints: node_taints(object.taints()),
            bootstrap_kubeconfig: kubeconfig,
            cluster_ca_pem: ca,
            cluster_dns: facts.dns.clone(),
            cluster_domain: self.settings.cluster_domain.clone(),
            kubernetes: facts.kubernetes,
            private_network: private_net(server.attachment),
            node_address: self.settings.node_address,
            data: if K::PRODUCT == Product::Metal && self.settings.local_data {
                Data::Nvme {
                    images_gib: Data::IMAGES_GIB,
                }
            } else {
                Data::None
            },
            form,
        }
    }

    async fn facts(&self, client: &Client) -> Result<Facts, Problem> {
        let known = lock(&self.facts).clone();
        if let Some((at, facts)) = known
            && at.elapsed() < FACTS_FOR
        {
            return Ok(facts);
        }
        let kubernetes = if let Some(channel) = self.settings.kubernetes {
            channel
        } else {
            let said = client.apiserver_version().await.map_err(|error| {
                let what = crate::api_server::brief(&error);
                problem("KubeconfigUnavailable", format!("the API server's version: {what}"))
            })?;
            let channel = said.git_version.split(['-', '+']).next().unwrap_or_default().parse();
            channel.map_err(|invalid| {
                let hint = "set --linux-kubernetes-version";
                problem(
                    "KubeconfigUnavailable",
                    format!("the API server's version: {invalid}; {hint}"),
                )
            })?
        };
        let dns = if self.settings.cluster_dns.is_empty() {
            kube_dns(client).await?
        } else {
            self.settings.cluster_dns.clone()
        };
        let facts = Facts { dns, kubernetes };
        *lock(&self.facts) = Some((Instant::now(), facts.clone()));
        Ok(facts)
    }
}

/// A kubeconfig that says nothing, for a hash that does not depend on it.
fn placeholder() -> String {
    "{clusters: [{name: x}], users: [{name: x}], contexts: [{name: x}]}".to_owned()
}

async fn kube_dns(client: &Client) -> Result<Vec<IpAddr>, Problem> {
    let services: Api<Service> = Api::namespaced(client.clone(), "kube-system");
    let found = services.get_opt("kube-dns").await.map_err(|error| {
        let what = crate::api_server::brief(&error);
        problem(
            "ClusterDNSUnknown",
            format!("the Service kube-system/kube-dns cannot be read: {what}"),
        )
    })?;
    let spec = found.and_then(|service| service.spec);
    let ips = spec.and_then(|spec| spec.cluster_ips).unwrap_or_default();
    let ips: Vec<IpAddr> = ips.iter().filter_map(|ip| ip.parse().ok()).collect();
    if ips.is_empty() {
        let message =
            "there is no Service kube-system/kube-dns with an address; install cluster DNS, or set --linux-cluster-dns";
        return Err(problem("ClusterDNSUnknown", message.to_owned()));
    }
    Ok(ips)
}

/// The certificates in a kubeconfig.
fn authority(kubeconfig: &Secret<String>) -> Result<String, Problem> {
    let bad = |what: &str| problem("KubeconfigUnavailable", format!("the bootstrap kubeconfig {what}"));
    let parsed = Kubeconfig::from_yaml(kubeconfig.expose()).map_err(|_| bad("cannot be read"))?;
    let cluster = parsed.clusters.into_iter().find_map(|named| named.cluster);
    let data = cluster.and_then(|cluster| cluster.certificate_authority_data);
    let data = data.ok_or_else(|| bad("names no certificate authority"))?;
    let bytes = STANDARD
        .decode(data.trim())
        .map_err(|_| bad("has a broken certificate authority"))?;
    String::from_utf8(bytes).map_err(|_| bad("has a broken certificate authority"))
}

fn private_net(attachment: Option<&Attachment>) -> PrivateNet {
    let Some(attachment) = attachment else {
        return PrivateNet::None;
    };
    match (&attachment.mac, attachment.vlan) {
        (Some(mac), _) => PrivateNet::Nic {
            mac: mac.clone(),
            address: None,
        },
        (None, Some(vlan)) => PrivateNet::Vlan {
            id: u16::try_from(vlan).unwrap_or_default(),
            address: None,
        },
        (None, None) => PrivateNet::None,
    }
}

fn node_labels<K: LinuxKind>(object: &K) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([(
        labels::INSTANCE_TYPE.to_owned(),
        labels::INSTANCE_TYPE_SCALEWAY.to_owned(),
    )]);
    if let Some(fleet) = object.fleet().filter(|fleet| !fleet.is_empty()) {
        all.insert(labels::FLEET.to_owned(), fleet.to_owned());
    }
    all
}

/// Those of the spec, and the one that core removes when it has put the labels of the Machine on the Node.
fn node_taints(wanted: &[KubeTaint]) -> Vec<Taint> {
    let mut all: Vec<Taint> = wanted
        .iter()
        .map(|taint| Taint {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect: taint.effect.clone(),
        })
        .collect();
    all.push(Taint {
        key: taints::UNINITIALIZED.to_owned(),
        value: String::new(),
        effect: taints::NO_SCHEDULE.to_owned(),
    });
    all
}
