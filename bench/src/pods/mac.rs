//! Macs: the agent as it runs on one, on a synthetic host.

use crate::fleet::say;
use anyhow::{Context, Result};
use base64::Engine as _;
use kube::Client;
use russet_node::{Agent, Capacity, Condition, Identity, Machine, Memory, Rhythm, Sight, Spec, Store, System};
use russet_tart_kubelet::Meters;
use russet_tart_kubelet::pods::{Keeping, Options, Pods};
use russet_telemetry::{Metrics, Secret};
use russet_testkit::TestCluster;
use russet_vm::synthetic::{Host, Op, Reply, Script, Settings};
use russet_vm::{Goldens, ImageRef, Pull, PullPolicy, Runtime, Synthetic};
use serde_json::json;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(super) const IMAGE: &str = "ghcr.io/acme/mac:v1";
/// How long each thing takes on these hosts. A tenth of a mini's, so that more Pods fit into a window.
const CLONE: Duration = Duration::from_millis(100);
const BOOT: Duration = Duration::from_millis(1500);
const SHUT_DOWN: Duration = Duration::from_millis(300);
const OTHER: Duration = Duration::from_millis(10);
/// How long the program of a job runs.
pub(super) const JOB: Duration = Duration::from_secs(8);

/// What a runtime itself takes until a container runs: clone, configure, start, boot, and for a program the question whether the
/// guest answers.
pub(super) fn own_time(program: bool) -> Duration {
    CLONE + OTHER * 2 + BOOT + if program { OTHER } else { Duration::ZERO }
}

#[derive(Debug)]
struct Hardware;

impl Script for Hardware {
    fn delay(&self, op: Op, _name: &str) -> Duration {
        match op {
            Op::Pull => Duration::ZERO,
            Op::Clone => CLONE,
            Op::Boot => BOOT,
            Op::ShutDown => SHUT_DOWN,
            Op::Configure | Op::Start | Op::Delete | Op::Exec => OTHER,
        }
    }

    fn run(&self, _vm: &str, words: &[String], _input: &[u8]) -> Reply {
        let starts = words.last().is_some_and(|word| word.ends_with("/start.sh"));
        Reply {
            lasts: if starts { JOB } else { Duration::ZERO },
            ..Reply::default()
        }
    }
}

pub(super) fn node_name(number: u32) -> String {
    format!("mac-{number:04}")
}

/// Macs that are Nodes for as long as this is there.
pub(super) struct Macs {
    _agents: JoinSet<()>,
}

impl Macs {
    /// Their certificates are made here: how Macs get theirs is measured elsewhere.
    pub(super) async fn join(cluster: &TestCluster, dir: &Path, count: u32) -> Result<Self> {
        let plane = cluster.control_plane();
        let authority = base64::engine::general_purpose::STANDARD.encode(plane.ca_pem());
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "c", "cluster": {
                "server": plane.server(), "certificate-authority-data": authority,
            }}],
            "users": [{"name": "u", "user": {"token": "unused"}}],
            "contexts": [{"name": "bench", "context": {"cluster": "c", "user": "u"}}],
        });
        let connection = russet_node::connection(&Secret::new(kubeconfig.to_string())).await?;
        let mut agents = JoinSet::new();
        for number in 0..count {
            let name = node_name(number);
            let pair = plane
                .pki()
                .client(&name, &format!("system:node:{name}"), Some("system:nodes"))?;
            let identity = Identity {
                node_name: name.clone(),
                server: connection.cluster_url.to_string(),
                key_pem: Secret::new(std::fs::read_to_string(&pair.key)?),
                certificate_pem: Some(std::fs::read_to_string(&pair.cert)?),
            };
            let (state, connection) = (dir.join(&name), connection.clone());
            agents.spawn(async move {
                match Mac::new(number, &state, identity).await {
                    Ok(mac) => mac.run(connection).await,
                    Err(error) => say(&format!("{name} did not start: {error:#}")),
                }
            });
        }
        Ok(Self { _agents: agents })
    }
}

struct Mac {
    spec: Spec,
    body: Body,
    store: Kept,
    pods: Pods,
}

impl Mac {
    async fn new(number: u32, state: &Path, identity: Identity) -> Result<Self> {
        let [_, _, high, low] = number.to_be_bytes();
        let address = IpAddr::from(Ipv4Addr::new(127, 78, high, low));
        let body = Body {
            address,
            client: watch::channel(None).0,
            watching: watch::channel(None).0,
        };
        let spec = Spec {
            name: node_name(number),
            provider_id: format!("bench://{number}"),
            labels: [("tuist.dev/fleet".to_owned(), "bench".to_owned())].into(),
            taints: Vec::new(),
            capacity: Capacity::default(),
            kubelet_version: russet_node::KUBELET_VERSION.to_owned(),
        };
        let pods = Pods::open(Options {
            node: spec.name.clone(),
            state: state.to_owned(),
            kept: Vec::new(),
            runtime: host().await?,
            client: body.client.subscribe(),
            watching: body.watching.subscribe(),
            address: Arc::new(move || Some(address)),
            capacity: spec.capacity,
            scrapers: Vec::new(),
            tailnet_only: false,
            own_ports: Vec::new(),
            meters: Arc::new(Meters::new(&Metrics::new())),
            keeping: Keeping::default(),
        })?;
        Ok(Self {
            spec,
            body,
            store: Kept(identity),
            pods,
        })
    }

    async fn run(self, connection: kube::Config) {
        let Self {
            spec,
            body,
            store,
            pods,
        } = self;
        let agent = Agent {
            spec: &spec,
            connection,
            moved: None,
            machine: &body,
            store: &store,
            rhythm: Rhythm::default(),
            news: &|_| {},
        };
        tokio::select! {
            ended = Box::pin(agent.run()) => match ended {
                Ok(never) => match never {},
                Err(error) => say(&format!("{} is no Node any more: {error}", spec.name)),
            },
            never = Box::pin(pods.run()) => match never {},
        }
    }
}

/// A host that has its image already: the first Pod of a Mac is not what is measured.
async fn host() -> Result<Arc<dyn Runtime>> {
    let host = Host::new(Settings {
        script: Arc::new(Hardware),
        ..Settings::default()
    });
    let image = ImageRef::parse(IMAGE).context("an image")?;
    host.publish(&image, IMAGE)?;
    let runtime: Arc<dyn Runtime> = Arc::new(Synthetic::new(host));
    let goldens = Goldens::new(Arc::clone(&runtime));
    goldens
        .ensure(&image, PullPolicy::IfNotPresent, Pull::default())
        .await?;
    Ok(runtime)
}

/// What a Mac sees of itself.
struct Body {
    address: IpAddr,
    client: watch::Sender<Option<Client>>,
    watching: watch::Sender<Option<Client>>,
}

impl Machine for Body {
    fn joined(&self, client: &Client, watching: &Client) {
        self.client.send_replace(Some(client.clone()));
        self.watching.send_replace(Some(watching.clone()));
    }

    async fn look(&self) -> Sight {
        Sight {
            address: Some(self.address),
            port: None,
            storage_bytes: 256_000_000_000,
            system: System {
                os_image: "macOS 26.3".to_owned(),
                runtime: "synthetic://1".to_owned(),
                ..System::default()
            },
            conditions: vec![
                Condition::memory_pressure(false, "there is memory"),
                Condition::disk_pressure(false, "there is room"),
                Condition::pid_pressure(false, "there is room for processes"),
                Condition::ready(true, "tart-kubelet is running"),
            ],
            resident: None,
        }
    }
}

/// A Mac that was here before: it has its certificate.
struct Kept(Identity);

impl Store for Kept {
    fn load(&self) -> Memory {
        Memory {
            identity: Some(self.0.clone()),
            ..Memory::default()
        }
    }

    fn save(&self, _memory: &Memory) -> io::Result<()> {
        Ok(())
    }
}
