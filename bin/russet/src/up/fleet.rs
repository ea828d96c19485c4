//! The fleet without hardware: an emulated Scaleway with a pool of minis, the minis themselves, and the real provider. The
//! Linux servers of the same account are in `linux.rs`.
//!
//! ```text
//!   sim-scaleway ◀── events ── sim-mac (one agent per mini)
//!        ▲                        │ joins as a Node
//!        │ SCW_API_URL            ▼
//!   capi-provider ───────────▶ kube-apiserver ◀── Cluster API core
//! ```
//!
//! The provider runs with the ServiceAccount of its chart and with the arguments of the chart's Deployment, which itself is
//! scaled to zero: rights and flags are tried here as they are in a real cluster.
//!
//! The minis are Macs with SSH and launchd, which the provider sets up as it does real ones, and `tart-kubelet` on them joins
//! (see [`macs`]). Where that cannot be, a stand-in agent on each mini joins when it is told to.

use super::board::Board;
use super::chart::{self, NAMESPACE, Target};
use super::linux;
use super::macs::{self, Way};
use crate::state::Layout;
use crate::state::record::{self, Record};
use crate::status::document::{Fleet, Group, Kind, Server};
use crate::status::fleet as picture;
use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::api::Api;
use russet_cluster::control_plane::ControlPlane;
use russet_cluster::kubeconfig;
use russet_cluster::ports::Ports;
use russet_cluster::process::{Probe, Restart, Spec, Supervisor};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The emulated Scaleway among the parts, and its program.
pub(crate) const SCALEWAY: &str = "sim-scaleway";
/// The emulated minis.
const MACS: &str = "sim-mac";
/// The provider; also the name of its chart, Deployment and ServiceAccount.
pub(super) const PROVIDER: &str = "capi-provider";
const HEALTH: &str = "capi-provider-health";
const METRICS: &str = "capi-provider-metrics";

/// Where minis are told to join; on the address of each.
const STAND_IN: &str = "sim-mac-join";
const PORTS: [&str; 5] = [SCALEWAY, HEALTH, METRICS, STAND_IN, macs::SSH];

/// An hour of the account in a minute here: a mini that takes ten minutes to install takes ten seconds.
const CLOCK_FACTOR: &str = "60";

/// Between two looks at the Macs.
const POLL: Duration = Duration::from_millis(250);

/// The programs of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Programs {
    scaleway: PathBuf,
    macs: PathBuf,
    pub(super) provider: PathBuf,
    /// The agent of Macs that are set up over SSH.
    pub(super) agent: Option<PathBuf>,
}

impl Programs {
    /// Those beside this program, where cargo and packages put them; none unless all are there.
    pub(super) fn beside(russet: &Path) -> Option<Self> {
        let dir = russet.parent()?;
        let find = |name: &str| Some(dir.join(name)).filter(|path| path.is_file());
        Some(Self {
            scaleway: find(SCALEWAY)?,
            macs: find(MACS)?,
            provider: find(PROVIDER)?,
            agent: find(macs::AGENT),
        })
    }

    /// With a stand-in on each mini, which needs no agent.
    pub(super) fn without_agent(self) -> Self {
        Self { agent: None, ..self }
    }

    /// Whether the minis will be Macs, with their files below this folder.
    pub(super) fn emulate_macos(&self, root: &Path) -> bool {
        macs::hindrance(self.agent.as_deref(), root).is_none()
    }
}

/// How big it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Minis in the account at first.
    pub(super) pool: u32,
    /// Those that become Machines.
    pub(super) macs: u32,
}

/// The emulators, running.
#[derive(Debug)]
pub(super) struct Account {
    /// Where the emulated Scaleway is.
    pub(super) url: String,
    /// Picked once: a port that is already used would be given up for another.
    ports: Ports,
    /// How its minis are set up.
    pub(super) way: Way,
}

/// Starts the emulators, if their programs are there. They need no cluster, only to know where it is.
pub(super) async fn emulate(
    programs: Option<&Programs>,
    size: Size,
    layout: &Layout,
    supervisor: &Supervisor,
    api_server: &str,
    zsh: Option<&Path>,
) -> Result<Option<Account>> {
    let Some(programs) = programs else {
        return Ok(None);
    };
    let home = layout.fleet();
    std::fs::create_dir_all(&home).with_context(|| format!("failed to make {}", home.display()))?;
    let ports = Ports::pick(&home, Ipv4Addr::LOCALHOST, &PORTS)?;
    let address = ports.socket(SCALEWAY);
    let url = format!("http://{address}");
    let spec = Spec::new(SCALEWAY, &programs.scaleway, layout.log(SCALEWAY))
        .args(["--listen".to_owned(), address.to_string()])
        .args(["--state".to_owned(), home.join("account.json").display().to_string()])
        .args(["--pool".to_owned(), size.pool.to_string()])
        .args(["--clock-factor", CLOCK_FACTOR])
        .args(["--ssh-port".to_owned(), ports.port(macs::SSH).to_string()])
        .listens(address)
        .probe(Probe::Http {
            url: format!("{url}/_sim/health"),
        })
        .restart(Restart::DEFAULT);
    supervisor
        .start(spec)
        .await
        .context("failed to start the emulated Scaleway")?;
    let way = macs::choose(
        programs.agent.as_deref(),
        &home,
        ports.port(STAND_IN),
        ports.port(macs::SSH),
    )?;
    let spec = Spec::new(MACS, &programs.macs, layout.log(MACS))
        .args(["--scaleway".to_owned(), url.clone()])
        .args(["--port".to_owned(), ports.port(STAND_IN).to_string()])
        .args(["--disks".to_owned(), home.join("disks").display().to_string()])
        // The port of an earlier start may be somebody else's by now, and disks remember it.
        .args(["--api-server", api_server])
        .args(way.emulator(&home, zsh))
        .restart(Restart::DEFAULT);
    supervisor
        .start(spec)
        .await
        .context("failed to start the emulated minis")?;
    Ok(Some(Account { url, ports, way }))
}

/// Installs the chart, with fleets of cache nodes if it is told about them, and starts the provider.
pub(super) async fn provide(
    program: &Path,
    (size, kura): (Size, Option<Value>),
    account: &Account,
    place: &Place<'_>,
    record: &mut Record,
) -> Result<()> {
    let client = place.target.client;
    let Account { url, ports, way } = account;
    let values = values(size, kura, place.control_plane.server(), url, way);
    let recorded = record.charts.get(chart::PROVIDER.release).cloned();
    let whole = deployment(client).await?.is_some();
    let install = chart::ensure(
        place.target,
        &chart::PROVIDER,
        Some(&values),
        recorded.as_deref(),
        whole,
    );
    place
        .board
        .step(
            "provider chart (helm)",
            |done: &chart::Outcome| done.as_str().to_owned(),
            install,
        )
        .await?;
    let hash = chart::PROVIDER.content_hash(Some(&values));
    record.charts.insert(chart::PROVIDER.release.to_owned(), hash);
    record::write(place.layout, record)?;

    way.prepare(client).await?;
    let deployed = deployment(client)
        .await?
        .ok_or_else(|| anyhow!("the chart {PROVIDER} was installed, but its Deployment is not there"))?;
    let dest = place.layout.fleet().join("provider.kubeconfig");
    let kubeconfig =
        kubeconfig::for_service_account(client.clone(), place.control_plane, NAMESPACE, PROVIDER, &dest).await?;
    let health = ports.socket(HEALTH);
    let mut spec = Spec::new(PROVIDER, program, place.layout.log(PROVIDER))
        .args(arguments(
            &deployed,
            &["--metrics-bind-address", "--health-probe-bind-address", "--kubeconfig"],
        ))
        .args([
            format!("--kubeconfig={}", kubeconfig.display()),
            // A Pod knows its namespace; a process does not.
            format!("--leader-election-namespace={NAMESPACE}"),
            format!("--metrics-bind-address={}", ports.socket(METRICS)),
            format!("--health-probe-bind-address={health}"),
        ])
        .listens(health)
        .listens(ports.socket(METRICS))
        .probe(Probe::Http {
            url: format!("http://{health}/readyz"),
        })
        .restart(Restart::DEFAULT);
    for (name, value) in credentials(url) {
        spec = spec.env(name, value);
    }
    place
        .supervisor
        .start(spec)
        .await
        .context("failed to start the provider")?;
    Ok(())
}

/// Where the provider is started.
pub(super) struct Place<'a> {
    pub(super) layout: &'a Layout,
    pub(super) supervisor: &'a Supervisor,
    pub(super) control_plane: &'a ControlPlane,
    pub(super) board: &'a Board,
    pub(super) target: &'a Target<'a>,
}

async fn deployment(client: &Client) -> Result<Option<Deployment>> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    api.get_opt(PROVIDER)
        .await
        .context("failed to look for the Deployment of the provider")
}

/// The arguments of the Deployment, without those that only fit a Pod.
fn arguments(deployment: &Deployment, without: &[&str]) -> Vec<String> {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let manager = pod.and_then(|pod| pod.containers.iter().find(|container| container.name == "manager"));
    let all = manager.and_then(|manager| manager.args.clone()).unwrap_or_default();
    all.into_iter()
        .filter(|arg| !without.contains(&arg.split('=').next().unwrap_or(arg)))
        .collect()
}

/// The values the chart is installed with: its Deployment rests, since the program runs here.
fn values(size: Size, kura: Option<Value>, server: &str, account: &str, way: &Way) -> Value {
    // Nobody else takes these minis, and a wipe is over in seconds.
    let mut extra: Vec<String> = [
        "--claim-settle-time=0s",
        "--min-wipe-time=2s",
        "--inventory-interval=2s",
    ]
    .map(str::to_owned)
    .into();
    extra.extend(way.arguments());
    if kura.is_some() {
        extra.extend(linux::PROVIDER_ARGS.map(str::to_owned));
    }
    let [macos, runners, builders] = macs::shares(size.macs);
    let mut values = json!({
        "replicas": 0,
        "scaleway": {"apiURL": account},
        "provider": {
            "apiServerURL": server,
            "logFormat": "human",
            "bootstrap": way.bootstrap(),
            "extraArgs": extra,
        },
        "cluster": {"enabled": true, "name": "fleet"},
        "fleets": {
            "macos": {"enabled": true, "name": "macos", "replicas": macos},
            "runners": {"enabled": true, "name": "runners", "replicas": runners},
            // Without a GitHub App there is no runner to register on them.
            "builders": {"enabled": true, "name": "builders", "replicas": builders, "ghActionsRunner": {"enabled": false}},
        },
    });
    if let (Value::Object(all), Some(Value::Object(more))) = (&mut values, kura) {
        all.extend(more);
    }
    values
}

/// The account's API key; that of an emulator is no secret.
fn credentials(account: &str) -> [(&'static str, String); 4] {
    [
        ("SCW_API_URL", account.to_owned()),
        ("SCW_ACCESS_KEY", russet_sim_scaleway::DEFAULT_ACCESS_KEY.to_owned()),
        ("SCW_SECRET_KEY", russet_sim_scaleway::DEFAULT_SECRET_KEY.to_owned()),
        (
            "SCW_DEFAULT_PROJECT_ID",
            russet_sim_scaleway::DEFAULT_PROJECT.to_owned(),
        ),
    ]
}

/// Which machines are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Macs,
    CacheNodes,
}

/// Waits until every machine that is wanted serves. Returns how many there are.
pub(super) async fn wait_for(client: &Client, wanted: Wanted) -> usize {
    loop {
        let fleet = Box::pin(picture::ask(client)).await;
        if let Some(serve) = fleet.and_then(|fleet| serving(&fleet, wanted)) {
            return serve;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// How many serve, once all do. A cache node serves only with an address that runners can dial.
fn serving(fleet: &Fleet, wanted: Wanted) -> Option<usize> {
    let groups = || {
        let of = |group: &&Group| (group.kind == Kind::Mac) == (wanted == Wanted::Macs);
        fleet.groups.iter().filter(of)
    };
    let count: u32 = groups().map(|group| group.wanted).sum();
    let all = groups().all(|group| group.available == group.wanted);
    let (known, able) = match wanted {
        Wanted::Macs => (fleet.macs.len(), true),
        Wanted::CacheNodes => {
            let able = |server: &Server| server.node_ready && server.private_address.is_some();
            (fleet.servers.len(), fleet.servers.iter().all(able))
        }
    };
    let enough = u32::try_from(known).unwrap_or(u32::MAX) >= count;
    (all && able && enough && groups().next().is_some()).then_some(known)
}

/// The port of SSH on the emulated Macs of this directory; that of real ones where there are none.
pub(crate) fn ssh_port(layout: &Layout) -> u16 {
    let ports = std::fs::read(layout.fleet().join("ports.json")).ok();
    let ports: Option<Value> = ports.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    ports
        .as_ref()
        .and_then(|ports| ports.get(macs::SSH)?.as_u64())
        .and_then(|port| u16::try_from(port).ok())
        .unwrap_or(russet_api::ports::SSH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_those_beside_ours_and_all_of_them_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let russet = dir.path().join("russet");
        for name in [SCALEWAY, MACS] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(Programs::beside(&russet), None);
        std::fs::write(dir.path().join(PROVIDER), "").unwrap();
        assert_eq!(Programs::beside(&russet).unwrap().provider, dir.path().join(PROVIDER));
    }

    #[test]
    fn the_provider_runs_with_the_arguments_of_its_deployment_but_for_those_of_a_pod() {
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": PROVIDER},
            "spec": {"selector": {}, "template": {"spec": {"containers": [
                {"name": "sidecar", "args": ["--nothing"]},
                {"name": "manager", "args": ["--leader-elect", "--metrics-bind-address=:8080", "--secrets-namespace=fleet"]},
            ]}}},
        }))
        .unwrap();
        let told = arguments(&deployment, &["--metrics-bind-address"]);
        assert_eq!(told, ["--leader-elect", "--secrets-namespace=fleet"]);
    }

    #[test]
    fn a_fleet_serves_when_every_group_has_what_it_wants() {
        let group = |kind, wanted, available| Group {
            kind,
            name: "macos".into(),
            namespace: "fleet".into(),
            wanted,
            ready: available,
            available,
        };
        let fleet = |groups| Fleet {
            groups,
            ..Fleet::default()
        };
        assert_eq!(serving(&fleet(Vec::new()), Wanted::Macs), None);
        let resting = fleet(vec![group(Kind::Mac, 0, 0), group(Kind::Instance, 1, 0)]);
        assert_eq!(serving(&resting, Wanted::Macs), Some(0));
        assert_eq!(serving(&resting, Wanted::CacheNodes), None);
        assert_eq!(serving(&fleet(vec![group(Kind::Mac, 2, 1)]), Wanted::Macs), None);
    }

    #[test]
    fn cache_nodes_are_a_matter_of_the_chart_only_if_there_are_any() {
        let size = Size { pool: 1, macs: 1 };
        let way = Way::StandIn { port: 1, why: "so" };
        let without = values(size, None, "s", "a", &way);
        assert!(without.get("kuraFleet").is_none());
        let with = values(size, Some(json!({"kuraFleet": {"enabled": true}})), "s", "a", &way);
        assert!(with.get("kuraFleet").is_some());
        assert!(with.to_string().contains("--linux-cluster-dns="));
    }
}
