//! Power-off of a server that is off is refused: the deletion never got past it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::ListParams;
use russet_api::ScalewayInstanceMachine;
use russet_sim_scaleway::{Act, Delays, Fault};
use russet_stages::macs::Fleet;
use russet_testkit::wait::Look;
use serde_json::{Value, json};

use super::{CACHE, LONG, gone, instances, machines, servers_of, until};
use crate::{Play, Scenario, Stage, promise};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "delete-stopped-instance",
    from: "S4",
    what_happened: "the release began with a power-off, which a stopped server refuses, and the finalizer stayed for ever",
    must_hold: "the deletion of a server that is stopped, starting or running converges, asks for no power-off that is refused, and leaves \
                nothing that is paid for",
    without: Some(include_str!("delete_stopped.without.patch")),
    play: Play::Fleet(run),
};

/// What the server is doing when its machine is deleted.
const STATES: [&str; 3] = ["stopped", "starting", "running"];

const ACTIONS: &str = "/instance/v1/zones/*/servers/*/action";

/// A boot that does not end by itself while the story looks.
const SLOW: Duration = Duration::from_hours(10_000);

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
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
        // It cannot be started until it is to be deleted.
        handle.inject(Fault::new("POST", ACTIONS, Act::TooManyRequests { retry_after: 1 }).for_ever());
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
    yard.scale(CACHE, 0).await?;
    if doing != "running" {
        let told = |machine: &ScalewayInstanceMachine| machine.metadata.deletion_timestamp.is_some();
        until(&yard, "the machine to be told that it is deleted", told).await?;
        handle.clear_faults();
        handle.set(|settings| settings.delays = Delays::default());
        handle.advance(SLOW);
    }
    crate::until("the machine to be gone", LONG, || async {
        let journal = handle.journal();
        let refused = journal
            .iter()
            .find(|call| call.path.ends_with("/action") && call.status == 400);
        promise!("no-refused-power-off", refused.is_none(), "{doing}: {refused:?}");
        let left = machines(&yard).list(&ListParams::default()).await?.items;
        Ok(match left.first() {
            None => Look::Done(()),
            Some(left) => Look::NotYet(json!(left.status).to_string()),
        })
    })
    .await?;
    gone(&yard, volumes)
        .await
        .context("something is left that is paid for")?;
    narrator.holds(&format!(
        "{doing}: server, address and volume are gone, and so is the machine"
    ));
    Ok(())
}
