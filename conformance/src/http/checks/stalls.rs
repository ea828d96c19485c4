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
    let target = server.blob(&server.body(10));
    let head = server.writer().head_of("GET", &target, &[]);
    let mut wire = server.wire().await?;
    wire.write(head.trim_end()).await;
    wire.rest().await.context("a stalled header is kept for ever")?;
    Ok(())
}

/// Twenty at once. Each byte starts no new patience: a timeout between bytes would never end this.
async fn drip(server: &Server) -> Result<()> {
    let drippers = (0..20).map(|_| async {
        let mut wire = server.wire().await?;
        wire.write("GET / HTTP/1.1\r\nHost: x\r\nX-Drip: ").await;
        let deadline = tokio::time::Instant::now() + server.patience;
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(50));
        loop {
            tokio::select! {
                closed = wire.rest() => return closed.map(|_| ()),
                _ = pace.tick() => {}
            }
            wire.write("a").await;
            ensure!(
                tokio::time::Instant::now() < deadline,
                "a dripping header is kept for ever"
            );
        }
    });
    let others = async {
        for _ in 0..50 {
            let body = server.body(1000);
            let target = server.blob(&body);
            server.writer().store(&target, &body).await?;
            server.writer().get(&target).await?.expect(200)?.expect_body(&body)?;
        }
        Ok::<_, anyhow::Error>(())
    };
    tokio::try_join!(try_join_all(drippers), others)?;
    Ok(())
}

async fn body(server: &Server) -> Result<()> {
    for length in [100, 5_000_000] {
        let body = server.body(length);
        let target = server.blob(&body);
        let mut wire = server.wire().await?;
        let text = length.to_string();
        wire.write(server.writer().head_of("PUT", &target, &[("Content-Length", &text)]))
            .await;
        wire.write("abc").await;
        let waited = || format!("a stalled body of {length} is waited for without end");
        let rest = wire.rest().await.with_context(waited)?;
        let text = String::from_utf8_lossy(&rest);
        ensure!(
            server.contract().is_err() || text.starts_with("HTTP/1.1 408 "),
            "a stalled body of {length} got {text:?}"
        );
        server.writer().get(&target).await?.expect(404)?;
    }
    Ok(())
}
