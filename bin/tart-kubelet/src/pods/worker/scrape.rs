//! The port of the Node at which a Pod's metrics are read, if it wants that.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use russet_api::annotations::{PROMETHEUS_PORT, PROMETHEUS_SCRAPE};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Worker;
use super::start;
use crate::config::Cidr;
use crate::forward::{Allowed, Forward, Whereabouts, dial};
use crate::pods::directory::Instance;

/// The network of guests on most Macs, and the widest that is believed to be theirs alone: guests on a bridge share one with the
/// whole office, scrapers included.
const USUAL: u32 = 24;
const WIDEST: u32 = 20;
/// Where macOS puts guests: in the first of these four networks, or in another if that is taken.
const GUESTS: &str = "192.168.64.0/22";
/// Addresses of a link, by which nobody can tell on which card their owner is.
const LINK: &str = "fe80::/10";
/// Where the IPv6 addresses of guests are, whichever they are.
const LOCAL: &str = "fc00::/7";
/// A port that is taken comes free when another Pod has ended.
const AGAIN: Duration = Duration::from_secs(5);

/// The port of the Node at which the metrics of a Pod are read, if it wants that.
pub(super) fn port(pod: &Pod) -> Option<u16> {
    let annotations = pod.annotations();
    let wanted = annotations
        .get(PROMETHEUS_SCRAPE)
        .is_some_and(|wanted| wanted == "true");
    let port = annotations.get(PROMETHEUS_PORT)?.parse::<u16>().ok()?;
    Some(port).filter(|port| wanted && *port > 0)
}

/// The port that leads to a guest.
pub(super) struct Scraped {
    attempt: u32,
    bound: watch::Receiver<Option<IpAddr>>,
    task: JoinHandle<()>,
}

impl Drop for Scraped {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scraped {
    /// Where the Pod is reached from outside: at the Node, once its port is bound.
    pub(super) fn address(&self) -> Option<IpAddr> {
        *self.bound.borrow()
    }
}

/// Waits for the port to be bound.
pub(super) async fn changed(scraped: Option<&mut Scraped>) {
    if let Some(scraped) = scraped
        && scraped.bound.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Where the guest of a container is.
struct At(Instance);

impl Whereabouts for At {
    fn address(&self) -> BoxFuture<'_, Result<IpAddr, String>> {
        let address = self.0.address().map(IpAddr::V4);
        Box::pin(async move { address.ok_or_else(|| "the virtual machine has no address".to_owned()) })
    }
}

impl Worker {
    /// Opens the port of the Node while the guest behind it runs.
    pub(super) fn scrape(&mut self) {
        let main = self.machines.iter().find(|(name, _)| start::is_main(&self.pod, name));
        let (Some(port), Some((_, machine)), Some(node)) = (port(&self.pod), main, (self.host.options.address)())
        else {
            self.scraped = None;
            return;
        };
        let instance = Instance {
            vm: machine.vm.clone(),
            life: machine.life.clone(),
        };
        let attempt = instance.vm.attempt();
        let (Some(guest), false) = (
            instance.address(),
            self.scraped.as_ref().is_some_and(|scraped| scraped.attempt == attempt),
        ) else {
            return;
        };
        let allowed = Allowed::new(self.host.options.scrapers.clone(), neighbours(guest));
        let (server, pod) = (self.host.server.clone(), Arc::clone(&self.pod));
        let ours = self.host.options.own_ports.contains(&port);
        let (tell, bound) = watch::channel(None);
        let task = tokio::spawn(async move {
            let at = SocketAddr::new(node, port);
            if ours {
                let why = format!("the metrics of this Pod cannot be read at {at}: the node's agent has that port");
                server.tell(&pod, "Warning", "MetricsPortConflict", &why);
                // Whoever waits for the port to be bound waits for as long as the guest runs.
                return std::future::pending().await;
            }
            let mut told = String::new();
            loop {
                match Forward::bind(at).await {
                    Ok(forward) => {
                        tell.send_replace(Some(node));
                        forward.run(port, allowed, Arc::new(At(instance))).await;
                        return;
                    }
                    Err(error) => {
                        let why = format!(
                            "the metrics of this Pod cannot be read at {at}: {error}; it is tried again until another program gives \
                             that port up"
                        );
                        if why != told {
                            server.tell(&pod, "Warning", "MetricsPortConflict", &why);
                            told = why;
                        }
                        tokio::time::sleep(AGAIN).await;
                    }
                }
            }
        });
        self.scraped = Some(Scraped { attempt, bound, task });
    }
}

/// The network of the guests, whose metrics are no business of each other.
fn neighbours(guest: Ipv4Addr) -> Vec<Cidr> {
    // Where guests have addresses of the host itself, as in an emulation, their network is that of everybody.
    if guest.is_loopback() {
        return format!("{guest}/32").parse().into_iter().collect();
    }
    let bits = dial::network_of(guest).map_or(USUAL, |bits| bits.clamp(WIDEST, USUAL));
    around(guest, bits, dial::networks_v6_of(guest))
}

/// The network of a guest, all others in which guests may be, and those of IPv6 on its card. Where these are not known, it may be
/// any that is local.
fn around(guest: Ipv4Addr, bits: u32, sixes: Option<Vec<Cidr>>) -> Vec<Cidr> {
    let own = format!("{guest}/{bits}");
    let unknown = sixes.is_none().then_some(LOCAL);
    let certain = [own.as_str(), GUESTS, LINK].into_iter().chain(unknown);
    certain
        .filter_map(|range| range.parse::<Cidr>().ok())
        .chain(sixes.into_iter().flatten())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> Vec<Cidr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Whether somebody may read where everybody may.
    fn admits(guests: Vec<Cidr>, who: &str) -> bool {
        Allowed::new(ranges(&["0.0.0.0/0", "::/0"]), guests).admits(who.parse().unwrap())
    }

    /// Private networks may read by default, and guests are in one.
    #[test]
    fn guests_read_nothing_of_each_other_whoever_is_allowed() {
        for (guest, who) in [
            ("192.168.64.7", "192.168.64.2"),
            ("192.168.64.7", "::ffff:192.168.64.2"),
            ("192.168.64.7", "192.168.64.7"),
            // One of the two networks was taken when the other guest came.
            ("192.168.64.7", "192.168.65.2"),
            ("192.168.66.7", "192.168.64.2"),
            // Guests of this host are given another network.
            ("10.37.1.7", "10.37.1.2"),
            ("192.168.64.7", "fe80::9"),
        ] {
            assert!(
                !admits(neighbours(guest.parse().unwrap()), who),
                "{who} reads of {guest}"
            );
        }
        for who in ["192.168.1.9", "10.1.2.3", "100.64.0.7", "203.0.113.9"] {
            assert!(admits(neighbours(Ipv4Addr::new(192, 168, 64, 7)), who), "{who}");
        }
        let emulated = Ipv4Addr::new(127, 64, 0, 7);
        assert!(admits(neighbours(emulated), "127.0.0.1"));
        assert!(!admits(neighbours(emulated), "127.64.0.7"));
    }

    #[test]
    fn guests_read_nothing_of_each_other_over_ipv6_either() {
        let guest = Ipv4Addr::new(192, 168, 64, 7);
        let card = around(guest, USUAL, Some(ranges(&["fd3c:5f11::1/64"])));
        assert!(!admits(card.clone(), "fd3c:5f11::9"));
        assert!(admits(card, "fd7a:115c:a1e0::7"), "the tailnet is elsewhere");
        let unknown = around(guest, USUAL, None);
        assert!(!admits(unknown.clone(), "fd3c:5f11::9"));
        assert!(admits(unknown, "2001:db8::1"));
    }

    #[test]
    fn a_wide_network_is_taken_as_the_card_has_it() {
        let guest = Ipv4Addr::new(10, 37, 1, 7);
        assert!(!admits(around(guest, 22, None), "10.37.3.2"));
        assert!(admits(around(guest, 22, None), "10.37.4.2"));
    }
}
