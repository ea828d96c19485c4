//! Measures the provider with Linux machines: so many Instances, then so many ordered Elastic Metal servers, each brought up, left
//! alone and deleted, on a real API server and Cluster API core, against the emulated Scaleway.
//!
//! The servers are synthetic: no machine boots, the join program in the user data is read, and a Node joins with the certificate it
//! asked for and stays alive. What is measured is the provider's own process, its calls to Scaleway, and its writes as the audit log
//! saw them. Emulated time runs as fast as ours, so that a wait costs as many looks as it would in earnest. Only what Elastic Metal
//! takes an hour for, order, delivery and installation, takes seconds: those waits are the shared poll's, and cost a machine nothing.

mod report;

use crate::fleet::count::Stage;
use crate::fleet::wait::Watch;
use crate::fleet::{available, command, head, load, peak, say};
use anyhow::{Context, Result, ensure};
use clap::Args;
use kube::api::ListParams;
use report::{Kind, Report};
use russet_parts::Manifest;
use russet_sim_linux::Fleet as Servers;
use russet_sim_scaleway::{Deed, Delays, Factor, MicroEuro, Power, Settings, Zone};
use russet_stages::macs::{Fleet, INFRA, Manner, Yard};
use russet_testkit::cluster::{Extras, TestCluster};
use serde_json::{Value, json};
use std::time::Duration;

const ZONE: &str = "fr-par-1";
const NETWORK: &str = "tuist-runner-cache";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many Instances
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=900))]
    instances: u32,

    /// How many Elastic Metal servers
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=900))]
    metals: u32,

    /// Seconds over which machines at rest are measured
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    window: u64,

    /// How long nothing may move before it is given up, in seconds
    #[arg(long, default_value_t = 600)]
    patience: u64,

    /// The provider's --scaleway-calls-per-second; its own default is 10
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=1000))]
    calls_per_second: u16,

    /// Another flag for the provider
    #[arg(long = "provider-arg", value_name = "FLAG", allow_hyphen_values = true)]
    provider_args: Vec<String>,
}

impl Options {
    /// The command that makes the same figures.
    fn command(&self) -> String {
        let mut words = vec![format!(
            "linux --instances {} --metals {} --window {}",
            self.instances, self.metals, self.window
        )];
        if self.calls_per_second != 200 {
            words.push(format!("--calls-per-second {}", self.calls_per_second));
        }
        words.extend(self.provider_args.iter().map(|arg| format!("--provider-arg={arg}")));
        command(&words)
    }

    fn count(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Instance => self.instances,
            Kind::Metal => self.metals,
        }
    }
}

pub(crate) async fn measure(options: &Options) -> Result<String> {
    let load = load();
    say("starting the API server, Cluster API core, the provider and the emulators");
    let fleet = start(options).await?;
    let mut watch = Watch::begin(&fleet, Duration::from_secs(options.patience))?;
    let yard = fleet.yard("bench", 0).await?;
    yard.cluster().await?;
    let mut kinds = Vec::new();
    for kind in Kind::ALL {
        let machines = options.count(kind);
        if machines > 0 {
            let bench = Bench {
                options,
                yard: &yard,
                kind,
                machines,
            };
            kinds.push(bench.life(&mut watch).await?);
        }
    }
    let report = Report {
        head: head(options.command(), load),
        kinds,
        peak_kib: peak(&fleet),
    };
    Ok(report.markdown())
}

async fn start(options: &Options) -> Result<Fleet> {
    let rate = format!("--scaleway-calls-per-second={}", options.calls_per_second);
    // There is no DNS in this cluster to find the address of.
    let mut args = vec![rate.as_str(), "--linux-cluster-dns=10.96.0.10"];
    args.extend(options.provider_args.iter().map(String::as_str));
    let cluster = TestCluster::start(Extras {
        controller_manager: true,
        cluster_api: true,
        cluster_api_in_earnest: true,
        ..Extras::default()
    })
    .await?;
    let moment = Duration::from_secs(5);
    let settings = Settings {
        delays: Delays {
            metal_order: moment,
            metal_delivery: moment,
            metal_install: moment,
            ..Delays::default()
        },
        ..Settings::default()
    };
    let fleet = Fleet::start_around(cluster, Manner::Earnest, settings, Servers::synthetic(), &args).await?;
    let handle = fleet.sim.handle();
    handle.set_clock_factor(Factor::REAL);
    // Some are left over: what is sold out is asked about again and again, which is another story.
    for kind in Kind::ALL {
        handle.perform(Deed::SetStock {
            zone: Zone::new(ZONE),
            server_type: server_type(kind).to_owned(),
            count: options.count(kind) + 10,
        })?;
    }
    Ok(fleet)
}

fn server_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Instance => "PRO2-S",
        Kind::Metal => "EM-B220E-NVME",
    }
}

/// One kind's turn.
struct Bench<'a, 'f> {
    options: &'a Options,
    yard: &'a Yard<'f>,
    kind: Kind,
    machines: u32,
}

impl Bench<'_, '_> {
    async fn life(&self, watch: &mut Watch<'_>) -> Result<report::Life> {
        let (fleet, name, machines) = (self.yard.fleet, self.kind.plural(), u64::from(self.machines));
        let on = || {
            let boxes = fleet.sim.handle().boxes();
            let on = boxes.iter().filter(|row| row.power == Power::On).count();
            on.try_into().unwrap_or(u64::MAX)
        };
        self.template().await?;
        say(&format!("{machines} {name}"));
        let before = watch.count()?;
        self.yard.apply(self.deployment()?).await?;
        let serving = async || self.serving().await;
        watch
            .until((machines, "that serve"), serving, ("servers on", on))
            .await?;
        let up = Stage::between(&before, &watch.count()?);
        let rest = watch.rest(self.options.window).await?;

        say("scaling to zero");
        let before = watch.count()?;
        self.yard.scale(self.kind.deployment(), 0).await?;
        let left = async || self.left().await;
        watch.until((0, "left"), left, ("servers on", on)).await?;
        let down = Stage::between(&before, &watch.count()?);
        let owed = fleet.sim.handle().bill().per_hour;
        let free = owed == MicroEuro(0);
        ensure!(free, "{name} are gone, and still {owed:?} an hour are owed");
        Ok(report::Life {
            kind: self.kind,
            machines: self.machines,
            up,
            rest,
            down,
        })
    }

    async fn template(&self) -> Result<()> {
        let field = match self.kind {
            Kind::Instance => "commercialType",
            Kind::Metal => "offerType",
        };
        let spec = json!({
            field: server_type(self.kind), "zone": ZONE, "fleetName": self.kind.deployment(),
            "privateNetworkName": NETWORK, "privateNetworkCIDR": "172.16.0.0/20",
            "nodeTaints": [{"key": "tuist.dev/runner-cache", "value": "true", "effect": "NoSchedule"}],
        });
        self.yard
            .apply(json!({
                "apiVersion": format!("{INFRA}/v1alpha1"), "kind": format!("{}Template", self.kind.name()),
                "metadata": {"name": self.kind.deployment()}, "spec": {"template": {"spec": spec}},
            }))
            .await?;
        Ok(())
    }

    fn deployment(&self) -> Result<Value> {
        let name = self.kind.deployment();
        let manifest = Manifest::embedded();
        let (kubelet, _) = manifest.tool("kubelet")?;
        let mut object = self.yard.deployment_of(name, name, self.machines);
        for (pointer, value) in [
            ("/spec/template/spec/version", kubelet.version.clone()),
            (
                "/spec/template/spec/infrastructureRef/kind",
                format!("{}Template", self.kind.name()),
            ),
        ] {
            let field = object.pointer_mut(pointer);
            *field.with_context(|| format!("a MachineDeployment has no {pointer}"))? = value.into();
        }
        Ok(object)
    }

    async fn objects(&self) -> Result<Vec<Value>> {
        let api = self.yard.api(INFRA, "v1alpha1", self.kind.name());
        let all = api.list(&ListParams::default()).await?;
        Ok(all.items.into_iter().map(|object| object.data).collect())
    }

    /// Machines that are through with everything, if core agrees: it counts a Node before the provider has labelled it.
    async fn serving(&self) -> Result<u64> {
        let ready = |object: &&Value| object.pointer("/status/ready") == Some(&Value::Bool(true));
        let ready = u64::try_from(self.objects().await?.iter().filter(ready).count())?;
        Ok(ready.min(available(self.yard, self.kind.deployment()).await?))
    }

    /// Machines and whatever else is left of them: servers, volumes, addresses.
    async fn left(&self) -> Result<u64> {
        let handle = self.yard.fleet.sim.handle();
        let rows = [
            handle.instances(),
            handle.metals(),
            handle.volumes(),
            handle.addresses(),
        ];
        let rows: usize = rows.iter().map(Vec::len).sum();
        Ok(u64::try_from(self.objects().await?.len() + rows)?)
    }
}
