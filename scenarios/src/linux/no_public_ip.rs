//! An Instance without a public address could not fetch a single package.
//!
//! Without the dynamic address in the order it ends with a server that runs, and a machine that says `NoPublicAddress`.

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_stages::macs::Fleet;
use serde_json::{Value, json};

use super::{Hand, gone, instances, is_linked, servers_of, until};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "no-public-ip",
    from: "S4",
    what_happened: "no public address was asked for, so there was none, and the node could not fetch its packages",
    must_hold: "a dynamic IPv4 address is part of every order; the server has it once it runs, and it goes with the server",
    without: None,
    play: Play::Fleet(run),
};

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let Stage { world: fleet, narrator } = stage;
        let hand = Hand::of(fleet);
        narrator.step("a naive order says nothing about addresses");
        let server = hand.order("naive-cache", json!({})).await?;
        hand.act(&server, "poweron").await?;
        let shown = hand.until_running(&server).await?;
        let none = shown.pointer("/server/public_ips").and_then(Value::as_array);
        ensure!(
            none.is_some_and(Vec::is_empty),
            "the staged fault did not bite: {shown}"
        );
        narrator.bites("it runs, is paid for, and reaches nothing: public_ips is empty");

        narrator.step("a machine of ours");
        let handle = fleet.sim.handle();
        let volumes = handle.volumes().len();
        let yard = fleet.yard("public-ip", 0).await?;
        instances(&yard).await?;
        let machine = until(&yard, "the machine to have its server", is_linked).await?;
        let servers = servers_of(fleet, &machine);
        let id = servers
            .first()
            .and_then(|server| server.get("id"))
            .and_then(Value::as_str);
        let shown = hand.until_running(id.context("no server")?).await?;
        let address = shown.pointer("/server/public_ip/address").and_then(Value::as_str);
        let address = address.with_context(|| format!("no public address: {shown}"))?;
        ensure!(
            shown.pointer("/server/public_ip/dynamic") == Some(&json!(true)),
            "{shown}"
        );
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
        ensure!(
            handle.addresses().is_empty(),
            "an address is left: {:?}",
            handle.addresses()
        );
        narrator.holds("deleted, no address is left in the account");
        Ok(())
    }
    .boxed()
}
