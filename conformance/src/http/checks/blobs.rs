//! Blobs in and out, whichever protocol names them.

use anyhow::{Result, ensure};
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
    racing_writers, "blob-race-one-winner", "contract: first write wins" [contract]:
        "of many racing writers of one key exactly one is told 201, and all readers see its whole body";
    digest_checked, "blob-content-digest-is-checked", "RFC 9530 §2" [contract]:
        "a body that is not what Content-Digest says is 400 and not stored, in any framing and on any route";
    digest_told, "blob-content-digest-when-wanted", "RFC 9530 §4" [contract]:
        "Want-Content-Digest gets the digest of what is sent, a part's own for a part, by the algorithm preferred";
};

async fn round_trip(server: &Server) -> Result<()> {
    for size in [0, 1, 4095, 4096, 65_537, 131_072, 131_073, (1 << 20) + 1, 9_000_000] {
        let (body, target) = server.stored(size).await?;
        let hit = server.writer().get(&target).await?;
        hit.expect(200)?.expect_body(&body)?;
        hit.expect_field("content-type", "application/octet-stream")?;
        hit.expect_field("content-length", &size.to_string())?;
    }
    Ok(())
}

async fn miss(server: &Server) -> Result<()> {
    server.writer().miss(&server.fresh(32).1).await
}

async fn head(server: &Server) -> Result<()> {
    let writer = server.writer();
    let (body, target) = server.fresh(3000);
    writer.head(&target).await?.expect(404)?.expect_body(b"")?;
    writer.store(&target, &body).await?;
    let (head, get) = (writer.head(&target).await?, writer.get(&target).await?);
    head.expect(200)?.expect_body(b"")?;
    for name in ["content-length", "content-type", "etag", "accept-ranges"] {
        // What is only known once the body is made may be left out.
        let (of_head, of_get) = (head.field(name), get.field(name));
        let omitted = of_head.is_none() && server.contract().is_err();
        let of = omitted || of_head == of_get;
        ensure!(of, "{name} is {of_head:?} for HEAD and {of_get:?} for GET");
    }
    Ok(())
}

async fn again(server: &Server) -> Result<()> {
    let (body, target) = server.stored(5000).await?;
    server.writer().store(&target, &body).await?;
    server.writer().hit(&target, &body).await
}

async fn visible_at_once(server: &Server) -> Result<()> {
    for round in 0..20 {
        let (body, target) = server.stored(100 + round * 10_000).await?;
        server.writer().hit(&target, &body).await?;
    }
    Ok(())
}

/// The neighbour told 61 to 100 of 100 racing writers that theirs was the first.
async fn racing_writers(server: &Server) -> Result<()> {
    for size in [100, 200_000] {
        let (writer, target) = (server.writer(), &server.gradle(&server.key("race")));
        let race = (0..100u8).map(|number| async move {
            let put = writer.put(target, &vec![number; size]).await?;
            put.expect_any(&[200, 201])?;
            let seen = writer.get(target).await?;
            seen.expect(200)?;
            Ok::<_, anyhow::Error>((put.status, number, seen.body))
        });
        let seen = try_join_all(race).await?;
        let winners: Vec<_> = seen.iter().filter(|(status, ..)| *status == 201).collect();
        ensure!(winners.len() == 1, "{} writers were told 201", winners.len());
        let truth = winners.first().map(|(_, winner, _)| vec![*winner; size]);
        let same = seen.iter().all(|(.., body)| Some(body) == truth.as_ref());
        ensure!(same, "a reader saw something else than the winner's body");
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
    const DIGEST: &str = "Content-Digest";
    let writer = server.writer();
    for size in [5, 200_000, 3_000_000] {
        let (body, target) = (server.body(size), server.gradle(&server.key("digest")));
        let both = format!("{}, {}", sha256(&body), sha512(b"other"));
        for wrong in [sha256(b"other"), sha512(b"other"), both] {
            let refused = writer.send("PUT", &target, &[(DIGEST, &wrong)], &body).await?;
            refused.expect_message(400, "Content-Digest does not match the body")?;
            writer.miss(&target).await?;
        }
        let nonsense = [(DIGEST, "sha-256=nonsense")];
        writer.sends("PUT", &target, &nonsense, &body, 400).await?;
        writer.miss(&target).await?;
        let right = format!("md5=:AAAA:, {}, {}", sha256(&body), sha512(&body));
        writer.sends("PUT", &target, &[(DIGEST, &right)], &body, 201).await?;
        writer.hit(&target, &body).await?;
    }
    let (wrong, key) = (sha256(b"other"), server.key("digest"));
    let document = format!(r#"{{"cas_id":"{key}","entries":[{{"value":"v"}}]}}"#);
    let (put, wrongly) = (server.api("keyvalue"), (DIGEST, wrong.as_str()));
    writer.sends("PUT", &put, &[wrongly], document.as_bytes(), 400).await?;
    writer.miss(&server.api(&format!("keyvalue/{key}"))).await?;
    if !server.transport.is_http2() {
        let target = server.gradle(&key);
        let head = writer.head_of("PUT", &target, &[("Transfer-Encoding", "chunked"), wrongly]);
        let mut wire = server.told(format!("{head}3\r\nabc\r\n0\r\n\r\n")).await?;
        wire.response("PUT").await?.expect(400)?;
        writer.miss(&target).await?;
    }
    Ok(())
}

async fn digest_told(server: &Server) -> Result<()> {
    let writer = server.writer();
    for size in [5, 200_000, 3_000_000] {
        let (body, target) = (server.body(size), server.gradle(&server.key("wanted")));
        writer.store(&target, &body).await?;
        let part = body.get(1..4).unwrap_or_default();
        for (wanted, range, status, sent, told) in [
            ("", "", 200, &body[..], None),
            ("md5=9", "", 200, &body, None),
            ("sha-256=5", "", 200, &body, Some(sha256(&body))),
            ("sha-512=9, sha-256=1", "bytes=1-3", 206, part, Some(sha512(part))),
        ] {
            let mut fields = vec![("Want-Content-Digest", wanted), ("Range", range)];
            fields.retain(|(_, value)| !value.is_empty());
            let answer = writer.send("GET", &target, &fields, b"").await?;
            let found = answer.expect(status)?.expect_body(sent)?.field("content-digest");
            ensure!(found == told, "{found:?}, where {told:?} is right: {answer}");
        }
    }
    Ok(())
}
