//! An agent that is meant for the tailnet alone, on a host that has none at the moment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use russet_sim_mac::macos::Faults;
use russet_testkit::wait::{self, Look, PATIENCE};

use super::vms::Mac;
use super::{JOB, PROGRAM};
use crate::{Play, Scenario, Stage, promise};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "tailscale-down-no-fallback",
    from: "S0",
    what_happened: "a silent fallback to the public interface would have broken the boundary between hosts and the internet",
    must_hold: "on a host of a tailnet the agent exits non-zero as long as there is none, and nothing of it listens on another address",
    without: Some(include_str!("tailscale_down.without.patch")),
    play: Play::Mac(run),
};

/// Starts that must have ended before they count as a rule.
const STARTS: u32 = 3;
/// Where agents have metrics, probes and the kubelet API.
const PORTS: [u16; 3] = [8080, 8081, 10250];

/// A socket of the kernel's table that listens.
#[derive(Debug, PartialEq, Eq)]
struct Listener {
    address: SocketAddr,
    inode: String,
}

impl Listener {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(1);
        let (address, port) = words.next()?.split_once(':')?;
        let listens = words.nth(1)? == "0A";
        let inode = words.nth(5)?.to_owned();
        let port = u16::from_str_radix(port, 16).ok()?;
        let word = |at: usize| {
            u32::from_str_radix(address.get(at..at + 8)?, 16)
                .ok()
                .map(u32::to_ne_bytes)
        };
        let address = if address.len() == 8 {
            IpAddr::V4(Ipv4Addr::from(word(0)?))
        } else {
            let bytes: Vec<u8> = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))
        };
        listens.then(|| Self {
            address: SocketAddr::new(address, port),
            inode,
        })
    }

    /// All of this machine, whose network Macs share.
    fn all() -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let table = std::fs::read_to_string(path).with_context(|| format!("failed to read {path}"))?;
            found.extend(table.lines().filter_map(Self::read));
        }
        Ok(found)
    }
}

/// Where the agent of a Mac listens.
async fn listeners(mac: &Mac) -> Result<Vec<SocketAddr>> {
    let open = "for pid in $(pgrep -f tart-kubelet); do ls -l /proc/$pid/fd; done 2>/dev/null; true";
    let open = mac.mini.root(open).await?;
    let mut found = Listener::all()?;
    found.retain(|listener| open.contains(&format!("socket:[{}]", listener.inode)));
    let mut found: Vec<SocketAddr> = found.into_iter().map(|listener| listener.address).collect();
    found.sort();
    Ok(found)
}

/// Waits until the agent listens on its ports of exactly this address.
async fn until_only_on(mac: &Mac, address: IpAddr) -> Result<()> {
    let wanted = PORTS.map(|port| SocketAddr::new(address, port));
    wait::until("the agent to listen on the tailnet", PATIENCE, || async {
        let found = listeners(mac).await?;
        Ok(if found == wanted {
            Look::Done(())
        } else {
            Look::not_yet(found)
        })
    })
    .await
}

/// Whether the metrics answer there.
async fn shows_metrics(address: IpAddr) -> Result<bool> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let url = format!("http://{}/metrics", SocketAddr::new(address, PORTS[0]));
    Ok(client
        .get(url)
        .send()
        .await
        .is_ok_and(|answer| answer.status().is_success()))
}

/// How often launchd started the agent.
fn runs(said: &str) -> u32 {
    let mut lines = said.lines().filter_map(|line| line.trim().strip_prefix("runs = "));
    lines.next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn run<'a>(stage: &'a mut Stage<'_, Mac>) -> LocalBoxFuture<'a, Result<()>> {
    async move {
        let mac = &stage.world;
        let tailnet = mac.tailnet_address().await?;
        until_only_on(mac, tailnet).await?;
        let public = mac.mini.server()?.address;
        ensure!(
            shows_metrics(tailnet).await? && !shows_metrics(public).await?,
            "the metrics are not where they should be"
        );
        stage.narrator.holds(&format!(
            "the agent listens on {tailnet}, its address on the tailnet, and nowhere else"
        ));

        stage
            .narrator
            .step("tailscaled loses its address, and the agent restarts");
        let emulated = mac.mini.mac().await?;
        emulated.set_faults(|faults| faults.tailscale_down = true);
        mac.mini.root(&format!("launchctl kickstart -k {JOB}")).await?;
        let began = runs(&mac.mini.job().await?);
        let found = wait::until(
            "the agent to give up again and again, or to listen",
            PATIENCE,
            || async {
                let (found, said) = (listeners(mac).await?, mac.mini.job().await?);
                let gives_up = said.contains("last exit code = 1") && runs(&said) >= began + STARTS;
                Ok(if gives_up || !found.is_empty() {
                    Look::Done(found)
                } else {
                    Look::NotYet(said)
                })
            },
        )
        .await?;
        promise!(
            "nothing-listens-without-the-tailnet",
            found.is_empty(),
            "the host has no tailnet, and its agent listens on {found:?}"
        );
        let log = mac.mini.root("cat /var/log/tart-kubelet.log").await?;
        let last = log.lines().rev().find(|line| line.starts_with("tart-kubelet: "));
        let last = last.context("the agent does not say why it ends")?;
        promise!(
            "an-agent-says-that-it-wants-the-tailnet",
            last.contains("--node-ip-source=tailscale"),
            "it says {last}"
        );
        stage.narrator.holds(&format!(
            "every start of {PROGRAM} ends with status 1, nothing of it listens anywhere, and it says: {last}"
        ));
        emulated.set_faults(|faults| *faults = Faults::default());
        until_only_on(mac, tailnet).await?;
        stage
            .narrator
            .holds("once the tailnet is back launchd has it serve again, there and nowhere else");
        Ok(())
    }
    .boxed_local()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_read_from_the_table_of_the_kernel() {
        for address in ["127.0.0.1:0", "127.0.0.7:0", "[::1]:0"] {
            let Ok(socket) = std::net::TcpListener::bind(address) else {
                continue;
            };
            let ours = socket.local_addr().unwrap();
            let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&socket));
            let link = std::fs::read_link(link).unwrap();
            let found = Listener::all().unwrap();
            let found = found.iter().find(|listener| listener.address == ours).unwrap();
            assert_eq!(link.to_str().unwrap(), format!("socket:[{}]", found.inode));
        }
        assert_eq!(Listener::read("  sl  local_address rem_address   st"), None);
    }
}
