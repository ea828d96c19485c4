//! A header that came in pieces span a core, and a body that stopped coming held its place for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use russet_conformance::http::wire::Wire;
use russet_conformance::http::{Caller, Server};
use russet_stages::kura::{Node, Options, Program};
use russet_testkit::wait::{PATIENCE, until_true};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::{Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "header-drip",
    from: "F kura 3.3",
    what_happened: "a header in pieces burnt a core, a stalled body was still open after minutes, and honest clients waited behind them",
    must_hold: "byte-by-byte headers and stalled bodies are cut off by their deadline, and everybody else is served meanwhile",
    without: None,
    play: Play::Cache(play),
};

/// As many as the naive server has places.
const PLACES: usize = 16;
/// Far more than kura has threads.
const CROWD: usize = 200;
const DRIP: Duration = Duration::from_millis(50);

fn play<'a>(stage: &'a mut Stage<'_, Program>) -> BoxFuture<'a, Result<()>> {
    async move {
        stage.step(format!(
            "a naive server: {PLACES} places, one per connection, each kept until its request is complete"
        ));
        let naive = Naive::start().await?;
        let target = Server::new(&naive.url)?;
        answered(&target).await.context("the naive server does not even serve one client")?;
        let mut drippers = Vec::new();
        for _ in 0..PLACES {
            let mut wire = target.wire().await?;
            wire.write("GET / HTTP/1.1\r\nX-Drip: ").await;
            drippers.push(wire);
        }
        until_true("every place to be taken", PATIENCE, || async { Ok(naive.free() == 0) }).await?;
        let starved = tokio::time::timeout(Duration::from_secs(2), answered(&target)).await;
        ensure!(starved.is_err(), "the staged fault did not bite: an honest client was served");
        stage.bites(format!(
            "{PLACES} connections send a header a byte at a time, and nobody else gets an answer, for as long as they like"
        ));
        drop(drippers);

        stage.step("a real kura that gives a header, and a body that does not move, two seconds");
        let home = tempfile::tempdir()?;
        let patience = ["--http-header-timeout-ms", "2000", "--http-stall-timeout-ms", "2000"];
        let options = Options::default().args(patience);
        let node = Node::start(&stage.world, home.path(), &options).await?;
        let server = Server::new(&node.url())?;

        stage.step(format!(
            "{CROWD} connections drip headers, {CROWD} more send half a body and stop; honest clients build on"
        ));
        let over = AtomicBool::new(false);
        let crowd = async {
            let drippers = try_join_all((0..CROWD).map(|_| drip(&server)));
            let stalled = try_join_all((0..CROWD).map(|number| stall(&server, number)));
            let ended = tokio::try_join!(drippers, stalled);
            over.store(true, Ordering::Relaxed);
            ended
        };
        let (_, requests) = tokio::try_join!(crowd, honest(&server, &over))?;
        ensure!(requests > 0, "no honest request was served in time");
        stage.holds(format!(
            "{requests} honest requests were served, one after the other, before the last of them was gone"
        ));
        stage.holds(format!("all {} were cut off by the server", 2 * CROWD));

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
    tokio::time::timeout(PATIENCE, dripping)
        .await
        .context("a dripping header was never cut off")?
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
    while !over.load(Ordering::Relaxed) {
        let body = server.body(1000 + requests);
        let target = server.blob(&body);
        caller.store(&target, &body).await?;
        caller.get(&target).await?.expect(200)?.expect_body(&body)?;
        requests += 2;
    }
    Ok(requests)
}

async fn answered(server: &Server) -> Result<()> {
    server.anonymous().get("/").await?.expect(200)?;
    Ok(())
}

/// One place per connection, as a pool of threads has them: taken at accept, given back when a request was read and answered.
struct Naive {
    url: String,
    places: Arc<Semaphore>,
    server: tokio::task::JoinHandle<()>,
}

impl Naive {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let places = Arc::new(Semaphore::new(PLACES));
        let pool = Arc::clone(&places);
        let server = tokio::spawn(async move {
            loop {
                let Ok(place) = Arc::clone(&pool).acquire_owned().await else {
                    return;
                };
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                tokio::spawn(async move {
                    let _place = place;
                    let _ = one(stream).await;
                });
            }
        });
        Ok(Self { url, places, server })
    }

    fn free(&self) -> usize {
        self.places.available_permits()
    }
}

impl Drop for Naive {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn one(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .await
}
