//! Clients that stop in the middle. Each check waits for the server to cut them off, however long it was told to be patient.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;

use crate::http::Server;
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    header, "stall-header-is-cut-off", "incident header-drip":
        "a header that never ends is cut off";
    drip, "stall-dripping-header-is-cut-off", "incident header-drip":
        "a header that comes byte by byte for ever is cut off all the same, and others are served meanwhile";
    body, "stall-body-is-cut-off", "incident header-drip":
        "a body that stops coming is cut off, and nothing of it is stored";
};

async fn header(server: &Server) -> Result<()> {
    let head = server.writer().head_of("GET", &server.fresh(10).1, &[]);
    let mut wire = server.told(head.trim_end()).await?;
    wire.rest().await.context("a stalled header is kept for ever").map(drop)
}

/// Twenty at once. Each byte starts no new patience: a timeout between bytes would never end this.
async fn drip(server: &Server) -> Result<()> {
    let drippers = (0..20).map(|_| async {
        let mut wire = server.told("GET / HTTP/1.1\r\nHost: x\r\nX-Drip: ").await?;
        let deadline = tokio::time::Instant::now() + server.patience;
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(50));
        loop {
            tokio::select! {
                closed = wire.rest() => return closed.map(|_| ()),
                _ = pace.tick() => {}
            }
            wire.write("a").await;
            let late = tokio::time::Instant::now() >= deadline;
            ensure!(!late, "a dripping header is kept for ever");
        }
    });
    let others = async {
        for _ in 0..50 {
            let (body, target) = server.stored(1000).await?;
            server.writer().hit(&target, &body).await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    tokio::try_join!(try_join_all(drippers), others).map(drop)
}

async fn body(server: &Server) -> Result<()> {
    for length in [100, 5_000_000] {
        let (_, target) = server.fresh(length);
        let text = length.to_string();
        let head = server.writer().head_of("PUT", &target, &[("Content-Length", &text)]);
        let mut wire = server.told(format!("{head}abc")).await?;
        let waited = || format!("a stalled body of {length} is waited for without end");
        let rest = wire.rest().await.with_context(waited)?;
        let text = String::from_utf8_lossy(&rest);
        let right = server.contract().is_err() || text.starts_with("HTTP/1.1 408 ");
        ensure!(right, "a stalled body of {length} got {text:?}");
        server.writer().miss(&target).await?;
    }
    Ok(())
}
