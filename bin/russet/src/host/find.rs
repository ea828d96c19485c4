//! From a name to a machine.

use crate::cli::HostName;
use crate::config::Surroundings;
use crate::state::{Layout, record};
use crate::status::cluster;
use crate::suggest;
use anyhow::{Context, Result, bail};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use russet_api::ScalewayAppleSiliconMachine;

/// The cluster that the state directory is about.
pub(super) async fn client(host: &HostName, surroundings: &Surroundings) -> Result<(Client, Layout)> {
    let layout = Layout::new(&surroundings.working_dir, &host.dir.dir);
    let existing = match record::read(&layout)? {
        record::Found::Record(record) => record.existing,
        record::Found::Nothing | record::Found::Corrupt(_) => None,
    };
    let (kubeconfig, context) = match existing {
        Some(existing) => (existing.kubeconfig, existing.context),
        None => (layout.kubeconfig(), None),
    };
    if !kubeconfig.exists() {
        bail!(
            "there is no cluster in {}; start one with `russet up`",
            layout.root().display()
        );
    }
    let (client, _) = cluster::connect(&kubeconfig, context.as_deref()).await?;
    Ok((client, layout))
}

/// The machine of this name.
pub(super) async fn machine(client: &Client, host: &HostName) -> Result<ScalewayAppleSiliconMachine> {
    let api: Api<ScalewayAppleSiliconMachine> = match &host.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let all = api
        .list(&ListParams::default())
        .await
        .context("failed to list the Macs; is the cluster up? see `russet status`")?
        .items;
    let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
    let mut found: Vec<ScalewayAppleSiliconMachine> = all
        .into_iter()
        .filter(|machine| machine.name_any() == host.name)
        .collect();
    match (found.pop(), found.is_empty()) {
        (Some(machine), true) => Ok(machine),
        (Some(_), false) => bail!(
            "more than one namespace has a Mac called {:?}; say which with --namespace",
            host.name
        ),
        (None, _) => bail!(suggest::unknown("Mac", &host.name, names.iter().map(String::as_str))),
    }
}
