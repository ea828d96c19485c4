//! A node without the label that says where its cache is: five ways to ask IPAM for it, and an error that was swallowed.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::ResourceExt as _;
use kube::api::Api;
use russet_api::ScalewayInstanceMachine;
use russet_api::labels::PN_IPV4;
use russet_sim_scaleway::Delays;
use russet_stages::macs::Fleet;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};

use super::{Hand, INSTANCES, IPAM, NETWORK, at, gone, instances, is_linked, paper_node, servers_of, until};
use crate::{Play, Scenario, Stage, promise};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "pn-ipv4-missing",
    from: "S4",
    what_happened: "five mistakes in asking IPAM, and one swallowed error: nodes never got tuist.dev/pn-ipv4",
    must_hold: "the label lands, with the node's own address, from pages of one, among rows of other servers, IPv6 first, and late; until \
                then a condition says so",
    without: Some(include_str!("pn_ipv4.without.patch")),
    play: Play::Fleet(run),
};

/// How long after a network is attached IPAM knows its addresses. No machine is so slow that this passes by itself.
const LATE: Duration = Duration::from_hours(10_000);

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let Stage { world: fleet, narrator } = stage;
        let handle = fleet.sim.handle();
        narrator.step("another server is on the network of the caches; from now on IPAM answers in pages of one");
        another_server(fleet).await?;
        handle.set(|settings| settings.page_cap = Some(1));

        narrator.step("a machine on that network; its Node is there before IPAM knows its address");
        handle.set(|settings| settings.delays.ipam = LATE);
        let volumes = handle.volumes().len();
        let yard = fleet.yard("pn-ipv4", 0).await?;
        instances(&yard).await?;
        let machine = until(&yard, "the machine to have its server", is_linked).await?;
        let name = machine.name_any();
        let spec = json!({
            "providerID": machine.spec.provider_id,
            "taints": [{"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"}],
        });
        let hostname = json!([{"type": "Hostname", "address": name}]);
        paper_node(&yard.client, &name, spec, hostname, 10250).await?;
        let own = address_of(fleet, &machine)?;
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(yard.client.clone());
        let label = async || -> Result<Option<String>> {
            let label = nodes.get(&name).await?.labels().get(PN_IPV4).cloned();
            let (seen, name) = (label.as_deref().unwrap_or(&own), &name);
            promise!(
                "its-own-address",
                seen == own,
                "Node {name} is said to be at {seen}, and is at {own}"
            );
            Ok(label)
        };
        crate::until("the machine to say that it waits", PATIENCE, || async {
            label().await?;
            let machine = super::machines(&yard).get(&name).await?;
            Ok(if says(&machine, PN_IPV4) {
                Look::Done(())
            } else {
                Look::not_yet(json!(machine.status))
            })
        })
        .await?;
        narrator.holds("while IPAM does not know it, a condition of the machine names the label that is missing");
        handle.advance(LATE);
        crate::until("the label", PATIENCE, || async {
            let label = label().await?;
            Ok(if label.is_some() {
                Look::Done(())
            } else {
                Look::not_yet(label)
            })
        })
        .await?;
        narrator.holds(&format!("once IPAM knows it, the Node has {PN_IPV4}={own}"));
        gone(&yard, volumes).await?;
        handle.set(|settings| {
            settings.page_cap = None;
            settings.delays = Delays::default();
        });
        Ok(())
    }
    .boxed()
}

/// A server that is on the network and in IPAM before any machine.
async fn another_server(fleet: &Fleet) -> Result<()> {
    let hand = Hand::of(fleet);
    let network = hand.network(NETWORK).await?;
    let server = hand.order("another-server").await?;
    let nics = format!("{INSTANCES}/{server}/private_nics");
    hand.call("POST", &nics, json!({"private_network_id": network})).await?;
    let rows = format!("{IPAM}?private_network_id={network}");
    wait::until("its addresses in IPAM", PATIENCE, || async {
        let shown = hand.call("GET", &rows, Value::Null).await?;
        Ok(if shown.get("total_count") == Some(&json!(2)) {
            Look::Done(())
        } else {
            Look::not_yet(shown)
        })
    })
    .await
}

/// The address of a machine's server on the network, as the server itself has it.
fn address_of(fleet: &Fleet, machine: &ScalewayInstanceMachine) -> Result<String> {
    let servers = servers_of(fleet, machine);
    let id: russet_sim_scaleway::Id = at(servers.first().context("no server")?, "/id")?.parse()?;
    let row = fleet.sim.handle().linux_box(&id).context("no row")?;
    let leg = row.private.context("the server is on no network")?;
    Ok(leg.address.split('/').next().unwrap_or_default().to_owned())
}

/// Whether a condition of a machine mentions something.
fn says(machine: &ScalewayInstanceMachine, what: &str) -> bool {
    let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice());
    let mut messages = conditions
        .unwrap_or_default()
        .iter()
        .filter_map(|c| c.message.as_deref());
    messages.any(|message| message.contains(what))
}
