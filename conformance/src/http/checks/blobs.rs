//! Blobs in and out, whichever protocol names them.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;

use crate::http::Server;
use crate::{Check, check};

pub(super) const CHECKS: &[Check<Server>] = &[
    check!(
        round_trip,
        "blob-round-trip",
        "a body of any size comes back byte by byte, with its length and a media type",
        "RFC 9110 §9.3.1, §9.3.4"
    ),
    check!(
        miss,
        "blob-miss-is-404",
        "what was never stored is 404",
        "RFC 9110 §15.5.5"
    ),
    check!(
        head,
        "blob-head-describes",
        "HEAD answers like GET, without the body; HEAD of a miss is 404",
        "RFC 9110 §9.3.2"
    ),
    check!(
        again,
        "blob-put-again",
        "storing the same blob again is a success and changes nothing",
        "RFC 9110 §9.3.4"
    ),
    check!(
        visible_at_once,
        "blob-visible-when-acknowledged",
        "as soon as a write is acknowledged every other connection reads it",
        "contract: read your writes"
    ),
    check!(
        racing_writers,
        "blob-race-one-winner",
        "of many racing writers of one key exactly one is told 201, and all readers see its whole body",
        "contract: first write wins"
    ),
];

async fn round_trip(server: &Server) -> Result<()> {
    let writer = server.writer();
    for size in [0, 1, 4095, 4096, 65_537, 131_072, 131_073, (1 << 20) + 1] {
        let body = server.body(size);
        let target = server.blob(&body);
        writer.store(&target, &body).await?;
        let hit = writer.get(&target).await?;
        hit.expect(200)?
            .expect_body(&body)
            .with_context(|| format!("{size} bytes"))?;
        ensure!(
            hit.field("content-type").as_deref() == Some("application/octet-stream"),
            "the media type is {:?}",
            hit.field("content-type")
        );
        let length = hit.field("content-length");
        ensure!(
            length == Some(size.to_string()),
            "{size} bytes are announced as {length:?}"
        );
    }
    Ok(())
}

async fn miss(server: &Server) -> Result<()> {
    let target = server.blob(&server.body(32));
    server.writer().get(&target).await?.expect(404)?;
    Ok(())
}

async fn head(server: &Server) -> Result<()> {
    let writer = server.writer();
    let body = server.body(3000);
    let target = server.blob(&body);
    writer.head(&target).await?.expect(404)?.expect_body(b"")?;
    writer.store(&target, &body).await?;
    let (head, get) = (writer.head(&target).await?, writer.get(&target).await?);
    head.expect(200)?.expect_body(b"")?;
    for field in ["content-length", "content-type", "etag", "accept-ranges"] {
        // What is only known once the body is made may be left out.
        let omitted = head.field(field).is_none() && server.contract().is_err();
        ensure!(
            omitted || head.field(field) == get.field(field),
            "{field} is {:?} for HEAD and {:?} for GET",
            head.field(field),
            get.field(field)
        );
    }
    Ok(())
}

async fn again(server: &Server) -> Result<()> {
    let writer = server.writer();
    let body = server.body(5000);
    let target = server.blob(&body);
    writer.store(&target, &body).await?;
    writer.store(&target, &body).await?;
    writer.get(&target).await?.expect(200)?.expect_body(&body)?;
    Ok(())
}

async fn visible_at_once(server: &Server) -> Result<()> {
    let writer = server.writer();
    for round in 0..20 {
        let body = server.body(100 + round * 10_000);
        let target = server.blob(&body);
        writer.store(&target, &body).await?;
        writer.get(&target).await?.expect(200)?.expect_body(&body)?;
    }
    Ok(())
}

/// The neighbour told 61 to 100 of 100 racing writers that theirs was the first.
async fn racing_writers(server: &Server) -> Result<()> {
    server.contract()?;
    for size in [100, 200_000] {
        let target = server.gradle(&server.key("race"));
        let writer = server.writer();
        let race = (0..32u8).map(|number| {
            let target = &target;
            async move {
                let put = writer.put(target, &vec![number; size]).await?;
                put.expect_any(&[200, 201])?;
                let seen = writer.get(target).await?;
                seen.expect(200)?;
                Ok::<_, anyhow::Error>((put.status, number, seen.body))
            }
        });
        let seen = try_join_all(race).await?;
        let winners: Vec<u8> = seen
            .iter()
            .filter(|(status, ..)| *status == 201)
            .map(|(_, number, _)| *number)
            .collect();
        ensure!(winners.len() == 1, "{} writers were told 201", winners.len());
        let truth = winners.first().map(|winner| vec![*winner; size]);
        ensure!(
            seen.iter().all(|(.., body)| Some(body) == truth.as_ref()),
            "a reader saw something else than the winner's body"
        );
    }
    Ok(())
}
