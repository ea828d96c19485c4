//! An Instance was made, attached and started in one go; what failed half-way was made again, and both were paid.
//!
//! Without the look for a server of the machine's tag it ends with a machine that never has its server: the guard before each
//! order sees the one that is there, and refuses.

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_sim_scaleway::{Act, Fault};
use russet_stages::macs::Fleet;
use serde_json::json;

use super::{Hand, INSTANCES, NETWORK, gone, instances, is_linked, servers_of, until};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "half-made-instance",
    from: "S4",
    what_happened: "create, attach and power-on were one step, and each failure half-way left a server that was paid for",
    must_hold: "whichever call fails, before or after its effect, there is one server per machine, and none when it is gone",
    without: None,
    play: Play::Fleet(run),
};

const NICS: &str = "/instance/v1/zones/*/servers/*/private_nics";

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        naive(stage).await?;
        ours(stage).await
    }
    .boxed()
}

async fn naive(stage: &mut Stage<'_, Fleet>) -> Result<()> {
    let Stage { world: fleet, narrator } = stage;
    narrator
        .step("a naive provider makes an Instance, attaches its network, and starts again when the second call fails");
    let hand = Hand::of(fleet);
    let network = hand.network(NETWORK).await?;
    let handle = fleet.sim.handle();
    handle.inject(Fault::new("POST", NICS, Act::Status(502)));
    for _ in 0..2 {
        let server = hand.order("naive-cache", json!({})).await?;
        let nics = format!("{INSTANCES}/{server}/private_nics");
        let body = json!({"private_network_id": network});
        let (status, _) = hand.send("POST", &nics, body).await?;
        if status < 300 {
            break;
        }
    }
    let made = handle.instances().len();
    ensure!(made == 2, "the staged fault did not bite: {made} servers");
    narrator.bites("two servers have the name of one machine, and both are on the bill");
    Ok(())
}

async fn ours(stage: &mut Stage<'_, Fleet>) -> Result<()> {
    let Stage { world: fleet, narrator } = stage;
    narrator
        .step("a machine whose order is carried out without an answer, and whose network cannot be attached at first");
    let handle = fleet.sim.handle();
    let volumes = handle.volumes().len();
    let orders = handle.calls("POST", "/instance/v1/zones/*/servers");
    handle.inject(Fault::new("POST", "/instance/v1/zones/*/servers", Act::Status(502)).after_effect());
    handle.inject(Fault::new("POST", NICS, Act::TooManyRequests { retry_after: 1 }).times(2));
    let yard = fleet.yard("half-made", 0).await?;
    instances(&yard).await?;
    let machine = until(&yard, "the machine to have its server", is_linked).await?;
    let servers = servers_of(fleet, &machine);
    ensure!(
        servers.len() == 1,
        "{} servers for one machine: {servers:?}",
        servers.len()
    );
    let ordered = handle.calls("POST", "/instance/v1/zones/*/servers") - orders;
    ensure!(ordered == 1, "it was ordered {ordered} times");
    narrator.holds(
        "the server whose order was never answered was found by its tag; it was ordered once, attached and started",
    );
    gone(&yard, volumes).await?;
    ensure!(servers_of(fleet, &machine).is_empty(), "the server is still there");
    narrator.holds("deleted, it leaves neither server nor volume");
    Ok(())
}
