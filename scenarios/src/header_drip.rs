//! A header that came in pieces span a core, and a body that stopped coming held its place for ever.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use russet_conformance::http::wire::Wire;
use russet_conformance::http::{Caller, Server};
use russet_stages::kura::{Node, Options, Program};
use russet_testkit::program::serves_this_build;
use russet_testkit::wait::{PATIENCE, until_true};

use super::{Play, Scenario, Stage, promise};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "header-drip",
    from: "F kura 3.3",
    what_happened: "a header in pieces burnt a core, a stalled body was still open after minutes, and honest clients waited behind them",
    must_hold: "byte-by-byte headers and stalled bodies cost no core and are cut off by their deadline; everybody else is served meanwhile",
    without: Some(include_str!("header_drip.without.patch")),
    play: Play::Cache(play),
};

/// Far more than kura has threads.
const CROWD: usize = 100;
const DRIP: Duration = Duration::from_millis(200);
/// What a node gives a header by default.
const HEADER: Duration = Duration::from_secs(30);
/// Far less than the core that such a header once burnt.
const SHARE_OF_A_CORE: f64 = 0.5;

fn play<'a>(stage: &'a mut Stage<'_, Program>) -> BoxFuture<'a, Result<()>> {
    async move {
        stage.step("a kura with nothing but its defaults: 30 s for a header, 60 s for a body that does not move");
        let home = tempfile::tempdir()?;
        let node = Node::start(&stage.world, home.path(), &Options::default()).await?;
        serves_this_build(node.address, stage.world.path()).await?;
        let server = Server::new(&node.url())?;

        stage.step(format!(
            "{CROWD} connections drip headers, {CROWD} more send half a body and stop; honest clients build on"
        ));
        let over = AtomicBool::new(false);
        let (began, before) = (Instant::now(), processor_time(node.pid()?)?);
        let crowd = async {
            let drippers = async {
                let ended = try_join_all((0..CROWD).map(|_| drip(&server))).await?;
                anyhow::Ok((ended, processor_time(node.pid()?)?, began.elapsed()))
            };
            let stalled = try_join_all((0..CROWD).map(|number| stall(&server, number)));
            let ended = tokio::try_join!(drippers, stalled);
            over.store(true, Ordering::Relaxed);
            ended
        };
        let (((_, after, took), _), requests) = tokio::try_join!(crowd, honest(&server, &over))?;
        promise!(
            "honest-clients-are-served",
            requests > 0,
            "no honest request was answered"
        );
        stage.holds(format!(
            "{requests} honest requests were served, one after the other, before the last of them was gone"
        ));
        stage.holds(format!("all {} were cut off by the server", 2 * CROWD));
        let share = after.saturating_sub(before).as_secs_f64() / took.as_secs_f64();
        promise!(
            "a-dripped-header-costs-no-core",
            share < SHARE_OF_A_CORE,
            "kura took {share:.2} of a core for {CROWD} dripping headers"
        );
        stage.holds(format!("meanwhile it took {share:.2} of a core"));

        for number in 0..CROWD {
            server.anonymous().get(&half(&server, number)).await?.expect(404)?;
        }
        stage.holds("no half body was stored");
        until_true("no request to be in flight", PATIENCE, || async {
            let ready = server.anonymous().get("/ready").await?.json()?;
            Ok(ready.get("http_inflight_requests") == Some(&0.into()))
        })
        .await?;
        node.alive()?;
        stage.holds("nothing of them is left: no request in flight");
        Ok(())
    }
    .boxed()
}

/// What a process and its threads took of the processors so far.
fn processor_time(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("no name in the stat of a process")?;
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(
        ticks * 1000 / rustix::param::clock_ticks_per_second(),
    ))
}

/// Sends a byte now and then until the server has had enough.
async fn drip(server: &Server) -> Result<()> {
    let mut wire = server.wire().await?;
    wire.write("GET /up HTTP/1.1\r\nHost: x\r\nX-Drip: ").await;
    let dripping = async {
        let mut pace = tokio::time::interval(DRIP);
        loop {
            tokio::select! {
                closed = wire.rest() => return closed.map(|_| ()),
                _ = pace.tick() => {}
            }
            wire.write("a").await;
        }
    };
    let late = HEADER.mul_f64(1.5);
    let ended = tokio::time::timeout(late, dripping).await;
    promise!(
        "a-dripped-header-is-cut-off",
        ended.is_ok(),
        "it is still taken byte by byte after {late:?}"
    );
    ended?
}

fn half(server: &Server, number: usize) -> String {
    server.gradle(&format!("half-{number}"))
}

/// Sends half of a body and waits for the end.
async fn stall(server: &Server, number: usize) -> Result<()> {
    let mut wire: Wire = server.wire().await?;
    let fields = [("Content-Length", "1000")];
    let head = server.anonymous().head_of("PUT", &half(server, number), &fields);
    wire.write(head).await;
    wire.write([b'x'; 500]).await;
    wire.rest().await.context("a stalled body was never cut off")?;
    Ok(())
}

/// Writes and reads back until the crowd is gone; how many requests were answered before that.
async fn honest(server: &Server, over: &AtomicBool) -> Result<usize> {
    let caller: Caller<'_> = server.anonymous();
    let mut requests = 0;
    let mut pace = tokio::time::interval(DRIP);
    while !over.load(Ordering::Relaxed) {
        let body = server.body(1000 + requests);
        let target = server.blob(&body);
        caller.store(&target, &body).await?;
        caller.get(&target).await?.expect(200)?.expect_body(&body)?;
        requests += 2;
        pace.tick().await;
    }
    Ok(requests)
}
