//! A node's place in a network: its name, its address, its cable and the routes to its pods.

use std::net::Ipv4Addr;

use super::{Error, Network, Range, holder::Holder, network, system};

/// Addresses of nodes within a network: .1 is the machine, some are left for tests, the last for servers that
/// others plug in.
const HOSTS: std::ops::Range<u8> = 10..192;

/// Holds a name and an address for one node; gives both back when dropped.
///
/// The cable goes with the node's namespace. A route left on the machine then leads nowhere, and is replaced when its
/// range is used again.
#[derive(Debug)]
pub(super) struct Seat {
    network: Network,
    name: String,
    host: u8,
}

/// What a network knows of a seat.
#[derive(Clone, Debug)]
pub(super) struct Member {
    name: String,
    host: u8,
    /// The node's holder, whose namespace gets the routes to other nodes; known once plugged in.
    pid: Option<u32>,
    pods: Option<Range>,
}

impl Seat {
    pub(super) fn reserve(network: Network, name: &str) -> Result<Self, Error> {
        let mut members = network.members();
        if members.iter().any(|member| member.name == name) {
            return Err(Error::NameTaken { name: name.to_owned() });
        }
        let host = free_host(&members).ok_or(Error::NetworkFull { range: network.nodes() })?;
        members.push(Member {
            name: name.to_owned(),
            host,
            pid: None,
            pods: None,
        });
        drop(members);
        Ok(Self {
            network,
            name: name.to_owned(),
            host,
        })
    }

    pub(super) fn network(&self) -> &Network {
        &self.network
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        self.address_of(self.host)
    }

    fn address_of(&self, host: u8) -> Ipv4Addr {
        self.network.nodes().address(u32::from(host))
    }

    /// Connects the node.
    pub(super) async fn plug_in(&self, node: &Holder) -> Result<(), Error> {
        let (port, pid) = (format!("n{}", self.host), node.pid().to_string());
        let address = format!("{}/{}", self.address(), self.network.nodes().prefix());
        let gateway = self.network.gateway().to_string();
        let attempt = format!("connect node {}", self.name);
        let cable = [
            "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid,
        ];
        self.network.on_switch(&attempt, "ip", &cable).await?;
        self.network
            .on_switch(&attempt, "ip", &["link", "set", &port, "master", "br0", "up"])
            .await?;
        node.run(&attempt, "ip", &["address", "add", &address, "dev", "eth0"])
            .await?;
        node.run(&attempt, "ip", &["link", "set", "eth0", "up"]).await?;
        node.run(&attempt, "ip", &["route", "add", "default", "via", &gateway])
            .await?;
        self.update(|member| member.pid = Some(node.pid()));
        Ok(())
    }

    /// Makes the node's pods reachable from the machine and from all other nodes, and theirs from it.
    pub(super) async fn publish(&self, pods: Range) -> Result<(), Error> {
        let interface = self.network.interface();
        let taken = |route: &network::Route| route.interface != interface && route.range.overlaps(pods);
        if network::routes().await?.iter().any(taken) {
            let suggested = self.network.pods();
            return Err(Error::PodRangeTaken {
                node: self.name.clone(),
                pods,
                suggested,
            });
        }
        // Of two nodes that publish at the same time at least one sees the other's range, and sets both ways.
        self.update(|member| member.pods = Some(pods));
        let members = self.network.members().clone();
        let this = members
            .iter()
            .find(|member| member.name == self.name)
            .and_then(|member| member.pid);
        let attempt = format!("route to the pods of node {}", self.name);
        // Replacing is safe: what is not ours was refused above, and ours may be left from an earlier node.
        system::run(&attempt, "ip", &route(pods, self.address())).await?;
        for other in members.iter().filter(|member| member.name != self.name) {
            if let Some(pid) = other.pid {
                in_network(&attempt, pid, &route(pods, self.address())).await?;
            }
            if let (Some(pid), Some(range)) = (this, other.pods) {
                in_network(&attempt, pid, &route(range, self.address_of(other.host))).await?;
            }
        }
        Ok(())
    }

    fn update(&self, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self
            .network
            .members()
            .iter_mut()
            .find(|member| member.name == self.name)
        {
            change(member);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.network.members().retain(|member| member.name != self.name);
    }
}

fn route(range: Range, via: Ipv4Addr) -> [String; 5] {
    ["route", "replace", &range.to_string(), "via", &via.to_string()].map(str::to_owned)
}

async fn in_network(attempt: &str, pid: u32, args: &[String]) -> Result<(), Error> {
    let mut command = vec![
        "--target".to_owned(),
        pid.to_string(),
        "--net".to_owned(),
        "ip".to_owned(),
    ];
    command.extend_from_slice(args);
    system::run(attempt, "nsenter", &command).await.map(drop)
}

fn free_host(members: &[Member]) -> Option<u8> {
    HOSTS
        .into_iter()
        .find(|host| members.iter().all(|member| member.host != *host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gets_the_lowest_address_that_no_other_has() {
        let member = |host: u8| Member {
            name: host.to_string(),
            host,
            pid: None,
            pods: None,
        };
        assert_eq!(free_host(&[]), Some(10));
        assert_eq!(free_host(&[member(10), member(12)]), Some(11));
        let all: Vec<_> = HOSTS.map(member).collect();
        assert_eq!(free_host(&all), None);
    }
}
