//! The ways into a container, for its hooks and probes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{LifecycleHandler, Pod, Probe};
use russet_pod::probe::{self, Answer, Dial, Inside, Target, Word};
use russet_pod::spec;
use russet_vm::{ExecRequest, PodVm, Runtime, VmName, collect};

use crate::forward;
use crate::pods::guest;

/// How much of what a program says is kept.
const WORDS: u64 = 10 * 1024;

/// The VM of a container, to run programs in.
pub(super) struct Within {
    runtime: Arc<dyn Runtime>,
    name: VmName,
    /// Where it is; without an address nothing of it can be dialled.
    address: Option<Ipv4Addr>,
}

impl Within {
    pub(super) fn new(runtime: &Arc<dyn Runtime>, vm: &PodVm, address: Option<Ipv4Addr>) -> Self {
        Self {
            runtime: Arc::clone(runtime),
            name: VmName::from(vm.clone()),
            address,
        }
    }

    /// Runs a hook. `Err` says why it failed.
    pub(super) async fn hook(&self, pod: &Pod, container: &str, hook: &LifecycleHandler) -> Result<(), String> {
        let (_, container) = spec::container(pod, container).ok_or("the Pod has no such container")?;
        if hook.http_get.is_some() && self.address.is_none() {
            return Err("the virtual machine has no address".to_owned());
        }
        probe::run_hook(hook, self.target(container)).await
    }

    /// Asks a probe.
    pub(super) async fn ask(&self, pod: &Pod, container: &str, probe: &Probe, timeout: std::time::Duration) -> Answer {
        let Some((_, container)) = spec::container(pod, container) else {
            return Answer::Unknown("the Pod has no such container".to_owned());
        };
        if needs_address(probe) && self.address.is_none() {
            return Answer::Unknown("the virtual machine has no address".to_owned());
        }
        probe::ask(probe, timeout, self.target(container)).await
    }

    fn target<'a>(&'a self, container: &'a k8s_openapi::api::core::v1::Container) -> Target<'a> {
        Target {
            container,
            address: IpAddr::V4(self.address.unwrap_or(Ipv4Addr::UNSPECIFIED)),
            dial: &Guest,
            inside: self,
        }
    }
}

/// Whether a probe is asked by dialling the VM. Before that has an address, nothing can be said about its container.
pub(super) fn needs_address(probe: &Probe) -> bool {
    probe.exec.is_none()
}

/// The way to a guest, through the card its network is on.
struct Guest;

impl Dial for Guest {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, std::io::Result<tokio::net::TcpStream>> {
        Box::pin(async move {
            match host.parse::<IpAddr>() {
                Ok(address) => forward::dial::dial((address, port).into()).await,
                Err(_) => tokio::net::TcpStream::connect((host, port)).await,
            }
        })
    }
}

impl Inside for Within {
    fn run<'a>(&'a self, command: &'a [String]) -> BoxFuture<'a, Result<Word, String>> {
        Box::pin(async move {
            let request = ExecRequest {
                words: guest::enter(command.to_vec()),
                ..ExecRequest::default()
            };
            let exec = self.runtime.exec(&self.name, request).await;
            let outcome = collect(exec.map_err(|error| error.to_string())?, b"", WORDS).await;
            let outcome = outcome.map_err(|error| error.to_string())?;
            let output = [outcome.stdout, outcome.stderr].concat();
            Ok(Word {
                code: outcome.code,
                output: String::from_utf8_lossy(&output).into_owned(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use russet_vm::{Synthetic, synthetic};
    use serde_json::json;
    use std::time::Duration;

    /// A healthy container with a liveness probe of one failure was ended in its first second: its VM had no address yet, which
    /// counted against it.
    #[tokio::test]
    async fn a_probe_that_cannot_be_asked_yet_says_nothing_about_the_container() {
        let runtime: Arc<dyn Runtime> = Arc::new(Synthetic::new(synthetic::Host::new(synthetic::Settings::default())));
        let vm = PodVm::new("ci", "job", "main", "0b5d7f3c", 0).unwrap();
        let within = Within::new(&runtime, &vm, None);
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [{"name": "main"}]}})).unwrap();
        for how in [
            json!({"httpGet": {"port": 80}}),
            json!({"tcpSocket": {"port": 80}}),
            json!({"grpc": {"port": 80}}),
        ] {
            let probe: Probe = serde_json::from_value(how.clone()).unwrap();
            assert!(needs_address(&probe), "{how}");
            let answer = within.ask(&pod, "main", &probe, Duration::from_secs(1)).await;
            assert!(matches!(answer, Answer::Unknown(_)), "{how} {answer:?}");
        }
        let exec: Probe = serde_json::from_value(json!({"exec": {"command": ["true"]}})).unwrap();
        assert!(!needs_address(&exec), "it is asked through the guest's agent");
    }
}
