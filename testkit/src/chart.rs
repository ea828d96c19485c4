//! Our charts through the real Helm, on a cluster of real parts, and programs started as their Deployments say.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{EnvVar, Secret};
use kube::Client;
use kube::api::Api;
use serde::Deserialize as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::{TestCluster, tools};
use crate::program::tree;

/// Helm with a home of its own.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    home: TempDir,
}

/// A chart, its release, and what it is told.
#[derive(Debug, Clone, Copy)]
pub struct Release<'a> {
    pub name: &'a str,
    pub chart: &'a str,
    /// Made if it is not there.
    pub namespace: &'a str,
    pub values: &'a Value,
}

impl Helm {
    pub async fn new() -> Result<Self> {
        Ok(Self {
            program: tools(&["helm"]).await?.path("helm")?.to_owned(),
            home: tempfile::tempdir()?,
        })
    }

    /// Installs or upgrades. Nothing is waited for: hardly any Pod of a chart could run here.
    pub async fn install(&self, cluster: &TestCluster, release: Release<'_>) -> Result<()> {
        let kubeconfig = cluster.control_plane().admin_kubeconfig().display().to_string();
        let more = ["--create-namespace", "--kubeconfig", &kubeconfig];
        self.run(&["upgrade", "--install"], release, &more).await?;
        Ok(())
    }

    /// The objects of one template, as they would be installed.
    pub async fn template(&self, release: Release<'_>, only: &str) -> Result<Vec<Value>> {
        let text = self.run(&["template"], release, &["--show-only", only]).await?;
        let documents = serde_yaml_ng::Deserializer::from_str(&text);
        let objects: Result<Vec<Value>, _> = documents.map(Value::deserialize).collect();
        Ok(objects?.into_iter().filter(|object| !object.is_null()).collect())
    }

    async fn run(&self, verb: &[&str], release: Release<'_>, more: &[&str]) -> Result<String> {
        let values = self.home.path().join(format!("{}.json", release.name));
        std::fs::write(&values, release.values.to_string())?;
        let chart = tree().join("charts").join(release.chart);
        let output = tokio::process::Command::new(&self.program)
            .args(verb)
            .arg(release.name)
            .arg(chart)
            .args(["--namespace", release.namespace])
            .arg("--values")
            .arg(&values)
            .args(more)
            .env("HOME", self.home.path())
            .output()
            .await
            .context("failed to start helm")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm failed: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// What the first container of a Deployment runs, for a program that is started as a process beside the cluster.
#[derive(Debug, Clone)]
pub struct Deployed {
    /// Its ServiceAccount.
    pub account: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
}

impl Deployed {
    /// As the API server has it; environment from Secrets is read.
    pub async fn read(client: &Client, namespace: &str, name: &str) -> Result<Self> {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let deployment = deployments.get(name).await?;
        let pod = deployment.spec.and_then(|spec| spec.template.spec);
        let pod = pod.with_context(|| format!("Deployment {name} has no Pod"))?;
        let container = pod.containers.into_iter().next();
        let container = container.with_context(|| format!("Deployment {name} has no container"))?;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let mut env = Vec::new();
        for variable in container.env.into_iter().flatten() {
            let value = value(&secrets, &variable).await?;
            env.push((variable.name, value));
        }
        Ok(Self {
            account: pod.service_account_name.unwrap_or_else(|| "default".to_owned()),
            args: container.args.unwrap_or_default(),
            env,
        })
    }
}

async fn value(secrets: &Api<Secret>, variable: &EnvVar) -> Result<String> {
    if let Some(value) = &variable.value {
        return Ok(value.clone());
    }
    let from = variable
        .value_from
        .as_ref()
        .and_then(|from| from.secret_key_ref.as_ref());
    let from = from.with_context(|| format!("{} is neither literal nor from a Secret", variable.name))?;
    let data = secrets.get(&from.name).await?.data.unwrap_or_default();
    let bytes = data.get(&from.key);
    let bytes = bytes.with_context(|| format!("Secret {} has no {}", from.name, from.key))?;
    Ok(String::from_utf8(bytes.0.clone())?)
}
