//! A cluster that is already there, given with `--kubeconfig`: our CRDs go in, and nothing is started.
//!
//! Its API server could not reach webhooks on this machine, so Cluster API core is not run from here either: its absence
//! is reported with the command that installs it.

use super::chart::{self, Ownership, Target};
use super::{Admitted, Kind, admit, open};
use crate::cli;
use crate::config::Surroundings;
use crate::exit::Exit;
use crate::parts;
use crate::signals::Signals;
use crate::state::Layout;
use crate::state::record::{self, Existing};
use crate::status::cluster;
use crate::status::document::Cluster;
use crate::table::{Colour, Table};
use anyhow::{Context, Result};
use kube::config::Kubeconfig;
use russet_parts::{Bars, Manifest};
use std::io::Write;
use std::path::{Path, PathBuf};

pub(super) async fn up(
    args: &cli::Up,
    layout: &Layout,
    parts_dir: &[PathBuf],
    kubeconfig: &Path,
    surroundings: &Surroundings,
) -> Result<Exit> {
    let mut signals = Signals::listen().context("failed to listen for signals")?;
    let context = context(kubeconfig, args.context.as_deref())?;
    // Reach it before anything is written: a mistyped path or context should leave no trace.
    let (client, server) = cluster::connect(kubeconfig, context.as_deref()).await?;
    let version = client
        .apiserver_version()
        .await
        .with_context(|| format!("failed to reach the API server at {server}"))?;
    say(&format!("{server} answers ({})", version.git_version));

    let _lock = open(layout)?;
    let store = parts::store(parts_dir);
    let Admitted { mut record, remarks } = admit(layout, store.manifest(), Kind::Existing)?;
    for remark in &remarks {
        say(remark);
    }
    let existing = Existing {
        kubeconfig: kubeconfig.to_owned(),
        context: context.clone(),
    };
    if record.existing.as_ref() != Some(&existing) {
        // Another cluster: what was installed elsewhere says nothing about it.
        record.charts.clear();
    }
    record.existing = Some(existing);
    record::write(layout, &record)?;

    let bars = Bars::stderr();
    let work = async {
        let tools = store.ensure(&["helm", "kubectl"], &bars).await?;
        let target = Target {
            helm: tools.path("helm")?,
            layout,
            kubeconfig,
            context: context.as_deref(),
            client: &client,
            ownership: Ownership::Theirs,
            timeout: args.timeout,
        };
        let recorded = record.charts.get(chart::CRDS.release).cloned();
        let outcome = chart::ensure_crds(&target, recorded.as_deref()).await?;
        say(&format!("CRD chart {}: {}", chart::CRDS.release, outcome.as_str()));
        chart::wait_established(&client, args.timeout).await?;
        anyhow::Ok(())
    };
    tokio::select! {
        done = work => done?,
        signal = signals.next() => {
            say(&format!("{signal}: stopped before it was done"));
            return Ok(Exit::Interrupted);
        }
    }
    let hash = chart::CRDS.content_hash(None);
    record.charts.insert(chart::CRDS.release.to_owned(), hash);
    record::write(layout, &record)?;

    let facts = cluster::facts(kubeconfig, context.as_deref()).await;
    let text = summary(&facts, &core_version(store.manifest()), surroundings.stdout.colour);
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("failed to write to standard output")?;
    Ok(Exit::Success)
}

/// The context by name, so that a later switch of the current one does not move us to another cluster.
fn context(kubeconfig: &Path, given: Option<&str>) -> Result<Option<String>> {
    if let Some(given) = given {
        return Ok(Some(given.to_owned()));
    }
    let file = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("failed to read the kubeconfig {}", kubeconfig.display()))?;
    Ok(file.current_context)
}

fn core_version(manifest: &Manifest) -> String {
    manifest
        .tool(russet_cluster::capi::NAME)
        .map(|(part, _)| part.version.clone())
        .unwrap_or_default()
}

fn summary(cluster: &Cluster, core_version: &str, colour: Colour) -> String {
    let mut table = Table::new(&[]);
    table.row(["API server".into(), cluster.server.clone().unwrap_or_default().into()]);
    let context = cluster
        .context
        .as_ref()
        .map(|context| format!(" (context {context})"))
        .unwrap_or_default();
    table.row([
        "Kubeconfig".into(),
        format!("{}{context}", cluster.kubeconfig.display()).into(),
    ]);
    let established = cluster.crds.iter().filter(|crd| crd.established).count();
    table.row(["CRDs".into(), format!("{established} Established").into()]);
    let core = match (cluster.cluster_api.installed, cluster.cluster_api.ready) {
        (true, true) => "core running".to_owned(),
        (true, false) => "installed, but its controller was not seen running".to_owned(),
        (false, _) => format!("not installed; run `clusterctl init --core cluster-api:{core_version}`"),
    };
    table.row(["Cluster API".into(), core.into()]);
    format!("\nReady.\n\n{}", table.render(colour))
}

fn say(text: &str) {
    // Standard error that is gone cannot be told so.
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::document::{ClusterApi, Crd, Nodes};

    #[test]
    fn missing_cluster_api_core_is_reported_with_the_command_that_installs_it() {
        let cluster = Cluster {
            server: Some("https://10.0.0.1:6443".into()),
            kubeconfig: "/home/me/.kube/config".into(),
            context: Some("dev".into()),
            reachable: true,
            error: None,
            version: Some("v1.35.4".into()),
            nodes: Nodes::default(),
            crds: vec![Crd {
                name: "runnerpools.tuist.dev".into(),
                established: true,
            }],
            cluster_api: ClusterApi::default(),
            fleet: None,
        };
        insta::assert_snapshot!(summary(&cluster, "v1.14.2", Colour::Never));
    }

    #[test]
    fn the_current_context_is_pinned_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        std::fs::write(&path, "apiVersion: v1\nkind: Config\ncurrent-context: dev\n").unwrap();
        assert_eq!(context(&path, None).unwrap().as_deref(), Some("dev"));
        assert_eq!(context(&path, Some("prod")).unwrap().as_deref(), Some("prod"));
        let error = context(&dir.path().join("none"), None).unwrap_err().to_string();
        assert!(error.contains("failed to read the kubeconfig"), "{error}");
    }
}
