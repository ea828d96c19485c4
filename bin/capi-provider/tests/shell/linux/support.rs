//! A provider with everything Linux machines need, and emulated servers that join.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt as _};
use russet_api::conditions;
use russet_capi_provider::bootstrap::Services;
use russet_capi_provider::fleet_key::FleetKeys;
use russet_capi_provider::identity::{Identities, IdentityArgs, Settings};
use russet_capi_provider::linux::hosts::Hosts;
use russet_capi_provider::linux::kind::{LinuxKind, Status};
use russet_e2e::Sandbox;
use russet_e2e::identity::Granted;
use russet_e2e::wait::{self, Look, PATIENCE};
use russet_sim_scaleway::{BoxKind, Delays, Factor, Handle, LinuxBox, Options, Power, Settings as SimSettings, Sim};
use tokio::task::JoinHandle;

use crate::harness::{Provider, scaleway};
use crate::joiner::{Joiner, join};

/// An emulator in which nothing takes long.
pub(crate) async fn sim() -> Result<Sim> {
    let moment = Duration::from_millis(200);
    Ok(Sim::start(Options {
        clock_factor: Factor::REAL,
        settings: SimSettings {
            delays: Delays {
                instance_boot: moment,
                instance_stop: moment,
                nic: moment,
                nic_release: moment,
                volume: moment,
                ipam: moment,
                attach: moment,
                detach: moment,
                metal_order: moment,
                metal_delivery: moment,
                metal_install_begins: moment,
                metal_install: moment * 3,
                metal_power: moment,
                metal_option: moment,
                metal_deletion: moment,
                ..Delays::default()
            },
            ..SimSettings::default()
        },
        ..Options::default()
    })
    .await?)
}

/// A client under the provider's own rights.
async fn client_of(who: &Granted) -> Result<(Client, Kubeconfig)> {
    let kubeconfig = Kubeconfig::read_from(&who.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default()).await?;
    Ok((Client::try_from(config)?, kubeconfig))
}

/// Keys and identities, as the program makes them.
pub(crate) async fn services(sandbox: &Sandbox<'_>, who: &Granted, sim: &Sim) -> Result<Services> {
    let (client, kubeconfig) = client_of(who).await?;
    let cluster = kubeconfig.clusters.into_iter().find_map(|named| named.cluster);
    let cluster = cluster.context("no cluster in the kubeconfig")?;
    let args = IdentityArgs {
        api_server_url: cluster.server.clone(),
        ..IdentityArgs::default()
    };
    let mut settings = Settings::new(&args, sandbox.namespace().to_owned());
    settings.server.ca_pem = Some(
        match (&cluster.certificate_authority, &cluster.certificate_authority_data) {
            (Some(path), _) => std::fs::read_to_string(path)?,
            (None, Some(data)) => {
                use base64::Engine as _;
                String::from_utf8(base64::engine::general_purpose::STANDARD.decode(data)?)?
            }
            (None, None) => anyhow::bail!("no certificate authority in the kubeconfig"),
        },
    );
    let config = scaleway(sim)?;
    let project = config.project.clone();
    let scaleway = russet_scaleway::Client::new(&config, russet_scaleway::Context::default())?;
    let keys = FleetKeys::new(client.clone(), scaleway, sandbox.namespace().to_owned(), project);
    Ok(Services {
        keys: Some(Arc::new(keys)),
        identities: Some(Arc::new(Identities::new(client, settings))),
        ..Services::default()
    })
}

/// The provider, with Linux servers that are reached like this.
pub(crate) async fn provider(
    sandbox: &Sandbox<'_>,
    who: &Granted,
    sim: &Sim,
    hosts: Option<Arc<dyn Hosts>>,
    flags: &[&str],
) -> Result<Provider> {
    let services = services(sandbox, who, sim).await?;
    Provider::reaching(sandbox, who, sim, Arc::new(Joiner::default()), services, hosts, flags).await
}

/// Emulated servers boot and join, as the script in their user data would have them.
pub(crate) struct Boots(JoinHandle<()>);

impl Drop for Boots {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Boots {
    pub(crate) fn of(handle: &Handle, client: Client) -> Self {
        let handle = handle.clone();
        Self(tokio::spawn(async move {
            loop {
                for row in handle.boxes() {
                    if is_booted(&row) {
                        let _ = join(client.clone(), &row.name, &provider_id(&row), &BTreeMap::new()).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }))
    }
}

/// Whether a server has what it needs to set itself up.
fn is_booted(row: &LinuxBox) -> bool {
    let script = row.user_data.as_deref().unwrap_or_default();
    row.power == Power::On && row.public_ip.is_some() && script.contains("/opt/bootstrap-node.sh")
}

pub(crate) fn provider_id(row: &LinuxBox) -> String {
    let product = match row.kind {
        BoxKind::Instance => "instance",
        BoxKind::Metal => "baremetal",
    };
    format!("scaleway://{product}/{}/{}", row.zone, row.server_id)
}

/// Waits until there are so many machines of this kind and all of them are as wanted.
pub(crate) async fn until<K: LinuxKind>(
    client: &Client,
    namespace: &str,
    what: &str,
    count: usize,
    holds: impl Fn(&K) -> bool,
) -> Result<Vec<K>> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    wait::until(what, PATIENCE, || async {
        let found = api.list(&ListParams::default()).await?.items;
        Ok(if found.len() == count && found.iter().all(&holds) {
            Look::Done(found)
        } else {
            let seen: Vec<_> = found
                .iter()
                .map(|object| (object.name_any(), object.finalizers().to_vec(), object.status()))
                .collect();
            Look::not_yet(seen)
        })
    })
    .await
}

pub(crate) fn is_ready<K: LinuxKind>(object: &K) -> bool {
    let status: Status = object.status();
    status.ready == Some(true)
        && status.initialization.is_some_and(|init| init.provisioned == Some(true))
        && conditions::is_true(&status.conditions, "Ready")
}

pub(crate) fn reason<K: LinuxKind>(object: &K, type_: &str) -> String {
    let status = object.status();
    let found = conditions::find(&status.conditions, type_);
    found.and_then(|condition| condition.reason.clone()).unwrap_or_default()
}

pub(crate) fn message<K: LinuxKind>(object: &K, type_: &str) -> String {
    let status = object.status();
    let found = conditions::find(&status.conditions, type_);
    found
        .and_then(|condition| condition.message.clone())
        .unwrap_or_default()
}
