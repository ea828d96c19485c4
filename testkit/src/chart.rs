//! Our charts through the real Helm, on a cluster of real parts.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
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
