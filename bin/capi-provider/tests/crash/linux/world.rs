//! What one case happens in: a namespace, an emulator, a machine, and what must hold when all is quiet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use axum::http::Method;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use russet_api::annotations::cluster_api::BLOCK_MOVE;
use russet_capi_provider::bootstrap::{Services, StandIn};
use russet_capi_provider::provider::Outside;
use russet_scaleway::Config;
use russet_sim_scaleway::{Deed, Delays, Factor, NewMetals, Options, Settings, Sim};
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, Look};
use serde_json::{Value, json};

use super::doors::{Boots, Doors, Used};
use crate::clock::{Pace, WorldClock};
use crate::gate::{Call, Watchman};
use crate::life::Life;
use crate::replica::Scene;
use crate::stage::{PATIENCE, Stage};
use crate::suite::Played;

/// How claims of Linux servers begin.
const FAMILY: &str = "linux-";
const PREFIX: &str = "tuist-kura-em-";
/// How servers are called on the bill.
const SERVERS: [&str; 2] = ["instance_server", "elastic_metal_server"];

fn fleet(number: usize) -> String {
    format!("kura-{number}")
}

/// What a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Instance,
    Ordered,
    Adopted,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Instance, Self::Ordered, Self::Adopted];

    fn kind(self) -> &'static str {
        match self {
            Self::Instance => "ScalewayInstanceMachine",
            Self::Ordered | Self::Adopted => "ScalewayElasticMetalMachine",
        }
    }

    /// A fleet and a network of its own, so that key and network are made for every machine.
    fn spec(self, number: usize) -> Value {
        let mut spec = json!({
            "fleetName": fleet(number), "privateNetworkName": format!("cache-{number}"),
            "privateNetworkCIDR": format!("172.16.{}.0/22", number % 64 * 4),
        });
        if self == Self::Adopted {
            spec["adoptNamePrefix"] = json!(PREFIX);
        }
        spec
    }
}

pub(super) struct World {
    sim: Sim,
    clock: WorldClock,
    kind: Kind,
    stage: Stage,
    /// What was paid for before.
    before: BTreeSet<String>,
    added: AtomicUsize,
    /// How many servers had been paid for when the machine was added.
    paid: AtomicUsize,
    /// The installation that was last joined from, by server.
    used: Used,
    _boots: Boots,
}

impl World {
    pub(super) async fn new(cluster: &TestCluster, name: &str, kind: Kind, pace: Pace) -> Result<Self> {
        let moment = Duration::from_millis(100);
        let sim = Sim::start(Options {
            clock_factor: Factor::REAL,
            settings: Settings {
                delays: Delays {
                    metal_install: moment * 10,
                    ..Delays::linux(moment)
                },
                ..Settings::default()
            },
            ..Options::default()
        })
        .await?;
        if kind == Kind::Adopted {
            sim.handle().perform(Deed::AddMetals(NewMetals {
                name: format!("{PREFIX}1"),
                ..NewMetals::default()
            }))?;
        }
        let stage = Stage::new(cluster, name).await?;
        let used = Used::default();
        Ok(Self {
            kind,
            before: sim.handle().bill().running().map(ToString::to_string).collect(),
            added: AtomicUsize::new(0),
            paid: AtomicUsize::new(0),
            _boots: Boots::of(sim.handle().clone(), stage.client.clone(), Arc::clone(&used)),
            clock: WorldClock::new(sim.handle(), pace),
            used,
            stage,
            sim,
        })
    }

    async fn until(&self, what: &str, name: &str, holds: impl Fn(Option<&DynamicObject>) -> bool) -> Result<()> {
        Stage::until(self.stage.machines(self.kind.kind()), what, name, holds).await
    }

    /// How many servers were ever paid for, even for a moment.
    fn paid_for(&self) -> usize {
        let lines = self.sim.handle().bill().lines.into_iter();
        lines.filter(|it| SERVERS.contains(&it.line.resource.as_str())).count()
    }

    /// How many of them are for this machine.
    fn ordered(&self) -> usize {
        self.paid_for() - self.paid.load(Ordering::SeqCst)
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
        Arc::new(Reader)
    }

    fn flags(&self) -> Vec<String> {
        [
            "--inventory-interval=1s",
            "--orphan-reclaim-interval=30s",
            "--linux-cluster-dns=10.96.0.10",
            "--linux-kubernetes-version=v1.35",
            "--linux-refusal-retry=250ms",
            "--linux-inspect-after=2s",
            "--linux-install-grace=10s",
        ]
        .map(ToOwned::to_owned)
        .to_vec()
    }

    fn concerns(&self, component: &str) -> bool {
        let product = match self.kind {
            Kind::Instance => "instance-",
            Kind::Ordered | Kind::Adopted => "elastic-metal-",
        };
        component.starts_with("linux-") || component.starts_with(product)
    }

    fn outside(&self, life: &Arc<Life>, scaleway: Config, services: Services) -> Result<Outside> {
        Ok(Outside {
            scaleway,
            bootstrapper: Arc::new(StandIn::new(1)?),
            services,
            linux_hosts: Some(Arc::new(Doors {
                life: Arc::clone(life),
                handle: self.sim.handle().clone(),
                client: self.stage.client.clone(),
                used: Arc::clone(&self.used),
            })),
            clock: Arc::new(self.clock.clone()),
        })
    }
}

impl Played for World {
    async fn add(&self) -> Result<String> {
        self.paid.store(self.paid_for(), Ordering::SeqCst);
        let number = self.added.fetch_add(1, Ordering::SeqCst);
        self.stage.add_machine(self.kind.kind(), self.kind.spec(number)).await
    }

    async fn until_serving(&self, name: &str) -> Result<()> {
        let ready = |object: Option<&DynamicObject>| {
            object.is_some_and(|object| {
                let status = &object.data["status"];
                // The last thing that is done for a machine that serves.
                let may_move = !object.annotations().contains_key(BLOCK_MOVE);
                status["ready"] == true && status.get("intent").is_none() && may_move
            })
        };
        self.until("ready", name, ready).await
    }

    /// One server, nothing besides, the script gone.
    async fn check_serving(&self, _: &str) -> Result<()> {
        let rows = self.sim.handle().boxes();
        ensure!(rows.len() == 1, "{} servers: {rows:?}", rows.len());
        ensure!(rows[0].user_data.is_none(), "the script is still there");
        ensure!(rows[0].private.is_some(), "it is on no network");
        let wanted = usize::from(self.kind != Kind::Adopted);
        ensure!(self.ordered() == wanted, "{:?}", self.sim.handle().bill().lines);
        Ok(())
    }

    async fn delete_machine(&self, name: &str) -> Result<()> {
        self.stage.delete_machine(self.kind.kind(), name).await
    }

    async fn until_gone(&self, name: &str) -> Result<()> {
        self.until("gone", name, |object| object.is_none()).await
    }

    /// Only what was there before is there, and the bill says so too.
    async fn check_at_rest(&self) -> Result<()> {
        self.stage.until_unclaimed(FAMILY).await?;
        let handle = self.sim.handle();
        wait::until("the bill to stop", PATIENCE, || async {
            let paid: BTreeSet<String> = handle.bill().running().map(ToString::to_string).collect();
            let same = paid == self.before && handle.volumes().is_empty() && handle.addresses().is_empty();
            Ok(Look::done_if(same, (paid, handle.volumes(), handle.addresses())))
        })
        .await?;
        ensure!(handle.instances().is_empty(), "{:?}", handle.instances());
        for metal in handle.metals() {
            ensure!(self.kind == Kind::Adopted, "a server is left: {metal}");
            ensure!(metal["tags"] == json!([]), "it is not free: {metal}");
            ensure!(metal["install"]["status"] == "completed", "it is not whole: {metal}");
        }
        ensure!(self.ordered() <= 1, "{:?}", handle.bill().lines);
        for row in handle.boxes() {
            let used = self.used.lock().unwrap().get(&row.server_id.to_string()).copied();
            ensure!(
                used.is_none_or(|used| used < row.generation),
                "it is free and not wiped: {row:?}"
            );
        }
        // A fleet keeps its key for the machines that come next.
        let keys: Vec<String> = (0..self.added.load(Ordering::SeqCst))
            .map(|number| format!("{}-ssh", fleet(number)))
            .collect();
        self.stage.check_empty(&keys).await
    }

    async fn close(self) -> Result<()> {
        Ok(self.sim.stop().await?)
    }
}

/// Reads what calls about Linux servers are for.
struct Reader;

impl Watchman for Reader {
    fn label(&self, call: &Call) -> Option<String> {
        let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
        let read = call.method == Method::GET;
        // The shared polls of all three products, and the report of what is left behind.
        let polled = path.ends_with("/servers") && !query.contains("tags=");
        if read && (polled || path.contains("/apple-silicon/") || path.contains("/ssh-keys")) {
            return None;
        }
        let words = path
            .split('/')
            .filter(|part| !part.is_empty() && !part.chars().any(|c| c.is_ascii_digit()));
        let mut label = format!("{} {}", call.method, words.collect::<Vec<_>>().join("/"));
        let body = call.json();
        if let Some(action) = body["action"].as_str() {
            label.push(' ');
            label.push_str(action);
        }
        if call.method == Method::PATCH && body.get("tags").is_some() {
            let taken = body["tags"].to_string().contains("machine-uid=");
            label.push_str(if taken { " tag" } else { " untag" });
        }
        Some(label)
    }
}
