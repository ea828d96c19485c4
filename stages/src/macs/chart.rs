//! The provider as its chart deploys it: installed by the real Helm, then started as a process from what the API server has of its Deployment.
//!
//! Only what a process outside of a Pod needs is replaced: the kubeconfig, where its Lease is, the two addresses it listens on, and files of
//! its image.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Client;
use kube::api::{Api, PostParams};
use russet_cluster::kubeconfig;
use russet_cluster::process::{Probe, Restart, Spec};
use russet_sim_scaleway::{DEFAULT_ACCESS_KEY, DEFAULT_PROJECT, DEFAULT_SECRET_KEY};
use russet_testkit::chart::{Deployed, Helm, Release};
use russet_testkit::overlay::merge;
use russet_testkit::program::{provider_program, serves_this_build};
use serde_json::{Value, json};

use super::{Fleet, Scope};

/// Flags of a Deployment that only fit a Pod.
const OF_A_POD: [&str; 2] = ["--metrics-bind-address", "--health-probe-bind-address"];
/// How flags end that name files of the image.
const FILE: &str = "-path";

/// Flags that the chart has a value for.
const VALUES: [(&str, &str); 8] = [
    ("--bootstrap-max-attempts", "provider/bootstrap/maxAttempts"),
    ("--bootstrap-reboot-after", "provider/bootstrap/rebootAfter"),
    ("--host-bootstrap", "provider/bootstrap/mode"),
    (
        "--machine-max-concurrent-reconciles",
        "provider/machineMaxConcurrentReconciles",
    ),
    ("--orphan-reclaim-interval", "provider/orphanReclaim/interval"),
    ("--stand-in-port", "provider/bootstrap/standInPort"),
    ("--tailscale-auth-key-secret-name", "tailscale/authKeySecretName"),
    ("--tailscale-tags", "tailscale/tags"),
];

/// Name and value of a flag.
fn split(arg: &str) -> (&str, &str) {
    arg.split_once('=').unwrap_or((arg, ""))
}

/// The values of the chart that make these flags; what it has no value for goes into `provider.extraArgs`.
fn values(args: &[String]) -> Value {
    let mut extra = Vec::new();
    let mut values = json!({});
    for arg in args.iter().filter(|arg| !split(arg).0.ends_with(FILE)) {
        let (flag, text) = split(arg);
        let Some((_, path)) = VALUES.iter().find(|(known, _)| *known == flag) else {
            extra.push(arg);
            continue;
        };
        let value = match flag {
            "--tailscale-tags" => text.split(',').collect(),
            _ => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        };
        let nested = path.rsplit('/').fold(value, |value, key| json!({key: value}));
        merge(&mut values, nested);
    }
    if let Some(tailscale) = values.get_mut("tailscale") {
        merge(tailscale, json!({"enabled": true}));
    }
    merge(&mut values, json!({"provider": {"extraArgs": extra}}));
    values
}

/// Makes a namespace.
pub(super) async fn namespace(client: &Client, name: &str) -> Result<()> {
    let object: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &object).await?;
    Ok(())
}

impl Fleet {
    /// Flags that every provider of tests has besides those of the caller.
    fn flags(&self, args: &[&str]) -> Vec<String> {
        // No other cluster takes these minis, and a wipe takes a second here.
        let quick = ["--claim-settle-time=0s", "--min-wipe-time=200ms"];
        let way = match &self.doors {
            Some(doors) => doors.provider_args(),
            None => vec![
                "--host-bootstrap=stand-in".to_owned(),
                format!("--stand-in-port={}", self.macs.port()),
            ],
        };
        let all = quick.iter().chain(self.manner.provider_args()).chain(args);
        way.into_iter().chain(all.map(|arg| (*arg).to_owned())).collect()
    }

    /// What the chart is told: these flags as values of it, and more values.
    pub(crate) fn chart_values(&self, args: &[&str], more: Value) -> Value {
        let (scope, only) = match self.scope {
            Scope::Yards => ("Namespaced", true),
            Scope::Release => ("Namespaced", false),
            Scope::Everywhere => ("Cluster", false),
        };
        let mut all = json!({
            // No Pod could run here.
            "replicas": 0,
            "cluster": {"enabled": true},
            "rbac": {"scope": scope},
            "scaleway": {"apiURL": self.sim.url()},
            "provider": {
                "apiServerURL": self.cluster.control_plane().server(),
                "fleetNamespaces": self.yards,
                "watchOnlyFleetNamespaces": only,
                "logFilter": self.manner.log(),
            },
        });
        merge(&mut all, values(&self.flags(args)));
        merge(&mut all, more);
        all
    }

    /// The release of this fleet, with these values.
    pub(crate) fn release<'a>(&'a self, values: &'a Value) -> Release<'a> {
        Release {
            name: &self.name,
            chart: "capi-provider",
            namespace: &self.namespace,
            values,
        }
    }

    /// Installs the chart, with flags for the provider and more values.
    pub(crate) async fn install(&self, args: &[&str], more: Value) -> Result<()> {
        let client = self.cluster.client().await?;
        let key: Secret = serde_json::from_value(json!({
            "metadata": {"name": format!("{}-scaleway", self.account())},
            "stringData": {"access-key": DEFAULT_ACCESS_KEY, "secret-key": DEFAULT_SECRET_KEY, "project-id": DEFAULT_PROJECT},
        }))?;
        let secrets: Api<Secret> = Api::namespaced(client, &self.namespace);
        secrets.create(&PostParams::default(), &key).await?;
        let values = self.chart_values(args, more);
        Helm::new().await?.install(&self.cluster, self.release(&values)).await
    }

    /// Starts the provider as its Deployment says. Of these flags, which are those that the chart was installed with, it takes the files.
    pub(crate) async fn start_provider(&self, args: &[&str]) -> Result<()> {
        let client = self.cluster.client().await?;
        let deployed = Deployed::read(&client, &self.namespace, &self.account()).await?;
        let kubeconfig = self.dir().join("kubeconfig");
        let control_plane = self.cluster.control_plane();
        kubeconfig::for_service_account(client, control_plane, &self.namespace, &deployed.account, &kubeconfig).await?;
        let is_file = |arg: &String| split(arg).0.ends_with(FILE);
        let fits = |arg: &String| !is_file(arg) && !OF_A_POD.contains(&split(arg).0);
        let program = provider_program()?;
        let mut spec = Spec::new(&self.name, &program, self.log())
            .args(deployed.args.into_iter().filter(fits))
            .args(self.flags(args).into_iter().filter(is_file))
            .args([
                format!("--kubeconfig={}", kubeconfig.display()),
                // A Pod knows its namespace; a process does not.
                format!("--leader-election-namespace={}", self.namespace),
                format!("--health-probe-bind-address={}", self.health),
                format!("--metrics-bind-address={}", self.metrics),
            ])
            .listens(self.health)
            .probe(Probe::Http {
                url: format!("http://{}/readyz", self.health),
            })
            .restart(Restart::Never);
        for (name, value) in deployed.env {
            spec = spec.env(name, value);
        }
        let started = self.cluster.supervisor().start(spec).await;
        started.with_context(|| format!("the provider said: {}", self.provider_log()))?;
        serves_this_build(self.health, &program).await
    }
}
