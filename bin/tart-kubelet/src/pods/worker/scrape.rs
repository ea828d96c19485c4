//! The port of the Node at which a Pod's metrics are read, if it wants that.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::ResourceExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Worker;
use super::start;
use crate::config::Cidr;
use crate::forward::{Allowed, Forward, Whereabouts};
use crate::pods::directory::Instance;

const SCRAPE: &str = "prometheus.io/scrape";
const PORT: &str = "prometheus.io/port";
/// A port that is taken comes free when another Pod has ended.
const AGAIN: Duration = Duration::from_secs(5);

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
        let annotations = self.pod.annotations();
        let wanted = annotations.get(SCRAPE).is_some_and(|wanted| wanted == "true");
        let port = annotations.get(PORT).and_then(|port| port.parse::<u16>().ok());
        let main = self.machines.iter().find(|(name, _)| start::is_main(&self.pod, name));
        let (Some(port), Some((_, machine)), Some(node)) = (
            port.filter(|port| wanted && *port > 0),
            main,
            (self.host.options.address)(),
        ) else {
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
        let (tell, bound) = watch::channel(None);
        let task = tokio::spawn(async move {
            loop {
                match Forward::bind(SocketAddr::new(node, port)).await {
                    Ok(forward) => {
                        tell.send_replace(Some(node));
                        forward.run(port, allowed, Arc::new(At(instance))).await;
                        return;
                    }
                    Err(error) => {
                        tracing::info!(port, %error, "the metrics of a Pod cannot be read yet; its port is tried again");
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
    let network = if guest.is_loopback() { 32 } else { 24 };
    format!("{guest}/{network}").parse().into_iter().collect()
}
