//! A provider with everything Linux machines need, and emulated servers that join.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::{Client, ResourceExt as _};
use russet_capi_provider::linux::hosts::Hosts;
use russet_capi_provider::linux::kind::LinuxKind;
use russet_scaleway::baremetal::{Install, MetalFilter};
use russet_sim_scaleway::{BoxKind, Delays, Factor, Handle, LinuxBox, Options, Power, Settings as SimSettings, Sim};
use russet_stages::macs::rights;
use russet_testkit::Sandbox;
use russet_testkit::identity::Granted;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::fleet::{Fleet, is_ready, message, reason};
use crate::harness::{Provider, cloud, cluster, services};
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

/// What a [`Trial`] is with.
#[derive(Default)]
pub(crate) struct With<'a> {
    /// Of the machine.
    pub(crate) spec: Value,
    /// Of the provider, besides the usual ones.
    pub(crate) flags: &'a [&'a str],
    /// What the provider may do nothing about.
    pub(crate) not: &'a [&'a str],
    /// How servers are reached; without, those that boot join by themselves.
    pub(crate) hosts: Option<Arc<dyn Hosts>>,
}

/// One machine and its provider; often something is wrong for it, until a test rights it.
pub(crate) struct Trial<K> {
    pub(crate) sim: Sim,
    pub(crate) fleet: Fleet,
    pub(crate) client: Client,
    /// Whose requests must all be granted in the end.
    who: Option<Granted>,
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
        let with = With {
            spec,
            flags,
            ..With::default()
        };
        Self::with(sim, name, with).await
    }

    pub(crate) async fn with(sim: Sim, name: &str, with: With<'_>) -> Result<Self> {
        let sandbox = cluster().await?.sandbox(name).await?;
        let who = rights::provider_without(&sandbox, with.not).await?.grant().await?;
        let client = sandbox.client().await?;
        let boots = with.hosts.is_none().then(|| Boots::of(sim.handle(), client.clone()));
        let provider = provider(&sandbox, &who, &sim, with.hosts, with.flags).await?;
        let fleet = Fleet::of(&K::kind(&()), &sandbox, 1, with.spec).await?;
        Ok(Self {
            sim,
            fleet,
            client,
            who: with.not.is_empty().then_some(who),
            provider,
            boots,
            kind: PhantomData,
        })
    }

    /// Waits until the machine is as wanted.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&K) -> bool) -> Result<K> {
        let mut found = self.fleet.until_of(what, 1, holds).await?;
        Ok(found.remove(0))
    }

    async fn says_of(&self, type_: &str, given: &str, words: &[&str]) -> Result<K> {
        let said = |machine: &K| {
            let text = message(machine, type_);
            reason(machine, type_) == given && words.iter().all(|word| text.contains(word))
        };
        self.until(&format!("the machine to say {given} with {words:?}"), said)
            .await
    }

    /// Waits until the machine gives this reason, in a sentence with these words.
    pub(crate) async fn says(&self, given: &str, words: &[&str]) -> Result<K> {
        self.says_of("Ready", given, words).await
    }

    /// The same of a machine that is being deleted.
    pub(crate) async fn says_while_leaving(&self, given: &str, words: &[&str]) -> Result<K> {
        self.says_of("Deleting", given, words).await
    }

    /// From now on nothing boots or joins.
    pub(crate) fn without_boots(mut self) -> Self {
        self.boots = None;
        self
    }

    pub(crate) async fn serves(&self) -> Result<K> {
        self.until("the machine to be ready", is_ready).await
    }

    /// Somebody installs the server in the console, as it was.
    pub(crate) async fn install_again(&self) -> Result<()> {
        let client = cloud(&self.sim)?;
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
        self.ends().await
    }

    /// The machine goes, and its provider was refused nothing.
    pub(crate) async fn goes(&self) -> Result<()> {
        self.fleet.scale(0).await?;
        self.fleet.until_of("the machine to be gone", 0, |_: &K| true).await?;
        if let Some(who) = &self.who {
            let refused = cluster().await?.audit()?.denials(&who.username)?;
            assert!(refused.is_empty(), "the chart's rights suffice: {refused:?}");
        }
        Ok(())
    }

    /// The machine goes, and nothing is left of it.
    pub(crate) async fn leaves(self) -> Result<()> {
        self.goes().await?;
        wait::until("the bill to stop", PATIENCE, || async {
            let paid: Vec<String> = self.sim.handle().bill().running().map(ToString::to_string).collect();
            Ok(Look::done_if(paid.is_empty(), paid))
        })
        .await?;
        self.ends().await
    }

    pub(crate) async fn ends(self) -> Result<()> {
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
