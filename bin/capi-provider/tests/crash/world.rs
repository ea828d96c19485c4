//! What one case happens in: a namespace, an emulator, machines, and what must hold when all is quiet.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::api::{Api, ListParams, Patch, PatchParams};
use russet_api::ScalewayAppleSiliconMachine as Mac;
use russet_api::conditions;
use russet_capi_provider::bootstrap::Services;
use russet_capi_provider::provider::Outside;
use russet_scaleway::Config;
use russet_scaleway::iam::SshKey;
use russet_sim_scaleway::{Delays, Factor, Minis, Options, Settings, Sim};
use russet_testkit::{TestCluster, wait};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::clock::{Pace, WorldClock};
use crate::gate::Watchman;
use crate::ledger::{Ledger, POOL};
use crate::life::Life;
use crate::replica::{self, FLIGHT, Scene};
use crate::setter::Setter;
use crate::stage::{PATIENCE, Stage, names};
use crate::suite::Played;

const KIND: &str = "ScalewayAppleSiliconMachine";
/// How claims of Macs begin.
const FAMILY: &str = "mac-";
/// The fleet of all machines here.
const FLEET: &str = "macs";
/// A configuration that no host can be brought to.
pub(crate) const BROKEN: &str = "broken";

pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) clock: WorldClock,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) stage: Stage,
    /// Flags besides those of every provider here.
    pub(crate) flags: Vec<String>,
    /// How often orphans are looked for.
    pub(crate) report_every: Duration,
    /// Whether providers take the Lease first, as they do in production.
    pub(crate) elect: bool,
    /// How long a Node may be missing.
    pub(crate) rejoin_after: Duration,
    /// What hosts should be set up with.
    pub(crate) wanted: Arc<Mutex<String>>,
    /// Hosts let nobody in while this is false.
    pub(crate) doors: watch::Sender<bool>,
    servers: BTreeSet<String>,
}

impl World {
    pub(crate) async fn new(cluster: &TestCluster, name: &str, minis: u32) -> Result<Self> {
        let sim = Sim::start(Options {
            clock_factor: Factor::REAL,
            settings: Settings {
                delays: Delays {
                    reinstall: Duration::from_millis(300),
                    ..Delays::default()
                },
                ..Settings::default()
            },
            ..Options::default()
        })
        .await?;
        sim.handle().add_minis(Minis {
            name: format!("{POOL}0"),
            count: minis,
            ..Minis::default()
        })?;
        Ok(Self {
            clock: WorldClock::new(sim.handle(), Pace::Steps),
            ledger: Arc::new(Ledger::new(sim.handle().clone())),
            stage: Stage::new(cluster, name).await?,
            flags: Vec::new(),
            report_every: Duration::from_secs(10),
            elect: false,
            rejoin_after: Duration::from_mins(2),
            wanted: Arc::new(Mutex::new("one".to_owned())),
            doors: watch::channel(true).0,
            servers: ids(&sim.handle().servers()),
            sim,
        })
    }

    /// Waits until what belongs to no machine was looked for, and lets what was seen then have been there for long enough to count.
    pub(crate) async fn until_orphans_count(&self) -> Result<()> {
        let looks = || self.sim.handle().calls("GET", "/iam/v1alpha1/ssh-keys");
        let before = looks();
        wait::until_true("orphans to be looked for", PATIENCE, || async { Ok(looks() > before) }).await?;
        self.clock.pass(FLIGHT).await;
        Ok(())
    }

    /// A client of the emulator, past every gate.
    pub(crate) fn scaleway(&self) -> Result<russet_scaleway::Client> {
        let config = replica::scaleway(self.sim.url())?;
        Ok(russet_scaleway::Client::new(
            &config,
            russet_scaleway::Context::default(),
        )?)
    }

    /// More hosts, somewhere else.
    pub(crate) fn add_minis(&mut self, minis: Minis) -> Result<()> {
        self.sim.handle().add_minis(minis)?;
        self.servers = ids(&self.sim.handle().servers());
        Ok(())
    }

    pub(crate) fn macs(&self) -> Api<Mac> {
        Api::namespaced(self.stage.client.clone(), &self.stage.namespace)
    }

    /// A machine as core would make it. Nodes have no namespace, so the name must not repeat.
    pub(crate) async fn add_machine(&self) -> Result<String> {
        self.add_machine_with(json!({})).await
    }

    pub(crate) async fn add_machine_with(&self, mut spec: Value) -> Result<String> {
        spec["fleetName"] = json!(FLEET);
        self.stage.add_machine(KIND, spec).await
    }

    /// What is looked at seldom is looked at when the object changes.
    pub(crate) async fn touch(&self, name: &str) -> Result<()> {
        let touched = json!({"metadata": {"annotations": {"test": "touched"}}});
        let params = PatchParams::default();
        self.macs().patch(name, &params, &Patch::Merge(&touched)).await?;
        Ok(())
    }

    pub(crate) async fn until_ready(&self, name: &str) -> Result<()> {
        self.until("ready", name, |mac| mac.is_some_and(is_ready)).await
    }

    pub(crate) async fn until(&self, what: &str, name: &str, holds: impl Fn(Option<&Mac>) -> bool) -> Result<()> {
        Stage::until(self.macs(), what, name, holds).await
    }

    /// How many machines serve.
    pub(crate) async fn serving(&self) -> Result<usize> {
        let macs = self.macs().list(&ListParams::default()).await?;
        let ready = |mac: &&Mac| mac.status.as_ref().is_some_and(|status| status.ready == Some(true));
        Ok(macs.items.iter().filter(ready).count())
    }

    pub(crate) async fn claims(&self) -> Result<Vec<String>> {
        self.stage.claims(FAMILY).await
    }

    /// The registrations at Scaleway: never more than one, and of no other key than the fleet has.
    async fn keys(&self) -> Result<Vec<SshKey>> {
        let keys = self.scaleway()?.list_ssh_keys().await?;
        let secrets: Api<Secret> = Api::namespaced(self.stage.client.clone(), &self.stage.namespace);
        let secret = secrets.get_opt(&format!("{FLEET}-ssh")).await?;
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        let public = data
            .get("id_ed25519.pub")
            .map(|public| public.0.clone())
            .unwrap_or_default();
        let public = String::from_utf8(public)?;
        ensure!(keys.len() <= 1, "registered twice: {keys:?}");
        ensure!(keys.iter().all(|key| key.is_key(&public)), "{keys:?} is not {public}");
        Ok(keys)
    }

    /// What is paid for is what there was: nothing ordered, nothing given up.
    fn check_bill(&self) -> Result<()> {
        let bill = self.sim.handle().bill();
        let paid: BTreeSet<String> = bill.running().map(ToString::to_string).collect();
        ensure!(paid == self.servers, "paid for {paid:?}, own {:?}", self.servers);
        ensure!(bill.lines.len() == self.servers.len(), "paid twice: {:?}", bill.lines);
        Ok(())
    }
}

impl Scene for World {
    fn stage(&self) -> &Stage {
        &self.stage
    }

    fn sim(&self) -> &Sim {
        &self.sim
    }

    fn clock(&self) -> &WorldClock {
        &self.clock
    }

    fn watchman(&self) -> Arc<dyn Watchman> {
        Arc::clone(&self.ledger) as _
    }

    fn flags(&self) -> Vec<String> {
        [
            format!("--default-adopt-pool-prefix={POOL}"),
            "--inventory-interval=500ms".to_owned(),
            format!("--orphan-reclaim-interval={}s", self.report_every.as_secs()),
        ]
        .into_iter()
        .chain(self.flags.iter().cloned())
        .collect()
    }

    fn adjust(&self, settings: &mut russet_capi_provider::config::Settings) {
        settings.rules.rejoin_after = self.rejoin_after;
    }

    fn elects(&self) -> bool {
        self.elect
    }

    fn concerns(&self, component: &str) -> bool {
        !["linux-", "instance-", "elastic-metal-"]
            .iter()
            .any(|start| component.starts_with(start))
    }

    fn outside(&self, life: &Arc<Life>, scaleway: Config, services: Services) -> Result<Outside> {
        let setter = Setter {
            life: Arc::clone(life),
            ledger: Arc::clone(&self.ledger),
            client: self.stage.client.clone(),
            doors: self.doors.subscribe(),
            wanted: Arc::clone(&self.wanted),
        };
        Ok(Outside {
            scaleway,
            bootstrapper: Arc::new(setter),
            services,
            linux_hosts: None,
            clock: Arc::new(self.clock.clone()),
        })
    }
}

impl Played for World {
    async fn add(&self) -> Result<String> {
        self.add_machine().await
    }

    /// Ready, and reached over the tailnet.
    async fn until_serving(&self, name: &str) -> Result<()> {
        self.until_ready(name).await?;
        let services: Api<Service> = Api::namespaced(self.stage.client.clone(), &self.stage.namespace);
        Stage::until(services, "reached by an egress Service", name, |service| {
            service.is_some()
        })
        .await
    }

    /// While a machine serves: one host bears its name and one claim is held for it.
    async fn check_serving(&self, name: &str) -> Result<()> {
        let servers = self.sim.handle().servers();
        let named: Vec<&Value> = servers.iter().filter(|server| server["name"] == name).collect();
        ensure!(named.len() == 1, "{} hosts are named {name}: {servers:?}", named.len());
        let claim = format!("mac-{}", named[0]["id"].as_str().unwrap_or_default());
        let claims = self.claims().await?;
        ensure!(claims.contains(&claim), "{claim} is missing in {claims:?}");
        ensure!(self.keys().await?.len() == 1, "the key of the fleet is not registered");
        self.check_bill()
    }

    async fn delete_machine(&self, name: &str) -> Result<()> {
        self.ledger.deletes(name);
        self.stage.delete_machine(KIND, name).await
    }

    async fn until_gone(&self, name: &str) -> Result<()> {
        self.until("gone", name, |mac| mac.is_none()).await
    }

    /// Every host is free, wiped and ready, and nothing is left in the cluster.
    async fn check_at_rest(&self) -> Result<()> {
        self.stage.until_unclaimed(FAMILY).await?;
        let servers = self.sim.handle().servers();
        ensure!(ids(&servers) == self.servers, "hosts came or went: {servers:?}");
        for server in &servers {
            let name = server["name"].as_str().unwrap_or_default();
            ensure!(name.starts_with(POOL), "{name} is lost");
            ensure!(server["status"] == "ready", "{name} is {}", server["status"]);
        }
        self.check_bill()?;
        // The fleet keeps its key for the machines that come next.
        self.stage.check_empty(&[format!("{FLEET}-ssh")]).await?;
        let services: Api<Service> = Api::namespaced(self.stage.client.clone(), &self.stage.namespace);
        let services = names(&services.list(&ListParams::default()).await?.items);
        ensure!(services.is_empty(), "Services are left: {services:?}");
        self.keys().await?;
        let wrongs = self.ledger.wrongs();
        ensure!(wrongs.is_empty(), "{wrongs:#?}");
        Ok(())
    }

    async fn close(self) -> Result<()> {
        Ok(self.sim.stop().await?)
    }
}

fn is_ready(mac: &Mac) -> bool {
    mac.status.as_ref().is_some_and(|status| {
        status.ready == Some(true) && conditions::is_true(&status.conditions, "Provisioned") && status.intent.is_none()
    })
}

fn ids(servers: &[Value]) -> BTreeSet<String> {
    servers
        .iter()
        .filter_map(|server| server["id"].as_str())
        .map(ToOwned::to_owned)
        .collect()
}
