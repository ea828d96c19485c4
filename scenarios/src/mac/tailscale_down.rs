//! An agent that is meant for the tailnet alone, on a host that has none at the moment.
//!
//! Taken out to see it fail: the agent took the first address of the host when `tailscale ip` gave none. It went on running, and the
//! story ended with "waited 90s for the agent to give up again and again".

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_bootstrap::mac::Fleet;
use russet_sim_mac::macos::Faults;
use russet_testkit::wait::{self, Look, PATIENCE};

use super::bench::plain;
use super::program::agent;
use super::{Bench, JOB, Mini, PROGRAM};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "tailscale-down-no-fallback",
    from: "S0",
    what_happened: "a silent fallback to the public interface would have broken the boundary between hosts and the internet",
    must_hold: "tart-kubelet with --node-ip-source=tailscale exits non-zero without a tailnet, and nothing listens on a public address",
    without: None,
    play: Play::Plain(run),
};

/// Starts that must have ended before anybody believes that it always ends so.
const STARTS: u32 = 3;
/// Where the naive agent finds the real one.
const BESIDE: &str = "/usr/local/libexec/tart-kubelet";
/// The real agent, by somebody who wants it to serve in any case.
const FALLS_BACK: &str = r#"#!/bin/bash
/usr/local/bin/tailscale ip -4 >/dev/null 2>&1 || set -- "${@/--node-ip-source=tailscale/--node-ip=$(ipconfig getifaddr en0)}"
exec /usr/local/libexec/tart-kubelet "$@"
"#;

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> BoxFuture<'a, Result<()>> {
    async move {
        stage.step(
            "an emulated Mac on a tailnet; its launchd runs the real tart-kubelet with --node-ip-source=tailscale",
        );
        let bench = Bench::with(1).await?;
        let mini = bench.mini(0).await?;
        let ports = Ports::pick()?;
        naive(stage, &bench, &mini, ports).await?;
        ours(stage, &bench, &mini, ports).await
    }
    .boxed()
}

/// Of metrics and probes. Macs share the network of this machine.
#[derive(Clone, Copy)]
struct Ports(u16, u16);

impl Ports {
    /// Two that are free everywhere, from where the system takes none by itself.
    fn pick() -> Result<Self> {
        let first = 20_000 + u16::try_from(std::process::id() % 10_000)?;
        let mut free =
            (first..32_000).filter(|port| std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port)).is_ok());
        let mut next = || free.next().context("no port is free");
        Ok(Self(next()?, next()?))
    }

    fn fleet(self, bench: &Bench, program: &std::path::Path) -> Result<Fleet> {
        let mut fleet = plain(bench.artifact(program)?);
        fleet.tailnet = Some(bench.tailnet()?);
        fleet.agent.tailnet_only = true;
        fleet.agent.extra = vec![
            format!("--metrics-bind-address=:{}", self.0),
            format!("--health-probe-bind-address=:{}", self.1),
        ];
        Ok(fleet)
    }

    /// Where somebody listens on either.
    fn listeners(self) -> Result<Vec<SocketAddr>> {
        let mut found = Vec::new();
        for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let table = std::fs::read_to_string(path).with_context(|| format!("failed to read {path}"))?;
            found.extend(table.lines().filter_map(listener));
        }
        found.retain(|address| [self.0, self.1].contains(&address.port()));
        found.sort();
        Ok(found)
    }

    /// Waits until somebody listens on both ports of exactly this address.
    async fn until_only_on(self, address: IpAddr) -> Result<()> {
        let mut wanted = [self.0, self.1].map(|port| SocketAddr::new(address, port));
        wanted.sort();
        wait::until("the agent to listen on the tailnet", PATIENCE, || async {
            let found = self.listeners()?;
            Ok(if found == wanted {
                Look::Done(())
            } else {
                Look::not_yet(found)
            })
        })
        .await
    }
}

/// A line of the kernel's table, if it is of somebody who listens.
fn listener(line: &str) -> Option<SocketAddr> {
    let mut words = line.split_whitespace().skip(1);
    let (address, port) = words.next()?.split_once(':')?;
    let listens = words.nth(1)? == "0A";
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
    listens.then(|| SocketAddr::new(address, port))
}

/// Whether the metrics answer there.
async fn shows_metrics(address: IpAddr, port: u16) -> Result<bool> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let url = format!("http://{}/metrics", SocketAddr::new(address, port));
    Ok(client
        .get(url)
        .send()
        .await
        .is_ok_and(|answer| answer.status().is_success()))
}

async fn naive(stage: &mut Stage<'_, ()>, bench: &Bench, mini: &Mini, ports: Ports) -> Result<()> {
    stage.step("a naive agent takes another address when the tailnet has none for it; then tailscaled loses its own");
    let beside = mini.mac().await?.root().join(BESIDE.trim_start_matches('/'));
    if let Some(folder) = beside.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::copy(agent()?, &beside)?;
    let wrapper = bench.path("naive");
    super::bench::put(&wrapper, FALLS_BACK.as_bytes())?;
    mini.set_up(&ports.fleet(bench, &wrapper)?).await?;
    mini.mac().await?.set_faults(|faults| faults.tailscale_down = true);
    mini.root(&format!("launchctl kickstart -k {JOB}")).await?;
    let public = mini.server()?.address;
    wait::until("its metrics on the public address", PATIENCE, || async {
        Ok(if shows_metrics(public, ports.0).await? {
            Look::Done(())
        } else {
            Look::not_yet(ports.listeners()?)
        })
    })
    .await?;
    stage.bites(format!(
        "its metrics answer on {public}, its public address, to whoever asks"
    ));
    mini.mac().await?.set_faults(|faults| *faults = Faults::default());
    Ok(())
}

fn runs(said: &str) -> u32 {
    let mut lines = said.lines().filter_map(|line| line.trim().strip_prefix("runs = "));
    lines.next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

async fn ours(stage: &mut Stage<'_, ()>, bench: &Bench, mini: &Mini, ports: Ports) -> Result<()> {
    stage.step("the tailnet is back, and our plan brings our agent");
    mini.set_up(&ports.fleet(bench, &agent()?)?).await?;
    let mac = mini.mac().await?;
    let said = mini.root("/usr/local/bin/tailscale ip -4").await?;
    let tailnet: IpAddr = said.trim().parse().with_context(|| format!("no address: {said}"))?;
    ports.until_only_on(tailnet).await?;
    let public = mini.server()?.address;
    ensure!(
        shows_metrics(tailnet, ports.0).await? && !shows_metrics(public, ports.0).await?,
        "the metrics are not where they should be"
    );
    stage.holds(format!(
        "it listens on {tailnet}, its address on the tailnet, and nowhere else"
    ));

    stage.step("the address is lost again, and the agent restarts");
    mac.set_faults(|faults| faults.tailscale_down = true);
    mini.root(&format!("launchctl kickstart -k {JOB}")).await?;
    let began = runs(&mini.job().await?);
    mini.until_job("the agent to give up again and again", |said| {
        said.contains("last exit code = 1") && runs(said) >= began + STARTS
    })
    .await?;
    let listeners = ports.listeners()?;
    ensure!(listeners.is_empty(), "somebody listens on {listeners:?}");
    ensure!(!shows_metrics(public, ports.0).await?, "the metrics are public");
    let log = mini.root("cat /var/log/tart-kubelet.log").await?;
    let last = log.lines().rev().find(|line| line.starts_with("tart-kubelet: "));
    let last = last.context("the agent does not say why it ends")?;
    ensure!(last.contains("--node-ip-source=tailscale"), "{last}");
    stage.holds(format!(
        "every start of {PROGRAM} ends with status 1, nothing listens anywhere, and it says: {last}"
    ));
    mac.set_faults(|faults| *faults = Faults::default());
    ports.until_only_on(tailnet).await?;
    stage.holds("once the tailnet is back launchd has it serve again, there and nowhere else");
    Ok(())
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
            let found = Ports(ours.port(), 0).listeners().unwrap();
            assert!(found.contains(&ours), "{ours} is not in {found:?}");
        }
        assert_eq!(listener("  sl  local_address rem_address   st"), None);
    }
}
