//! A provider with everything Linux machines need, and emulated servers that join.

use std::collections::BTreeMap;
use std::marker::PhantomData;
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
use russet_scaleway::baremetal::{Install, MetalFilter};
use russet_sim_scaleway::{BoxKind, Delays, Factor, Handle, LinuxBox, Options, Power, Settings as SimSettings, Sim};
use russet_testkit::Sandbox;
use russet_testkit::identity::Granted;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::fleet::Fleet;
use crate::harness::{Provider, cluster, identity_without, scaleway};
use crate::joiner::{Joiner, join};

/// An emulator in which nothing takes long.
pub(crate) async fn sim() -> Result<Sim> {
    let moment = Duration::from_millis(200);
    Ok(Sim::start(Options {
        clock_factor: Factor::REAL,
        settings: SimSettings {
            delays: Delays {
                metal_install: moment * 3,
                ..Delays::linux(moment)
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

/// A machine that something is wrong for, until somebody rights it.
pub(crate) struct Trial<K> {
    pub(crate) sim: Sim,
    pub(crate) fleet: Fleet,
    client: Client,
    provider: Provider,
    boots: Option<Boots>,
    kind: PhantomData<K>,
}

impl<K: LinuxKind> Trial<K> {
    /// `wrong` is done before there is a provider; the machine is made with this spec.
    pub(crate) async fn begin(name: &str, spec: Value, flags: &[&str], wrong: impl FnOnce(&Handle)) -> Result<Self> {
        let sim = sim().await?;
        wrong(sim.handle());
        Self::of(sim, name, spec, flags).await
    }

    pub(crate) async fn of(sim: Sim, name: &str, spec: Value, flags: &[&str]) -> Result<Self> {
        Self::may(sim, name, spec, flags, &[]).await
    }

    /// With a provider that may do nothing about these resources.
    pub(crate) async fn may(sim: Sim, name: &str, spec: Value, flags: &[&str], not: &[&str]) -> Result<Self> {
        let sandbox = cluster().await?.sandbox(name).await?;
        let who = identity_without(&sandbox, not).await?;
        let client = sandbox.client().await?;
        let boots = Boots::of(sim.handle(), client.clone());
        let provider = provider(&sandbox, &who, &sim, None, flags).await?;
        let fleet = Fleet::of(&K::kind(&()), &sandbox, 1, spec).await?;
        Ok(Self {
            sim,
            fleet,
            client,
            provider,
            boots: Some(boots),
            kind: PhantomData,
        })
    }

    /// Waits until the machine gives this reason, in a sentence with these words.
    pub(crate) async fn says(&self, given: &str, words: &[&str]) -> Result<K> {
        let what = format!("the machine to say {given} with {words:?}");
        let said = |machine: &K| {
            let text = message(machine, "Ready");
            reason(machine, "Ready") == given && words.iter().all(|word| text.contains(word))
        };
        let mut found = until(&self.client, &self.fleet.namespace, &what, 1, said).await?;
        Ok(found.remove(0))
    }

    /// The same of a machine that is being deleted.
    pub(crate) async fn says_while_leaving(&self, given: &str, words: &[&str]) -> Result<K> {
        let what = format!("the machine to say {given} with {words:?}");
        let said = |machine: &K| {
            let text = message(machine, "Deleting");
            reason(machine, "Deleting") == given && words.iter().all(|word| text.contains(word))
        };
        let mut found = until(&self.client, &self.fleet.namespace, &what, 1, said).await?;
        Ok(found.remove(0))
    }

    /// From now on nothing boots or joins.
    pub(crate) fn without_boots(mut self) -> Self {
        self.boots = None;
        self
    }

    pub(crate) async fn serves(&self) -> Result<K> {
        let what = "the machine to be ready";
        let mut found = until(&self.client, &self.fleet.namespace, what, 1, is_ready).await?;
        Ok(found.remove(0))
    }

    /// Somebody installs the server in the console, as it was.
    pub(crate) async fn install_again(&self) -> Result<()> {
        let client = russet_scaleway::Client::new(&scaleway(&self.sim)?, russet_scaleway::Context::default())?;
        let zone = russet_api::values::Zone::default();
        let servers = client.metal_servers(&zone, &MetalFilter::default()).await?;
        let server = servers.first().context("no server")?;
        let keys = client.list_ssh_keys().await?;
        let install = Install {
            os: server.install.as_ref().context("no installation")?.os_id.clone(),
            hostname: server.name.clone(),
            ssh_keys: keys.into_iter().map(|key| key.id).collect(),
            login: None,
            partitions: None,
        };
        client.install_metal(&zone, &server.id, &install).await?;
        Ok(())
    }

    /// Nothing is there and nothing is paid for.
    pub(crate) fn owns_nothing(&self) {
        let handle = self.sim.handle();
        assert!(handle.instances().is_empty(), "{:?}", handle.instances());
        assert!(handle.metals().is_empty(), "{:?}", handle.metals());
        assert_eq!(handle.bill().running().count(), 0, "{:?}", handle.bill());
    }

    /// It goes on by itself, with one server, and says nothing of what was wrong.
    pub(crate) async fn heals(self) -> Result<()> {
        let machine = self.serves().await?;
        let status = machine.status();
        assert_eq!((status.failure_reason, status.failure_message), (None, None));
        let handle = self.sim.handle();
        let servers = handle.boxes().into_iter().filter(|row| row.name == machine.name_any());
        assert_eq!(servers.count(), 1, "{:?}", handle.boxes());
        self.provider.stop().await?;
        self.sim.stop().await?;
        Ok(())
    }

    /// The machine goes, and nothing is left of it.
    pub(crate) async fn leaves(self) -> Result<()> {
        self.fleet.scale(0).await?;
        until::<K>(&self.client, &self.fleet.namespace, "the machine to be gone", 0, |_| {
            true
        })
        .await?;
        wait::until("the bill to stop", PATIENCE, || async {
            let paid: Vec<String> = self.sim.handle().bill().running().map(ToString::to_string).collect();
            Ok(if paid.is_empty() {
                Look::Done(())
            } else {
                Look::not_yet(paid)
            })
        })
        .await?;
        self.provider.stop().await?;
        self.sim.stop().await?;
        Ok(())
    }
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
