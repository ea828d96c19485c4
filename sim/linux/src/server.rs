//! One real server: its disk, and while it is on its namespaces and the manager in them.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use russet_cluster::node::holder::{Holder, Isolation, Plan};
use russet_cluster::node::{Cable, Network, Range, cgroup, image as digests, system};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, watch};

use crate::data;
use crate::disk::{Adaptation, Disk};
use crate::error::Error;
use crate::habits::Habits;
use crate::image::Image;
use crate::inside::protocol::{
    Boot, CloudInit, MANAGE, PRIVATE_CARD, PROGRAM, PUBLIC_CARD, Power as Asked, Private, Told, VLAN_CABLE,
};
use crate::mounts;
use crate::row::{Kind, Row, tag};
use crate::synthetic::{self, Memory};

/// The bridge of public addresses.
const PUBLIC: &str = "br0";

/// What all real servers of a fleet share.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) state: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) network: Network,
    pub(crate) image: Image,
    pub(crate) kubernetes: String,
    pub(crate) proxy_kubeconfig: Option<PathBuf>,
}

/// How far a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Whether it runs, and how far the boot is.
    pub phase: Phase,
    /// How user data ended in this boot; none while it runs.
    pub cloud_init: Option<CloudInit>,
    /// Counts boots since this fleet knows the server.
    pub boots: u32,
}

/// Whether a server runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// No power.
    Off,
    /// Its services are being started.
    Booting,
    /// They were started.
    Booted,
    /// It could not be started, and why.
    Broken(String),
}

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    /// None without root: then there is no machine, only a Node.
    site: Option<Arc<Site>>,
    habits: Arc<Habits>,
    pub(crate) row: Row,
    disk: Disk,
    state: watch::Sender<State>,
    running: Option<Running>,
    /// What a server without a machine is.
    synthetic: Option<Stopped>,
    memory: Arc<Mutex<Memory>>,
    /// Asked for from inside; the fleet listens.
    asked: watch::Sender<Option<Power>>,
}

/// Power states a server may ask for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    Reboot,
    Off,
}

/// Ends its task when it goes.
#[derive(Debug)]
struct Stopped(tokio::task::AbortHandle);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct Running {
    /// Killed on drop; ends by itself when its standard input does.
    manager: Child,
    holder: Holder,
    wired: Wired,
}

/// What is plugged in.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wired {
    public: Option<Ipv4Addr>,
    private: Option<String>,
}

impl Server {
    pub(crate) fn new(site: Option<Arc<Site>>, habits: Arc<Habits>, row: Row) -> Self {
        let state = site.as_ref().map(|site| site.state.clone()).unwrap_or_default();
        let disk = Disk::at(state.join("boxes").join(tag(&row)));
        Self {
            site,
            habits,
            row,
            disk,
            state: watch::Sender::new(State {
                phase: Phase::Off,
                cloud_init: None,
                boots: 0,
            }),
            running: None,
            synthetic: None,
            memory: Arc::default(),
            asked: watch::Sender::new(None),
        }
    }

    pub(crate) fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub(crate) fn asked(&self) -> watch::Receiver<Option<Power>> {
        self.asked.subscribe()
    }

    pub(crate) fn is_on(&self) -> bool {
        self.running.is_some() || self.synthetic.is_some()
    }

    fn site(&self) -> Result<&Site, Error> {
        self.site.as_deref().ok_or_else(|| Error::NoMachine {
            name: self.row.name.clone(),
        })
    }

    /// Whether it was ever on.
    pub(crate) fn is_known(&self) -> bool {
        self.state.borrow().boots > 0
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.holder.pid())
    }

    pub(crate) fn cgroup(&self) -> Result<String, Error> {
        let digest = digests::digest(self.site()?.state.as_os_str().as_encoded_bytes());
        Ok(format!(
            "russet-{}-{}",
            digest.get(..8).unwrap_or_default(),
            tag(&self.row)
        ))
    }

    /// Switches it on. A server that cannot start is broken, which its state says.
    pub(crate) async fn switch_on(&mut self) {
        if self.is_on() {
            return;
        }
        self.state.send_modify(|state| {
            state.phase = Phase::Booting;
            state.cloud_init = None;
            state.boots += 1;
        });
        self.asked.send_replace(None);
        if self.site.is_none() {
            let (memory, state) = (Arc::clone(&self.memory), self.state.clone());
            let habits = Arc::clone(&self.habits);
            let task = tokio::spawn(synthetic::run(self.row.clone(), habits, memory, state));
            self.synthetic = Some(Stopped(task.abort_handle()));
            return;
        }
        if let Err(error) = self.boot().await {
            let why = with_causes(&error);
            tracing::error!(server = self.row.name, error = why, "a server could not be started");
            self.state.send_modify(|state| state.phase = Phase::Broken(why));
        }
    }

    async fn boot(&mut self) -> Result<(), Error> {
        let cgroup = self.cgroup()?;
        let adaptation = Adaptation {
            cgroup: cgroup.clone(),
            pods: self.pods()?.map(|range| range.to_string()),
            proxy_kubeconfig: self.site()?.proxy_kubeconfig.clone(),
        };
        self.disk.install(&self.row, &adaptation)?;
        self.write_orders(true)?;
        let setup = mounts::script(
            &self.disk,
            &self.site()?.image,
            &self.site()?.program,
            &self.row.hostname,
        )?;
        let log = self.disk.folder.join("console.log");
        cgroup::create(&cgroup)?;
        let holder = Holder::start(Plan {
            name: format!("russet-box-{}", tag(&self.row)),
            isolation: Isolation::Machine,
            setup,
            cgroups: cgroup::trees(&cgroup)?,
            log: log.clone(),
        })
        .await?;
        let wired = self.wire(&holder, Wired::default()).await?;
        let console = std::fs::OpenOptions::new()
            .append(true)
            .open(&log)
            .map_err(Error::io("write to the console", &log))?;
        let mut manager = Command::new("nsenter")
            .args(holder.enter(PROGRAM, &[MANAGE]))
            .env_clear()
            .env("PATH", system::PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(console)
            .kill_on_drop(true)
            .spawn()
            .map_err(Error::io("start the manager of a server", &self.site()?.program))?;
        if let Some(stdout) = manager.stdout.take() {
            let (state, asked) = (self.state.clone(), self.asked.clone());
            tokio::spawn(listen(BufReader::new(stdout), state, asked));
        }
        self.running = Some(Running { manager, holder, wired });
        Ok(())
    }

    /// The boot's orders. `fresh` also forgets what the last boot left beside them.
    fn write_orders(&self, fresh: bool) -> Result<(), Error> {
        let run = self.disk.run();
        if fresh {
            let _ = std::fs::remove_dir_all(&run);
            std::fs::create_dir_all(&run).map_err(Error::io("make a folder", &run))?;
            if let Some(data) = &self.row.user_data {
                let path = run.join("user-data");
                russet_cluster::files::write(&path, data.as_bytes(), russet_cluster::files::Access::Private)
                    .map_err(russet_cluster::node::Error::from)?;
            }
        }
        let services = if self.site()?.proxy_kubeconfig.is_some() {
            vec!["kube-proxy.service".to_owned()]
        } else {
            Vec::new()
        };
        let boot = Boot {
            generation: self.row.generation,
            private: self.row.private.as_ref().map(|leg| Private {
                address: leg.address.clone(),
                vlan: leg.vlan,
            }),
            disks: data::blanks(&self.row),
            user_data: self.row.user_data.is_some(),
            kubernetes: self.site()?.kubernetes.clone(),
            services,
            api_server: self.habits.api_server(),
        };
        let text = serde_json::to_vec(&boot).unwrap_or_default();
        russet_cluster::files::write(&run.join("boot.json"), &text, russet_cluster::files::Access::Private)
            .map_err(russet_cluster::node::Error::from)?;
        Ok(())
    }

    /// Plugs in what the row says and is not there yet. The public card gets its address, as by the image's DHCP; the
    /// private one waits for whoever configures it.
    async fn wire(&self, holder: &Holder, mut wired: Wired) -> Result<Wired, Error> {
        let (network, tag) = (&self.site()?.network, tag(&self.row));
        let attempt = format!("connect the server {}", self.row.name);
        if wired.public.is_none() {
            in_network(holder, &["link", "set", "lo", "up"]).await?;
        }
        if let (None, Some(address)) = (wired.public, self.public()?) {
            let cable = Cable {
                bridge: PUBLIC,
                port: &format!("u{tag}"),
                interface: PUBLIC_CARD,
                // The same after every boot: neighbours remember it.
                mac: Some(&mac(&tag)),
            };
            network.plug(holder, &cable).await?;
            let range = network.nodes();
            in_network(
                holder,
                &[
                    "address",
                    "add",
                    &format!("{address}/{}", range.prefix()),
                    "dev",
                    PUBLIC_CARD,
                ],
            )
            .await?;
            in_network(holder, &["link", "set", PUBLIC_CARD, "up"]).await?;
            in_network(
                holder,
                &["route", "add", "default", "via", &network.gateway().to_string()],
            )
            .await?;
            self.route_pods(holder, address).await?;
            wired.public = Some(address);
        }
        if let (None, Some(leg)) = (&wired.private, &self.row.private) {
            let bridge = format!(
                "p{}",
                digests::digest(leg.private_network_id.as_str().as_bytes())
                    .get(..10)
                    .unwrap_or_default()
            );
            let cable = Cable {
                bridge: &bridge,
                port: &format!("v{tag}"),
                interface: if self.row.kind == Kind::Metal {
                    VLAN_CABLE
                } else {
                    PRIVATE_CARD
                },
                mac: Some(&leg.mac),
            };
            network.plug(holder, &cable).await?;
            if let (Some(via), Some((address, _))) = (wired.public, leg.address.split_once('/')) {
                // The API server may be told to reach the node there. Two fleets may use one private address.
                let route = ["route", "add", address, "via", &via.to_string()];
                if let Err(error) = system::run(&attempt, "ip", &route).await {
                    tracing::warn!(%error, "this machine does not reach the private address of a server");
                }
            }
            wired.private = Some(leg.address.clone());
        }
        Ok(wired)
    }

    /// Pods of all machines are reachable from each other and from the host: which range is behind which address is fixed.
    async fn route_pods(&self, holder: &Holder, own: Ipv4Addr) -> Result<(), Error> {
        let network = &self.site()?.network;
        let mut batch = String::new();
        for last in 2..255 {
            let address = network.nodes().address(last);
            if address != own {
                let _ = writeln!(batch, "route replace {} via {address}", pods_behind(network, address));
            }
        }
        let script = format!("printf '%s' '{batch}' | ip -batch -");
        let pid = holder.pid().to_string();
        let command = ["--target", &pid, "--net", "sh", "-c", &script];
        system::run("route to the Pods of other servers", "nsenter", &command).await?;
        let (pods, via) = (pods_behind(network, own).to_string(), own.to_string());
        let route = ["route", "replace", &pods, "via", &via];
        system::run("route to the Pods of a server", "ip", &route).await?;
        Ok(())
    }

    fn public(&self) -> Result<Option<Ipv4Addr>, Error> {
        let Some(address) = self.row.public_ip else {
            return Ok(None);
        };
        let range = self.site()?.network.nodes();
        match address {
            IpAddr::V4(v4) if range.overlaps(Range::new(v4, 32)) => Ok(Some(v4)),
            _ => Err(Error::Address {
                name: self.row.name.clone(),
                address,
                range,
            }),
        }
    }

    fn pods(&self) -> Result<Option<Range>, Error> {
        let network = &self.site()?.network;
        Ok(self.public()?.map(|address| pods_behind(network, address)))
    }

    /// Another row for the same installation.
    pub(crate) async fn update(&mut self, row: Row) {
        self.row = row;
        let Some(mut running) = self.running.take() else {
            return;
        };
        let wired = std::mem::take(&mut running.wired);
        let before = format!("{wired:?}");
        match self.wire(&running.holder, wired).await {
            Ok(wired) => {
                if format!("{wired:?}") != before
                    && let Err(error) = self.write_orders(false)
                {
                    tracing::error!(server = self.row.name, %error, "a server was not told of its network");
                }
                running.wired = wired;
            }
            Err(error) => tracing::error!(server = self.row.name, %error, "a server could not be connected"),
        }
        self.running = Some(running);
    }

    /// Cuts the power: on return nothing of it runs.
    pub(crate) async fn switch_off(&mut self) {
        drop(self.synthetic.take());
        if let Some(running) = self.running.take() {
            let Running {
                mut manager, holder, ..
            } = running;
            let _ = manager.start_kill();
            // Blocks until the kernel has taken everything apart.
            let _ = tokio::task::spawn_blocking(move || drop(holder)).await;
            let _ = manager.wait().await;
        }
        self.state.send_modify(|state| {
            state.phase = Phase::Off;
            state.cloud_init = None;
        });
    }

    /// Power off, and nothing remains on the disk.
    pub(crate) async fn forget(&mut self) {
        self.switch_off().await;
        self.memory = Arc::default();
        if self.site.is_none() {
            self.habits.forget(&self.row);
            return;
        }
        if let Err(error) = self.disk.erase() {
            tracing::warn!(
                server = self.row.name,
                error = with_causes(&error),
                "the disk of a server could not be erased"
            );
        }
    }

    /// Runs a program inside, as root.
    pub(crate) async fn run(&self, program: &str, args: &[String]) -> Result<String, Error> {
        let running = self.running.as_ref().ok_or_else(|| Error::Off {
            name: self.row.name.clone(),
        })?;
        let attempt = format!("run {program} on the server {}", self.row.name);
        Ok(running.holder.run(attempt, program, args).await?)
    }
}

/// A hardware address of the range that anybody may use.
fn mac(tag: &str) -> String {
    let mut mac = "02".to_owned();
    for (position, digit) in tag.chars().enumerate() {
        if position % 2 == 0 {
            mac.push(':');
        }
        mac.push(digit);
    }
    mac
}

/// Runs the host's `ip` on the cards of a server.
async fn in_network(holder: &Holder, args: &[&str]) -> Result<(), Error> {
    let pid = holder.pid().to_string();
    let mut command = vec!["--target", &pid, "--net", "ip"];
    command.extend(args);
    system::run("connect a server", "nsenter", &command).await?;
    Ok(())
}

/// The addresses of the Pods behind a public address: the same number of the network's range of Pods.
fn pods_behind(network: &Network, address: Ipv4Addr) -> Range {
    let number = u32::from(address.octets()[3]);
    Range::new(network.pods().address(number << 8), 24)
}

async fn listen(
    mut lines: BufReader<tokio::process::ChildStdout>,
    state: watch::Sender<State>,
    asked: watch::Sender<Option<Power>>,
) {
    let mut line = String::new();
    while lines.read_line(&mut line).await.is_ok_and(|length| length > 0) {
        match serde_json::from_str::<Told>(&line) {
            Ok(Told::Booted) => state.send_modify(|state| state.phase = Phase::Booted),
            Ok(Told::CloudInit { outcome }) => state.send_modify(|state| state.cloud_init = Some(outcome)),
            Ok(Told::Power { power }) => {
                asked.send_replace(Some(match power {
                    Asked::Reboot => Power::Reboot,
                    Asked::Off => Power::Off,
                }));
            }
            Err(error) => tracing::warn!(%error, "the manager of a server said something odd"),
        }
        line.clear();
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
