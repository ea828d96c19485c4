//! Ports of the Node that lead to a container: `hostPort`. Nobody but the host reaches a guest, so the agent carries the bytes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerPort, Pod};
use russet_pod::spec;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{Worker, scrape};
use crate::forward::dial::dial;
use crate::pods::machine::Life;
use crate::pods::server::Server;

/// A port that is taken comes free when its program has ended.
const AGAIN: Duration = Duration::from_secs(5);
/// How long a guest may take to accept.
const DIAL: Duration = Duration::from_secs(10);
const MOST_CONNECTIONS: usize = 256;

/// The ports of one start of a container. They are given up when this is dropped.
pub(super) struct Opened {
    attempt: u32,
    _ports: JoinSet<()>,
}

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    outside: SocketAddr,
    guest: SocketAddr,
}

impl Worker {
    /// Opens the ports of the Node while the guests behind them run.
    pub(super) fn open_ports(&mut self) {
        let (machines, pod) = (&self.machines, &self.pod);
        self.opened.retain(|name, opened| {
            let machine = machines.get(name);
            machine.is_some_and(|machine| machine.vm.attempt() == opened.attempt)
        });
        let Some(node) = (self.host.options.address)() else {
            return;
        };
        // Metrics are read through a port of their own rules. A hostPort with that number keeps other Pods away, and opens nothing.
        let metrics = scrape::port(pod).map(|port| SocketAddr::new(node, port));
        for (name, machine) in machines {
            let Life::Running {
                address: Some(guest), ..
            } = machine.now()
            else {
                continue;
            };
            if self.opened.contains_key(name) {
                continue;
            }
            let container = spec::container(pod, name).map(|(_, container)| container);
            let ports = container.and_then(|container| container.ports.as_deref());
            let mut tasks = JoinSet::new();
            for route in ports
                .unwrap_or_default()
                .iter()
                .filter_map(|port| route(port, node, guest))
                .filter(|route| Some(route.outside) != metrics)
            {
                if self.host.options.tailnet_only && !stays_inside(route, node) {
                    let why = format!(
                        "the port {} is not opened: this node is on a tailnet, and nothing of it is reached elsewhere; leave hostIP out",
                        route.outside
                    );
                    self.host.server.tell(pod, "Warning", "HostIPRefused", &why);
                    continue;
                }
                tasks.spawn(lead(route, self.host.server.clone(), Arc::clone(pod)));
            }
            let opened = Opened {
                attempt: machine.vm.attempt(),
                _ports: tasks,
            };
            self.opened.insert(name.clone(), opened);
        }
    }
}

fn route(port: &ContainerPort, node: IpAddr, guest: Ipv4Addr) -> Option<Route> {
    let number = |number: i32| u16::try_from(number).ok().filter(|number| *number > 0);
    let wanted = port.host_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok());
    let address = wanted.filter(|ip| !ip.is_unspecified()).unwrap_or(node);
    Some(Route {
        outside: SocketAddr::new(address, number(port.host_port?)?),
        guest: SocketAddr::new(guest.into(), number(port.container_port)?),
    })
}

/// Whether nobody but the host itself and the network of its Node reaches a port. A Pod that names the public address of a Mac
/// would open what the tailnet is there to close.
fn stays_inside(route: Route, node: IpAddr) -> bool {
    route.outside.ip() == node || route.outside.ip().is_loopback()
}

/// Listens, for as long as that takes to begin.
async fn lead(route: Route, server: Server, pod: Arc<Pod>) {
    let mut told = String::new();
    let listener = loop {
        match TcpListener::bind(route.outside).await {
            Ok(listener) => break listener,
            Err(error) => {
                let why = format!(
                    "the port {} of this node cannot be opened: {error}; it is tried again until another program gives it up",
                    route.outside
                );
                if why != told {
                    server.tell(&pod, "Warning", "HostPortConflict", &why);
                    told = why;
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => { connections.spawn(carry(stream, route.guest)); }
                Err(error) => {
                    tracing::warn!(%error, "a connection to a port of a Pod could not be accepted");
                    tokio::time::sleep(AGAIN).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn carry(mut outside: TcpStream, guest: SocketAddr) {
    match tokio::time::timeout(DIAL, dial(guest)).await {
        Ok(Ok(mut inside)) => {
            // Either end may leave at any time, and the other sees it.
            let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
        }
        Ok(Err(error)) => tracing::debug!(%guest, %error, "a guest did not accept a connection to its port"),
        Err(_) => tracing::debug!(%guest, "a guest did not answer at its port"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_the_node_leads_to_the_port_of_the_container() {
        let (node, guest) = ("10.0.0.1".parse().unwrap(), Ipv4Addr::new(192, 168, 64, 7));
        let with = |host_ip: Option<&str>, host_port| {
            let port = ContainerPort {
                container_port: 80,
                host_ip: host_ip.map(str::to_owned),
                host_port,
                ..ContainerPort::default()
            };
            route(&port, node, guest)
        };
        let led = |outside: &str| {
            Some(Route {
                outside: outside.parse().unwrap(),
                guest: "192.168.64.7:80".parse().unwrap(),
            })
        };
        assert_eq!(with(None, Some(8080)), led("10.0.0.1:8080"));
        assert_eq!(with(Some("0.0.0.0"), Some(8080)), led("10.0.0.1:8080"));
        assert_eq!(with(Some("10.0.0.2"), Some(8080)), led("10.0.0.2:8080"));
        assert_eq!([with(None, None), with(None, Some(0))], [None, None]);
        let inside = |host_ip| stays_inside(with(host_ip, Some(8080)).unwrap(), node);
        assert!(inside(None) && inside(Some("127.0.0.1")));
        assert!(!inside(Some("203.0.113.7")));
    }
}
