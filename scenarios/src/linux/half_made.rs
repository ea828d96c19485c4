//! An Instance was made, attached and started in one go; what failed half-way was made again, and both were paid.

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::ListParams;
use russet_sim_scaleway::{Act, Fault};
use russet_stages::macs::Fleet;
use serde_json::json;

use super::{LONG, gone, instances, is_linked, machines, servers_of};
use crate::{Play, Scenario, Stage, promise, until};
use russet_testkit::wait::Look;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "half-made-instance",
    from: "S4",
    what_happened: "create, attach and power-on were one step, and each failure half-way left a server that was paid for",
    must_hold: "an order that is carried out without an answer and a network that is refused at first end in one server per machine, \
                and in none when it is gone",
    without: Some(include_str!("half_made.without.patch")),
    play: Play::Fleet(run),
};

const ORDERS: &str = "/instance/v1/zones/*/servers";
const NICS: &str = "/instance/v1/zones/*/servers/*/private_nics";

fn run<'a>(stage: &'a mut Stage<'_, Fleet>) -> BoxFuture<'a, Result<()>> {
    async move {
        let Stage { world: fleet, narrator } = stage;
        narrator.step(
            "a machine whose order is carried out without an answer, and whose network cannot be attached at first",
        );
        let handle = fleet.sim.handle();
        let volumes = handle.volumes().len();
        handle.inject(Fault::new("POST", ORDERS, Act::Status(502)).after_effect());
        handle.inject(Fault::new("POST", NICS, Act::TooManyRequests { retry_after: 1 }).times(2));
        let yard = fleet.yard("half-made", 0).await?;
        instances(&yard).await?;
        let machine = until("the machine to have its server", LONG, || async {
            let all = machines(&yard).list(&ListParams::default()).await?.items;
            let machine = all.into_iter().next().context("there is no machine yet")?;
            let servers = servers_of(fleet, &machine);
            promise!(
                "one-server",
                servers.len() <= 1,
                "{} servers for one machine: {servers:?}",
                servers.len()
            );
            Ok(if is_linked(&machine) {
                Look::Done(machine)
            } else {
                Look::NotYet(json!(machine.status).to_string())
            })
        })
        .await?;
        let ordered = handle.calls("POST", ORDERS);
        promise!("one-server", ordered == 1, "it was ordered {ordered} times");
        narrator.holds(
            "the server whose order was never answered was found by its tag; it was ordered once, attached and started",
        );
        gone(&yard, volumes).await?;
        let left = servers_of(fleet, &machine);
        promise!("none-left", left.is_empty(), "{left:?}");
        narrator.holds("deleted, it leaves neither server nor volume");
        Ok(())
    }
    .boxed()
}
