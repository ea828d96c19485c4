//! The local-path provisioner, as a process outside the cluster it serves.
//!
//! A chart says how it runs: which account, which paths, which helper Pods. [`Orders::of_chart`] reads that back from the cluster, so
//! that what is tried here is what would run there; only where the program finds its configuration and the API server is another.

use std::path::PathBuf;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::Api;
use russet_parts::Tools;

use crate::files::{self, Access};
use crate::process::{self, Restart, Spec, Supervisor};

/// The name of the program.
pub const NAME: &str = "local-path-provisioner";

/// Why it could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the chart made cannot be read.
    #[error("could not read the {kind} {namespace}/{name} of the local-path provisioner; is its chart installed?")]
    Read {
        /// Of what kind.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What the apiserver said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The chart made something else than is expected.
    #[error("the {kind} {namespace}/{name} has no {missing}; it is not that of the local-path provisioner")]
    Unexpected {
        /// Of what kind.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What is not there.
        missing: &'static str,
    },
    /// The program is missing.
    #[error(transparent)]
    Part(#[from] russet_parts::Error),
    /// The process did not start.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] files::Error),
}

/// What a chart tells the provisioner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orders {
    namespace: String,
    args: Vec<String>,
    config: String,
}

impl Orders {
    /// From the Deployment and the ConfigMap of this name.
    pub async fn of_chart(client: &Client, namespace: &str, name: &str) -> Result<Self, Error> {
        let read = |kind| {
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            move |source| Error::Read {
                kind,
                namespace,
                name,
                source: Box::new(source),
            }
        };
        let unexpected = |kind, missing| Error::Unexpected {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            missing,
        };
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let map = maps.get(name).await.map_err(read("ConfigMap"))?;
        let config = map.data.and_then(|mut data| data.remove("config.json"));
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let deployment = deployments.get(name).await.map_err(read("Deployment"))?;
        let pod = deployment.spec.and_then(|spec| spec.template.spec);
        let container = pod.and_then(|pod| pod.containers.into_iter().next());
        let command = container.and_then(|container| container.command).unwrap_or_default();
        let mut words = command.into_iter();
        words.next().ok_or_else(|| unexpected("Deployment", "command"))?;
        Ok(Self {
            namespace: namespace.to_owned(),
            args: words.filter(|word| !is_of_a_pod(word)).collect(),
            config: config.ok_or_else(|| unexpected("ConfigMap", "config.json"))?,
        })
    }
}

/// Where the configuration is mounted makes sense in a Pod only.
fn is_of_a_pod(word: &str) -> bool {
    word.starts_with("--config=")
}

/// How to run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The name of the process.
    pub name: String,
    /// Holds its configuration and its log.
    pub dir: PathBuf,
    /// Whose rights it has.
    pub kubeconfig: PathBuf,
    /// What happens when it ends.
    pub restart: Restart,
}

/// Starts it. It has no port to ask; it works when it first binds a claim.
pub async fn start(tools: &Tools, supervisor: &Supervisor, orders: &Orders, options: Options) -> Result<(), Error> {
    let config = options.dir.join(format!("{}.json", options.name));
    files::write(&config, orders.config.as_bytes(), Access::Public)?;
    let log = options.dir.join(format!("{}.log", options.name));
    let spec = Spec::new(options.name, tools.path(NAME)?, log)
        .args(orders.args.clone())
        .args([
            format!("--config={}", config.display()),
            format!("--kubeconfig={}", options.kubeconfig.display()),
            format!("--namespace={}", orders.namespace),
        ])
        .restart(options.restart);
    supervisor.start(spec).await?;
    Ok(())
}
