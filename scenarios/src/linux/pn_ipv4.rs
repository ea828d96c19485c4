//! Five ways to ask IPAM for an address and not get it, and an error that nobody saw.
//!
//! With the first row of IPAM for the address, whichever family it is of, it ends with a Node that never gets the label.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
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

use super::{Hand, INSTANCES, IPAM, NETWORK, ZONE, at, gone, instances, is_linked, paper_node, servers_of, until};
use crate::{Narrator, Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "pn-ipv4-missing",
    from: "S4",
    what_happened: "five mistakes in asking IPAM, and one swallowed error: nodes never got tuist.dev/pn-ipv4",
    must_hold: "the label lands with pages of one, upper-case MACs, IPv6 first and rows that come late; until then a condition says so",
    without: None,
    play: Play::Fleet(run),
};

/// How long after a network is attached IPAM knows its addresses. No machine is so slow that this passes by itself.
const LATE: Duration = Duration::from_hours(10_000);

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let Stage { world: fleet, narrator } = stage;
        let handle = fleet.sim.handle();
        // Not before the story lets that time pass.
        handle.set(|settings| settings.delays.ipam = LATE);
        naive(fleet, &mut **narrator).await?;
        ours(fleet, &mut **narrator).await?;
        handle.set(|settings| {
            settings.page_cap = None;
            settings.delays = Delays::default();
        });
        Ok(())
    }
    .boxed()
}

async fn naive(fleet: &Fleet, narrator: &mut dyn Narrator) -> Result<()> {
    narrator.step("an Instance on the network of the caches, and a naive client that wants its address");
    let hand = Hand::of(fleet);
    let network = hand.network(NETWORK).await?;
    let server = hand.order("naive-cache", json!({})).await?;
    fleet.sim.handle().set(|settings| settings.page_cap = Some(1));
    let nics = format!("{INSTANCES}/{server}/private_nics");
    let made = hand.call("POST", &nics, json!({"private_network_id": network})).await?;
    let nic = format!("{nics}/{}", at(&made, "/private_nic/id")?);
    let mac = wait::until("the card to have an address", PATIENCE, || async {
        let shown = hand.get(&nic).await?;
        let mac = at(&shown, "/private_nic/mac_address")?;
        Ok(if mac.is_empty() {
            Look::not_yet(&shown)
        } else {
            Look::Done(mac.to_owned())
        })
    })
    .await?;
    let list = format!("{IPAM}?private_network_id={network}");

    let shown = hand.get(&list).await?;
    ensure!(rows(&shown).is_empty(), "the staged fault did not bite: {shown}");
    narrator.bites("asked at once, IPAM has no rows yet");
    let (status, answer) = hand.send("GET", &format!("{list}&zonal={ZONE}"), Value::Null).await?;
    ensure!(status == 400, "the staged fault did not bite: {status} {answer}");
    narrator.bites(&format!("with the zone beside the network it refuses: {answer}"));
    fleet.sim.handle().advance(LATE);
    let shown = wait::until("the rows", PATIENCE, || async {
        let shown = hand.get(&list).await?;
        Ok(if rows(&shown).is_empty() {
            Look::not_yet(shown)
        } else {
            Look::Done(shown)
        })
    })
    .await?;
    let first = rows(&shown).into_iter().next().context("no row")?;
    let total = shown.get("total_count").and_then(Value::as_u64);
    ensure!(
        total == Some(2) && rows(&shown).len() == 1,
        "the staged fault did not bite: {shown}"
    );
    narrator.bites("the first page has one of two rows");
    ensure!(
        first.get("is_ipv6") == Some(&json!(true)),
        "the staged fault did not bite: {first}"
    );
    narrator.bites(&format!("which is {}, no IPv4 address", at(&first, "/address")?));
    let told = at(&first, "/resource/mac_address")?;
    ensure!(
        told != mac && told.eq_ignore_ascii_case(&mac),
        "the staged fault did not bite: {told} {mac}"
    );
    narrator.bites(&format!("and whose MAC {told} is not {mac}"));
    Ok(())
}

fn rows(page: &Value) -> Vec<Value> {
    page.get("ips").and_then(Value::as_array).cloned().unwrap_or_default()
}

async fn ours(fleet: &Fleet, narrator: &mut dyn Narrator) -> Result<()> {
    narrator.step("a machine of ours on the same network; its Node is there before IPAM knows its address");
    let handle = fleet.sim.handle();
    let volumes = handle.volumes().len();
    let yard = fleet.yard("pn-ipv4", 0).await?;
    instances(&yard).await?;
    let machine = until(&yard, "the machine to have its server", is_linked).await?;
    let name = machine.name_any();
    let spec = json!({
        "providerID": machine.spec.provider_id,
        "taints": [{"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"}],
    });
    paper_node(
        &yard.client,
        &name,
        spec,
        json!([{"type": "Hostname", "address": name}]),
        10250,
    )
    .await?;
    until(&yard, "the machine to say that it waits", |machine| {
        says(machine, PN_IPV4)
    })
    .await?;
    narrator.holds("while IPAM knows nothing, a condition of the machine names the label that is missing");
    handle.advance(LATE);

    let servers = servers_of(fleet, &machine);
    let id = servers
        .first()
        .and_then(|server| server.get("id"))
        .and_then(Value::as_str);
    let id: russet_sim_scaleway::Id = id.context("no server")?.parse()?;
    let row = handle.linux_box(&id).context("no row")?;
    let leg = row.private.context("the server is on no network")?;
    let address = leg.address.split('/').next().unwrap_or_default().to_owned();
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(yard.client.clone());
    wait::until("the label", PATIENCE, || async {
        let node = nodes.get(&name).await?;
        Ok(if node.labels().get(PN_IPV4) == Some(&address) {
            Look::Done(())
        } else {
            Look::not_yet(node.labels())
        })
    })
    .await?;
    narrator.holds(&format!(
        "once IPAM knows it, the Node has {PN_IPV4}={address}, page by page and in whatever case"
    ));
    gone(&yard, volumes).await
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
