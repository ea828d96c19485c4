//! The network that nodes and the control plane share.
//!
//! ```text
//!  this machine          │ switch namespace          │ node namespaces
//!  rst7 10.77.7.1 ═══════╪═ uplink ─ br0 ─ n10 ══════╪═ eth0 10.77.7.10   pods 10.135.0.0/24
//!  (kube-apiserver)      │            └─── n11 ══════╪═ eth0 10.77.7.11   pods 10.135.1.0/24
//! ```
//!
//! The bridge is in a namespace of its own, so that all the machine itself gets is one end of a veth pair. A pair
//! disappears with either end: when the switch's holder is gone, so are the interface, its address and its routes,
//! with no clean-up to run. The interface's name is the claim on the ranges, and the kernel hands a name out once.
//!
//! Nothing here forwards or masquerades on the machine: nodes reach the machine and each other, not the world.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Error, Range,
    holder::{Holder, Isolation, Plan},
    image, owner,
    seat::{Member, Seat},
    system,
};

/// How many networks can exist at once; the pod ranges 10.128.0.0/16 to 10.255.0.0/16 set the limit.
const NETWORKS: u8 = 128;

/// A network for nodes. Cheap to clone; it ends when the last clone and the last node in it are gone.
#[derive(Clone, Debug)]
pub struct Network {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    plan: Addresses,
    directory: PathBuf,
    switch: Switch,
    members: Mutex<Vec<Member>>,
}

/// The namespace with the bridges.
#[derive(Debug)]
enum Switch {
    Ours(Holder),
    /// Of the process that made the network; it ends the network when it ends.
    Theirs {
        pid: u32,
    },
}

/// What a state directory remembers.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    index: u8,
    /// Who holds the bridges, with its start time; of a run that may be over.
    #[serde(default)]
    switch: Option<(u32, String)>,
}

/// A cable from a namespace to a bridge of the network.
#[derive(Clone, Copy, Debug)]
pub struct Cable<'a> {
    /// The bridge; made when there is none of that name. `br0` is the one this machine and the nodes are on.
    pub bridge: &'a str,
    /// Its end at the bridge. At most 15 characters, unique in the network, and not `n` and a number, as nodes have it.
    pub port: &'a str,
    /// Its end inside.
    pub interface: &'a str,
    /// The hardware address inside; one of the kernel's choice if none.
    pub mac: Option<&'a str>,
}

/// All names and ranges of a network follow from one small number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Addresses {
    index: u8,
}

impl Addresses {
    fn interface(self) -> String {
        format!("rst{}", self.index)
    }

    fn nodes(self) -> Range {
        Range::new(Ipv4Addr::new(10, 77, self.index, 0), 24)
    }

    fn pods(self) -> Range {
        Range::new(Ipv4Addr::new(10, 128 + self.index % NETWORKS, 0, 0), 16)
    }

    fn gateway(self) -> Ipv4Addr {
        self.nodes().address(1)
    }

    fn is_free(self, routes: &[Route]) -> bool {
        !routes
            .iter()
            .any(|route| route.range.overlaps(self.nodes()) || route.range.overlaps(self.pods()))
    }

    /// Every network, beginning with the preferred one.
    fn candidates(preferred: u8) -> impl Iterator<Item = Self> {
        (0..NETWORKS).map(move |offset| Self {
            index: (preferred % NETWORKS + offset) % NETWORKS,
        })
    }
}

/// A destination the machine routes already, by whatever means.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) range: Range,
    pub(super) interface: String,
}

impl Network {
    /// Makes a network whose nodes keep their files below `state_dir`. Done before the control plane starts, because
    /// kube-apiserver has to listen on [`Network::gateway`].
    ///
    /// A state directory gets the same network again while that is free, so certificates made for the address stay valid.
    pub async fn create(state_dir: &Path) -> Result<Self, Error> {
        system::check()?;
        std::fs::create_dir_all(state_dir).map_err(Error::io("make the state directory", state_dir))?;
        let directory = state_dir
            .canonicalize()
            .map_err(Error::io("resolve the state directory", state_dir))?;
        let record = directory.join("network.json");
        let preferred = match std::fs::read(&record)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok())
        {
            Some(remembered) => remembered.index,
            None => preferred_index(&directory),
        };

        let switch = Holder::start(Plan {
            name: "russet-switch".to_owned(),
            isolation: Isolation::Network,
            setup: "ip link set lo up\nip link add br0 type bridge\nip link set br0 up".to_owned(),
            cgroups: Vec::new(),
            log: directory.join("switch.log"),
        })
        .await?;
        let plan = claim(preferred, &switch).await?;
        let interface = plan.interface();
        switch
            .run(
                "connect the switch",
                "ip",
                &["link", "set", "uplink", "master", "br0", "up"],
            )
            .await?;
        let address = format!("{}/{}", plan.gateway(), plan.nodes().prefix());
        system::run(
            "address the node network",
            "ip",
            &["address", "add", &address, "dev", &interface],
        )
        .await?;
        system::run("enable the node network", "ip", &["link", "set", &interface, "up"]).await?;
        let holder = (switch.pid(), owner::started(switch.pid()).unwrap_or_default());
        let text = serde_json::to_vec(&Record {
            index: plan.index,
            switch: Some(holder),
        })
        .unwrap_or_default();
        std::fs::write(&record, text).map_err(Error::io("remember the network", &record))?;
        Ok(Self {
            shared: Arc::new(Shared {
                plan,
                directory,
                switch: Switch::Ours(switch),
                members: Mutex::default(),
            }),
        })
    }

    /// The network another process made for this state directory, for what is plugged in beside that one's nodes. It ends
    /// with its maker.
    pub fn attach(state_dir: &Path) -> Result<Self, Error> {
        system::check()?;
        let none = || Error::NoNetwork {
            directory: state_dir.to_owned(),
        };
        let directory = state_dir.canonicalize().map_err(|_| none())?;
        let bytes = std::fs::read(directory.join("network.json")).map_err(|_| none())?;
        let record: Record = serde_json::from_slice(&bytes).map_err(|_| none())?;
        let (pid, since) = record.switch.ok_or_else(none)?;
        if owner::started(pid).is_none_or(|started| started != since) {
            return Err(none());
        }
        Ok(Self {
            shared: Arc::new(Shared {
                plan: Addresses { index: record.index },
                directory,
                switch: Switch::Theirs { pid },
                members: Mutex::default(),
            }),
        })
    }

    /// The machine's address in this network, where the control plane listens.
    pub fn gateway(&self) -> Ipv4Addr {
        self.shared.plan.gateway()
    }

    /// The interface on this machine.
    pub fn interface(&self) -> String {
        self.shared.plan.interface()
    }

    /// The range of the nodes' addresses.
    pub fn nodes(&self) -> Range {
        self.shared.plan.nodes()
    }

    /// The part of [`Network::nodes`] that no node gets: for what is plugged in by [`Network::plug`].
    pub fn servers(&self) -> Range {
        Range::new(self.nodes().address(192), 26)
    }

    /// A range for pods that nothing on this machine uses.
    pub fn pods(&self) -> Range {
        self.shared.plan.pods()
    }

    /// The arguments kube-controller-manager needs to hand each node a part of [`Network::pods`].
    pub fn controller_manager_args(&self) -> Vec<String> {
        vec![
            "--allocate-node-cidrs=true".to_owned(),
            format!("--cluster-cidr={}", self.pods()),
        ]
    }

    /// The state directory the network was made for.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// Reserves a name and an address for a node.
    pub(super) fn seat(&self, name: &str) -> Result<Seat, Error> {
        Seat::reserve(self.clone(), name)
    }

    /// Runs a program where the bridges are, to its end.
    pub(super) async fn on_switch(&self, attempt: &str, program: &str, args: &[&str]) -> Result<String, Error> {
        match &self.shared.switch {
            Switch::Ours(holder) => holder.run(attempt, program, args).await,
            Switch::Theirs { pid } => {
                let pid = pid.to_string();
                let mut command = vec!["--target", &pid, "--net", "--", program];
                command.extend(args);
                system::run(attempt, "nsenter", &command).await
            }
        }
    }

    /// Connects a namespace. The inner end is left down and without an address: that is the machine's own affair. The cable
    /// goes with the namespace.
    pub async fn plug(&self, holder: &Holder, cable: &Cable<'_>) -> Result<(), Error> {
        let Cable {
            bridge,
            port,
            interface,
            mac,
        } = *cable;
        let attempt = format!("connect {interface} to {bridge}");
        if self
            .on_switch(&attempt, "ip", &["link", "show", "dev", bridge])
            .await
            .is_err()
        {
            let made = self
                .on_switch(&attempt, "ip", &["link", "add", bridge, "type", "bridge"])
                .await;
            // Two may make it at the same time; then it is there.
            if let Err(error) = self.on_switch(&attempt, "ip", &["link", "set", bridge, "up"]).await {
                return Err(made.err().unwrap_or(error));
            }
        }
        let pid = holder.pid().to_string();
        let mut pair = vec![
            "link", "add", port, "type", "veth", "peer", "name", interface, "netns", &pid,
        ];
        if let Some(mac) = mac {
            pair.extend(["address", mac]);
        }
        self.on_switch(&attempt, "ip", &pair).await?;
        self.on_switch(&attempt, "ip", &["link", "set", port, "master", bridge, "up"])
            .await
            .map(drop)
    }

    pub(super) fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.shared.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the first free network by making its interface.
async fn claim(preferred: u8, switch: &Holder) -> Result<Addresses, Error> {
    let routes = routes().await?;
    let pid = switch.pid().to_string();
    for candidate in Addresses::candidates(preferred).filter(|candidate| candidate.is_free(&routes)) {
        let interface = candidate.interface();
        let pair = [
            "link", "add", &interface, "type", "veth", "peer", "name", "uplink", "netns", &pid,
        ];
        match system::run("make the node network", "ip", &pair).await {
            Ok(_) => return Ok(candidate),
            // Another process was faster; its routes were not there yet when ours were read.
            Err(_) if Path::new("/sys/class/net").join(&interface).exists() => {}
            Err(error) => return Err(error),
        }
    }
    let (first, last) = (Addresses { index: 0 }, Addresses { index: NETWORKS - 1 });
    Err(Error::NoFreeRange {
        first: first.nodes(),
        last: last.nodes(),
    })
}

pub(super) async fn routes() -> Result<Vec<Route>, Error> {
    let table = system::run(
        "read the routes of this machine",
        "ip",
        &["-json", "-4", "route", "show", "table", "all"],
    )
    .await?;
    Ok(parse_routes(&table))
}

/// The default route does not count: it covers what nothing else covers.
fn parse_routes(json: &str) -> Vec<Route> {
    let entries: Vec<Value> = serde_json::from_str(json).unwrap_or_default();
    let text = |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    entries
        .iter()
        .filter_map(|entry| {
            Some(Route {
                range: text(entry, "dst").parse().ok()?,
                interface: text(entry, "dev"),
            })
        })
        .filter(|route| route.range.prefix() > 0)
        .collect()
}

/// Spreads state directories over the networks, so that parallel runs seldom compete for one.
fn preferred_index(directory: &Path) -> u8 {
    let digest = image::digest(directory.as_os_str().as_encoded_bytes());
    digest
        .get(..2)
        .and_then(|byte| u8::from_str_radix(byte, 16).ok())
        .unwrap_or_default()
        % NETWORKS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(range: &str) -> Route {
        Route {
            range: range.parse().unwrap(),
            interface: "eth0".to_owned(),
        }
    }

    #[test]
    fn every_network_is_a_candidate_once_and_the_preferred_one_comes_first() {
        let mut indices: Vec<_> = Addresses::candidates(126).map(|candidate| candidate.index).collect();
        assert_eq!(indices[..3], [126, 127, 0]);
        indices.sort_unstable();
        assert_eq!(indices, (0..NETWORKS).collect::<Vec<_>>());
    }

    #[test]
    fn networks_do_not_overlap_and_interface_names_fit_the_kernel() {
        let all: Vec<_> = Addresses::candidates(0).collect();
        for (position, one) in all.iter().enumerate() {
            assert!(one.interface().len() <= 15);
            for other in &all[position + 1..] {
                assert!(!one.nodes().overlaps(other.nodes()) && !one.pods().overlaps(other.pods()));
            }
            assert!(!all.iter().any(|other| one.nodes().overlaps(other.pods())));
        }
    }

    #[test]
    fn a_network_is_taken_when_its_nodes_or_its_pods_are_routed_already() {
        let plan = Addresses { index: 7 };
        assert!(plan.is_free(&[route("10.77.8.0/24"), route("192.0.2.0/24")]));
        assert!(!plan.is_free(&[route("10.77.7.128/25")]));
        assert!(!plan.is_free(&[route("10.135.4.0/24")]));
        assert!(!plan.is_free(&[route("10.0.0.0/8")]));
    }

    #[test]
    fn the_routing_table_is_read_without_its_default_route() {
        let table = r#"[{"dst":"default","gateway":"192.0.2.1","dev":"eth0","flags":[]},
            {"dst":"192.0.2.0/24","dev":"eth0","protocol":"kernel"},
            {"type":"local","dst":"127.0.0.1","dev":"lo","table":"local"}]"#;
        let expected = [
            route("192.0.2.0/24"),
            Route {
                range: "127.0.0.1".parse().unwrap(),
                interface: "lo".to_owned(),
            },
        ];
        assert_eq!(parse_routes(table), expected);
    }
}
