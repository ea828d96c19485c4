//! Grants the certificates of our nodes, and nobody else's.
//!
//! kube-controller-manager signs what is approved and asks no questions, so the questions are asked here: does the request come
//! from the token of exactly this machine, or from its node; does the machine exist and stay; is the subject exact; is
//! nothing asked for beyond it. Requests that concern other nodes are left to whoever looks after them. A request that only
//! pretends to be ours is denied with a reason, so that no other approver grants it by mistake.
//!
//! Machines and Nodes are read when a request is judged, not taken from a cache: requests are rare, and a cache that lags
//! could grant a certificate to a machine that was just deleted.

mod judge;
mod request;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::Node as KubeNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::controller::{Action, Config, Error as RuntimeError};
use kube::runtime::{Controller, watcher};
use russet_api::labels::{OS, OS_DARWIN, OS_LINUX};
use russet_api::machine::AddressType;
use russet_api::values::{CidrBlock, ProviderId, ProviderKind};
use russet_api::{ScalewayAppleSiliconMachine, ScalewayElasticMetalMachine, ScalewayInstanceMachine};
use russet_controller::runner::policy::{self, Requeue};
use russet_controller::scope::Scope;
use russet_controller::{Classify, Component, Manager};
use tracing::{debug, info, warn};

use super::Requests;
use crate::linux::kind::LinuxKind;
pub(crate) use judge::undecided;
use judge::{Asked, Host, Known, Node, Sight, Verdict, is_in};

const NAME: &str = "csr-approver";
/// Requests at once.
const CONCURRENCY: u16 = 4;
/// When to look again at a request that cannot be granted yet.
const WAIT: Duration = Duration::from_secs(15);

/// Which names and addresses a host may have beside its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServingNames {
    /// Domains in which a host is known by its own name, such as that of the tailnet.
    pub suffixes: Vec<String>,
    /// What the tailnet gives out. Which of it a host has, only its own agent can say; outside of it nobody is believed.
    pub tailnet: Vec<CidrBlock>,
}

/// A request that could not be judged or decided.
#[derive(Debug, thiserror::Error)]
#[error("failed to {verb}: {}", crate::api_server::brief(source))]
struct Failed {
    verb: &'static str,
    source: Box<kube::Error>,
}

fn failed(verb: &'static str) -> impl FnOnce(kube::Error) -> Failed {
    move |source| Failed {
        verb,
        source: Box::new(source),
    }
}

struct Context {
    client: kube::Client,
    scope: Scope,
    names: ServingNames,
}

/// The approver, as a part of the provider's process. It shows what it sees to whoever has `requests`.
pub fn approver(manager: &Manager, names: ServingNames, requests: Requests) -> Component {
    let context = Arc::new(Context {
        client: manager.client(),
        scope: manager.config().scope.clone(),
        names,
    });
    let check = manager.health().check(NAME);
    check.pass();
    Component::new(NAME, move |stop| async move {
        let api: Api<CertificateSigningRequest> = Api::all(context.client.clone());
        let controller = Controller::new(api, watcher::Config::default());
        requests.show(controller.store());
        controller
            .with_config(Config::default().concurrency(CONCURRENCY))
            .graceful_shutdown_on(stop.cancelled_owned())
            .run(reconcile, retry, context)
            .for_each(|result| {
                match result {
                    Ok(_) => check.pass(),
                    Err(RuntimeError::QueueError(error)) => {
                        warn!(%error, "cannot watch signing requests, trying again");
                        check.fail("cannot watch signing requests");
                    }
                    Err(RuntimeError::ReconcilerFailed(error, object)) => {
                        warn!(%error, request = object.name, "a signing request could not be judged, trying again");
                    }
                    Err(error) => debug!(%error, "signing request"),
                }
                std::future::ready(())
            })
            .await;
        Ok::<_, std::convert::Infallible>(())
    })
}

fn retry(_: Arc<CertificateSigningRequest>, error: &Failed, _: Arc<Context>) -> Action {
    match policy::requeue(&error.source.class(), 1, &mut rand::rng()) {
        Requeue::After(delay) => Action::requeue(delay),
        Requeue::OnChange => Action::await_change(),
    }
}

async fn reconcile(csr: Arc<CertificateSigningRequest>, context: Arc<Context>) -> Result<Action, Failed> {
    let Some(asked) = Asked::read(&csr) else {
        return Ok(Action::await_change());
    };
    let hosts = match asked.node() {
        Some(name) => context.hosts(name).await?,
        None => Vec::new(),
    };
    let node = match hosts.first() {
        Some(host) => {
            let wants_tailnet = asked.wants_tailnet(&context.names.tailnet);
            context.node(&host.name, wants_tailnet).await?
        }
        None => None,
    };
    let known = Known {
        hosts: &hosts,
        sight: match context.scope {
            Scope::Cluster => Sight::Whole,
            Scope::Namespaces(_) => Sight::Partial,
        },
        node: node.as_ref(),
        suffixes: &context.names.suffixes,
        tailnet: &context.names.tailnet,
    };
    let (type_, reason, message) = match asked.judge(&known) {
        Verdict::Ignore => return Ok(Action::await_change()),
        Verdict::Wait(why) => {
            warn!(request = csr.name_any(), why, "a signing request waits");
            return Ok(Action::requeue(WAIT));
        }
        Verdict::Approve(message) => ("Approved", "MachineVerified", message),
        Verdict::Deny { reason, message } => ("Denied", reason, message),
    };
    context.decide(&csr, type_, reason, message.clone()).await?;
    info!(
        request = csr.name_any(),
        decision = type_,
        reason,
        message,
        "decided about a signing request"
    );
    Ok(Action::await_change())
}

impl Context {
    /// The machines of that name, in all namespaces in scope.
    async fn hosts(&self, name: &str) -> Result<Vec<Host>, Failed> {
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let mut hosts = Vec::new();
        for place in self.scope.places() {
            let machines: Api<ScalewayAppleSiliconMachine> = place.api(&self.client);
            let found = machines.list(&named).await.map_err(failed("look for the machine"))?;
            hosts.extend(found.items.into_iter().map(|machine| host(&machine)));
            let machines: Api<ScalewayInstanceMachine> = place.api(&self.client);
            let found = machines.list(&named).await.map_err(failed("look for the machine"))?;
            hosts.extend(found.items.iter().map(linux_host));
            let machines: Api<ScalewayElasticMetalMachine> = place.api(&self.client);
            let found = machines.list(&named).await.map_err(failed("look for the machine"))?;
            hosts.extend(found.items.iter().map(linux_host));
        }
        Ok(hosts)
    }

    async fn node(&self, name: &str, wants_tailnet: bool) -> Result<Option<Node>, Failed> {
        let nodes: Api<KubeNode> = Api::all(self.client.clone());
        let Some(live) = nodes.get_opt(name).await.map_err(failed("read the Node"))? else {
            return Ok(None);
        };
        let mut tailnet = Vec::new();
        if wants_tailnet {
            // The newest version: one who has just reported an address must not be overlooked.
            let all = nodes.list(&ListParams::default()).await;
            let all = all.map_err(failed("list Nodes"))?.items;
            let mut others: BTreeSet<IpAddr> = all
                .iter()
                .filter(|node| node.name_any() != name)
                .flat_map(addresses)
                .collect();
            others.extend(self.addresses_of_others(name).await?);
            tailnet = addresses(&live)
                .filter(|ip| is_in(&self.names.tailnet, *ip) && !others.contains(ip))
                .collect();
        }
        Ok(Some(Node {
            os: live.labels().get(OS).cloned(),
            provider_id: live.spec.and_then(|spec| spec.provider_id).filter(|id| !id.is_empty()),
            tailnet,
        }))
    }

    /// What Scaleway gave to machines of another name. A node that reports such an address lies, whatever the tailnet gives out.
    async fn addresses_of_others(&self, name: &str) -> Result<Vec<IpAddr>, Failed> {
        let others = ListParams::default().fields(&format!("metadata.name!={name}"));
        let mut found = Vec::new();
        for place in self.scope.places() {
            let machines: Api<ScalewayAppleSiliconMachine> = place.api(&self.client);
            let macs = machines.list(&others).await.map_err(failed("list machines"))?;
            found.extend(macs.items.iter().map(host));
            let machines: Api<ScalewayInstanceMachine> = place.api(&self.client);
            let instances = machines.list(&others).await.map_err(failed("list machines"))?;
            found.extend(instances.items.iter().map(linux_host));
            let machines: Api<ScalewayElasticMetalMachine> = place.api(&self.client);
            let metals = machines.list(&others).await.map_err(failed("list machines"))?;
            found.extend(metals.items.iter().map(linux_host));
        }
        let addresses = found.iter().flat_map(|host| &host.addresses);
        Ok(addresses.filter_map(|address| address.parse().ok()).collect())
    }

    /// Writes a decision under the version that was judged, so that nothing can be changed in between.
    async fn decide(
        &self,
        csr: &CertificateSigningRequest,
        type_: &str,
        reason: &str,
        message: String,
    ) -> Result<(), Failed> {
        let mut decided = csr.clone();
        let now = Time(jiff::Timestamp::now());
        let status = decided.status.get_or_insert_default();
        status
            .conditions
            .get_or_insert_default()
            .push(CertificateSigningRequestCondition {
                type_: type_.to_owned(),
                status: "True".to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message),
                last_update_time: Some(now),
                ..CertificateSigningRequestCondition::default()
            });
        decided.metadata.managed_fields = None;
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let result = requests
            .replace_subresource("approval", &csr.name_any(), &PostParams::default(), &decided)
            .await;
        match result {
            Ok(_) => Ok(()),
            // Withdrawn meanwhile.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(failed("decide about the signing request")(error)),
        }
    }
}

fn host(machine: &ScalewayAppleSiliconMachine) -> Host {
    let status = machine.status.as_ref();
    Host {
        name: machine.name_any(),
        uid: machine.uid().unwrap_or_default(),
        deleting: machine.metadata.deletion_timestamp.is_some(),
        provider_id: machine.spec.provider_id.clone().or_else(|| expected_id(machine)),
        addresses: status
            .map(|status| status.addresses.iter().map(|a| a.address.clone()).collect())
            .unwrap_or_default(),
        os: OS_DARWIN,
        more_to_come: false,
    }
}

/// What the agent of a host calls its Node before the spec says so: its server is known from the claim on, the spec only once all is set up.
fn expected_id(machine: &ScalewayAppleSiliconMachine) -> Option<String> {
    let server = machine.status.as_ref()?.server_id.as_deref()?.parse().ok()?;
    let zone = machine.spec.zone_or_default().ok()?;
    Some(ProviderId::new(ProviderKind::AppleSilicon, zone, server).to_string())
}

fn linux_host<K: LinuxKind>(machine: &K) -> Host {
    let status = machine.status();
    let private = status
        .addresses
        .iter()
        .any(|known| known.type_ == AddressType::InternalIp);
    Host {
        name: machine.name_any(),
        uid: machine.uid().unwrap_or_default(),
        deleting: machine.meta().deletion_timestamp.is_some(),
        provider_id: machine.provider_id().ok().flatten().map(|id| id.to_string()),
        addresses: status.addresses.iter().map(|known| known.address.clone()).collect(),
        os: OS_LINUX,
        // IPAM tells the private address some time after the kubelet has it.
        more_to_come: status.private_network_id.is_some() && !private,
    }
}

fn addresses(node: &KubeNode) -> impl Iterator<Item = IpAddr> {
    let listed = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    listed.filter_map(|address| address.address.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use russet_api::apple_silicon_machine::{ScalewayAppleSiliconMachineSpec, ScalewayAppleSiliconMachineStatus};

    const SERVER: &str = "3a3f7d0e-7f5e-4d3f-9b1a-0c6f0f6a7b11";

    /// Each Mac's first request for a serving certificate was told that its own Node belonged to something else, and waited for 15 s.
    #[test]
    fn the_node_of_a_mac_is_its_own_from_the_claim_on() {
        let mut machine = ScalewayAppleSiliconMachine::new("mac-1", ScalewayAppleSiliconMachineSpec::default());
        assert_eq!(host(&machine).provider_id, None, "nothing is claimed");
        machine.status = Some(ScalewayAppleSiliconMachineStatus {
            server_id: Some(SERVER.to_owned()),
            ..ScalewayAppleSiliconMachineStatus::default()
        });
        let claimed = format!("scw-applesilicon://fr-par-1/{SERVER}");
        assert_eq!(host(&machine).provider_id, Some(claimed));
        machine.spec.provider_id = Some("scw-applesilicon://fr-par-3/other".to_owned());
        assert_eq!(
            host(&machine).provider_id,
            machine.spec.provider_id,
            "what binds the Machine wins"
        );
    }
}
