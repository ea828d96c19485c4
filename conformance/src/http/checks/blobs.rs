//! Blobs in and out, whichever protocol names them.

use anyhow::{Context, Result, ensure};
use aws_lc_rs::digest::{SHA256, SHA512, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;

use crate::http::Server;
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    round_trip, "blob-round-trip", "RFC 9110 §9.3.1, §9.3.4":
        "a body of any size comes back byte by byte, with its length and a media type";
    miss, "blob-miss-is-404", "RFC 9110 §15.5.5":
        "what was never stored is 404";
    head, "blob-head-describes", "RFC 9110 §9.3.2":
        "HEAD answers like GET, without the body; HEAD of a miss is 404";
    again, "blob-put-again", "RFC 9110 §9.3.4":
        "storing the same blob again is a success and changes nothing";
    visible_at_once, "blob-visible-when-acknowledged", "contract: read your writes":
        "as soon as a write is acknowledged every other connection reads it";
    racing_writers, "blob-race-one-winner", "contract: first write wins":
        "of many racing writers of one key exactly one is told 201, and all readers see its whole body";
    digest_checked, "blob-content-digest-is-checked", "RFC 9530 §2":
        "a body that is not what Content-Digest says is 400 and not stored, in any framing and on any route";
    digest_told, "blob-content-digest-when-wanted", "RFC 9530 §4":
        "Want-Content-Digest gets the digest of what is sent, a part's own for a part, by the algorithm preferred";
};

async fn round_trip(server: &Server) -> Result<()> {
    let writer = server.writer();
    for size in [0, 1, 4095, 4096, 65_537, 131_072, 131_073, (1 << 20) + 1, 9_000_000] {
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
        let race = (0..100u8).map(|number| {
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

fn sha256(body: &[u8]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(digest(&SHA256, body)))
}

fn sha512(body: &[u8]) -> String {
    format!("sha-512=:{}:", STANDARD.encode(digest(&SHA512, body)))
}

async fn digest_checked(server: &Server) -> Result<()> {
    server.contract()?;
    let writer = server.writer();
    for size in [5, 200_000, 3_000_000] {
        let (body, target) = (server.body(size), server.gradle(&server.key("digest")));
        let both = format!("{}, {}", sha256(&body), sha512(b"other"));
        for wrong in [sha256(b"other"), sha512(b"other"), both] {
            let refused = writer
                .send("PUT", &target, &[("Content-Digest", &wrong)], &body)
                .await?;
            refused.expect_message(400, "Content-Digest does not match the body")?;
            writer.get(&target).await?.expect(404)?;
        }
        let nonsense = [("Content-Digest", "sha-256=nonsense")];
        writer.send("PUT", &target, &nonsense, &body).await?.expect(400)?;
        writer.get(&target).await?.expect(404)?;
        let right = format!("md5=:AAAA:, {}, {}", sha256(&body), sha512(&body));
        writer
            .send("PUT", &target, &[("Content-Digest", &right)], &body)
            .await?
            .expect(201)?;
        writer.get(&target).await?.expect(200)?.expect_body(&body)?;
    }
    let (wrong, key) = (sha256(b"other"), server.key("digest"));
    let document = format!(r#"{{"cas_id":"{key}","entries":[{{"value":"v"}}]}}"#);
    let put = format!("/api/cache/keyvalue?{}", server.scope());
    let refused = writer
        .send("PUT", &put, &[("Content-Digest", &wrong)], document.as_bytes())
        .await?;
    refused.expect(400)?;
    writer
        .get(&format!("/api/cache/keyvalue/{key}?{}", server.scope()))
        .await?
        .expect(404)?;
    if !server.transport.is_http2() {
        let fields = [("Transfer-Encoding", "chunked"), ("Content-Digest", wrong.as_str())];
        let target = server.gradle(&key);
        let head = writer.head_of("PUT", &target, &fields);
        let mut wire = server.wire().await?;
        wire.write(format!("{head}3\r\nabc\r\n0\r\n\r\n")).await;
        wire.response("PUT").await?.expect(400)?;
        writer.get(&target).await?.expect(404)?;
    }
    Ok(())
}

async fn digest_told(server: &Server) -> Result<()> {
    server.contract()?;
    let writer = server.writer();
    for size in [5, 200_000, 3_000_000] {
        let (body, target) = (server.body(size), server.gradle(&server.key("wanted")));
        writer.store(&target, &body).await?;
        let part = body.get(1..4).unwrap_or_default();
        for (wanted, range, sent, told) in [
            ("", "", &body[..], None),
            ("md5=9", "", &body, None),
            ("sha-256=5", "", &body, Some(sha256(&body))),
            ("sha-512=9, sha-256=1", "bytes=1-3", part, Some(sha512(part))),
        ] {
            let mut fields = vec![("Want-Content-Digest", wanted), ("Range", range)];
            fields.retain(|(_, value)| !value.is_empty());
            let answer = writer.send("GET", &target, &fields, b"").await?;
            answer
                .expect(if range.is_empty() { 200 } else { 206 })?
                .expect_body(sent)?;
            let found = answer.field("content-digest");
            ensure!(
                found == told,
                "{size} bytes, {wanted:?} wanted: {found:?}, where {told:?} is right"
            );
        }
    }
    Ok(())
}
