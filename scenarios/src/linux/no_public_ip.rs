//! An Instance without a public address could not fetch a single package.

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::ListParams;
use russet_stages::macs::Fleet;
use russet_testkit::wait::{Look, PATIENCE};
use serde_json::{Value, json};

use super::{gone, instances, machines, servers_of, until};
use crate::{Play, Scenario, Stage, promise};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "no-public-ip",
    from: "S4",
    what_happened: "no public address was asked for, so there was none, and the node could not fetch its packages",
    must_hold: "a dynamic IPv4 address is part of every order; the server has it once it runs, and it goes with the server",
    without: Some(include_str!("no_public_ip.without.patch")),
    play: Play::Fleet(run),
};

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let Stage { world: fleet, narrator } = stage;
        narrator.step("a machine whose server boots");
        let handle = fleet.sim.handle();
        let volumes = handle.volumes().len();
        let yard = fleet.yard("public-ip", 0).await?;
        instances(&yard).await?;
        let server = crate::until("its server to run", PATIENCE, || async {
            let all = machines(&yard).list(&ListParams::default()).await?.items;
            let machine = all.first().context("there is no machine yet")?;
            let servers = servers_of(fleet, machine);
            let running = servers
                .into_iter()
                .find(|server| server.get("state") == Some(&json!("running")));
            Ok(running.map_or_else(|| Look::not_yet(json!(machine.status)), Look::Done))
        })
        .await?;
        let address = server.pointer("/public_ip/address").and_then(Value::as_str);
        promise!(
            "reaches-the-internet",
            address.is_some(),
            "it runs, is paid for, and has no public address: {server}"
        );
        let dynamic = server.pointer("/public_ip/dynamic");
        promise!("address-is-dynamic", dynamic == Some(&json!(true)), "{server}");
        let address = address.unwrap_or_default();
        narrator.holds(&format!(
            "it runs at {address}, which is dynamic: nobody has to give it back"
        ));
        let told = until(&yard, "the address in its status", |machine| {
            let status = machine.status.as_ref();
            status.is_some_and(|status| status.addresses.iter().any(|known| known.address == address))
        });
        told.await?;
        narrator.holds("the machine's status has it");
        gone(&yard, volumes).await?;
        let left = handle.addresses();
        promise!("none-left", left.is_empty(), "an address is left: {left:?}");
        narrator.holds("deleted, no address is left in the account");
        Ok(())
    }
    .boxed()
}
