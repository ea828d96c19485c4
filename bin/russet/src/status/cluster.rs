//! What the API server says about itself, our CRDs and Cluster API core.

use super::document::{Cluster, ClusterApi, Crd, Fleet, Nodes};
use super::fleet;
use futures::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::Path;
use std::time::Duration;

/// A healthy API server on this machine answers in milliseconds; `status` must not hang on a sick one.
const PATIENCE: Duration = Duration::from_secs(4);

/// The CRD whose presence means that Cluster API core was installed.
const CLUSTER_CRD: &str = "clusters.cluster.x-k8s.io";

/// Label that every installer of Cluster API puts on the core controller.
const PROVIDER_LABEL: &str = "cluster.x-k8s.io/provider=cluster-api";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read the kubeconfig {}", path.display())]
    Kubeconfig {
        path: std::path::PathBuf,
        source: kube::config::KubeconfigError,
    },
    #[error("failed to make a client from the kubeconfig {}", path.display())]
    Client {
        path: std::path::PathBuf,
        source: Box<kube::Error>,
    },
}

/// Names of our CRDs, from the types themselves.
pub fn our_crds() -> Vec<String> {
    russet_api::all_crds()
        .into_iter()
        .filter_map(|crd| crd.metadata.name)
        .collect()
}

/// A client for a kubeconfig on disk, and the URL it talks to.
pub async fn connect(path: &Path, context: Option<&str>) -> Result<(Client, String), Error> {
    let failed = |source| Error::Kubeconfig {
        path: path.to_owned(),
        source,
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(failed)?;
    config.connect_timeout = Some(PATIENCE);
    config.read_timeout = Some(PATIENCE);
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let client = Client::try_from(config).map_err(|source| Error::Client {
        path: path.to_owned(),
        source: Box::new(source),
    })?;
    Ok((client, server))
}

/// Whether the server counts a CRD as served.
pub fn is_established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Established" && c.status == "True"))
}

/// Never fails: what could not be found out is part of the answer.
pub async fn facts(kubeconfig: &Path, context: Option<&str>) -> Cluster {
    let mut cluster = Cluster {
        server: None,
        kubeconfig: kubeconfig.to_owned(),
        context: context.map(str::to_owned),
        reachable: false,
        error: None,
        version: None,
        nodes: Nodes::default(),
        crds: Vec::new(),
        cluster_api: ClusterApi::default(),
        fleet: None,
    };
    let client = match connect(kubeconfig, context).await {
        Ok((client, server)) => {
            cluster.server = Some(server);
            client
        }
        Err(error) => {
            cluster.error = Some(chain(&error));
            return cluster;
        }
    };
    let asked = tokio::time::timeout(PATIENCE, ask(&client)).await;
    match asked {
        Ok(Ok(answer)) => {
            cluster.reachable = true;
            cluster.version = Some(answer.version);
            cluster.nodes = answer.nodes;
            cluster.crds = answer.crds;
            cluster.cluster_api = answer.cluster_api;
            cluster.fleet = answer.fleet;
        }
        Ok(Err(error)) => cluster.error = Some(chain(&error)),
        Err(_) => cluster.error = Some(format!("no answer within {} s", PATIENCE.as_secs())),
    }
    cluster
}

struct Answer {
    version: String,
    nodes: Nodes,
    crds: Vec<Crd>,
    cluster_api: ClusterApi,
    fleet: Option<Fleet>,
}

async fn ask(client: &Client) -> Result<Answer, kube::Error> {
    let version = client.apiserver_version().await?.git_version;
    let crd_api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let names = our_crds();
    let node_api = Api::<Node>::all(client.clone());
    let nothing = ListParams::default();
    let (nodes, core, crds, deployed, fleet) = tokio::join!(
        node_api.list(&nothing),
        crd_api.get_opt(CLUSTER_CRD),
        join_all(names.iter().map(|name| crd_api.get_opt(name))),
        core_is_deployed(client),
        Box::pin(fleet::ask(client)),
    );
    let nodes = nodes?.items;
    let mut answers = Vec::with_capacity(names.len());
    for (name, crd) in names.into_iter().zip(crds) {
        answers.push(Crd {
            name,
            established: crd?.as_ref().is_some_and(is_established),
        });
    }
    Ok(Answer {
        version,
        nodes: Nodes {
            total: nodes.len(),
            ready: nodes.iter().filter(|node| is_ready(node)).count(),
        },
        crds: answers,
        cluster_api: ClusterApi {
            installed: core?.as_ref().is_some_and(is_established),
            ready: deployed,
            wanted: false,
        },
        fleet,
    })
}

/// In a cluster of somebody else the controller is a Deployment. Not being allowed to look counts as "not seen".
async fn core_is_deployed(client: &Client) -> bool {
    let found = Api::<Deployment>::all(client.clone())
        .list(&ListParams::default().labels(PROVIDER_LABEL))
        .await;
    found.is_ok_and(|list| {
        list.items.iter().any(|deployment| {
            deployment
                .status
                .as_ref()
                .and_then(|status| status.available_replicas)
                .is_some_and(|count| count > 0)
        })
    })
}

pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

/// An error and its causes on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Several libraries repeat the cause in their own text.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
