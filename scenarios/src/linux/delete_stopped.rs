//! Power-off of a server that is off is refused: the deletion never got past it.
//!
//! With a power-off of servers that are off it ends with a machine that stays, refused again and again.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_api::ScalewayInstanceMachine;
use russet_sim_scaleway::{Act, Delays, Fault};
use russet_stages::macs::Fleet;
use serde_json::{Value, json};

use super::{CACHE, Hand, gone, instances, servers_of, until};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "delete-stopped-instance",
    from: "S4",
    what_happened: "the release began with a power-off, which a stopped server refuses, and the finalizer stayed for ever",
    must_hold: "a deletion converges from every state of the server, and leaves nothing that is paid for",
    without: None,
    play: Play::Fleet(run),
};

/// What the server is doing when its machine is deleted.
const STATES: [&str; 3] = ["stopped", "starting", "running"];

/// A boot that does not end by itself while anybody looks.
const SLOW: Duration = Duration::from_hours(10_000);

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let hand = Hand::of(&stage.world);
        stage.step("a naive release of a server that was never started: power-off first");
        let server = hand.order("naive-cache", json!({})).await?;
        let (status, answer) = hand.act(&server, "poweroff").await?;
        ensure!(status >= 400, "the staged fault did not bite: {status} {answer}");
        stage.bites(format!("it is refused with {status}, now and at every retry: {answer}"));
        for state in STATES {
            delete_while(stage, state).await?;
        }
        Ok(())
    }
    .boxed()
}

async fn delete_while(stage: &mut Stage<'_, Fleet>, doing: &str) -> Result<()> {
    let Stage { world: fleet, narrator } = stage;
    narrator.step(&format!("delete a machine whose server is {doing}"));
    let handle = fleet.sim.handle();
    let volumes = handle.volumes().len();
    if doing == "stopped" {
        // It cannot be started, nor stopped: whoever needs an action for a deletion never ends.
        let never = Fault::new(
            "POST",
            "/instance/v1/zones/*/servers/*/action",
            Act::TooManyRequests { retry_after: 1 },
        );
        handle.inject(never.for_ever());
    }
    if doing == "starting" {
        // Until the story lets that time pass.
        handle.set(|settings| settings.delays.instance_boot = SLOW);
    }
    let yard = fleet.yard(doing, 0).await?;
    instances(&yard).await?;
    let is = |machine: &ScalewayInstanceMachine| {
        let servers = servers_of(fleet, machine);
        servers
            .iter()
            .any(|server| server.get("state") == Some(&Value::from(doing)))
    };
    until(&yard, &format!("the server to be {doing}"), is).await?;
    if doing == "starting" {
        yard.scale(CACHE, 0).await?;
        let told = |machine: &ScalewayInstanceMachine| machine.metadata.deletion_timestamp.is_some();
        until(&yard, "the machine to be told that it is deleted", told).await?;
        handle.set(|settings| settings.delays = Delays::default());
        handle.advance(SLOW);
    }
    gone(&yard, volumes).await?;
    handle.clear_faults();
    narrator.holds(&format!(
        "{doing}: server, address and volume are gone, and so is the machine"
    ));
    Ok(())
}
