//! Bazel's HTTP cache: content-addressed blobs and action results by SHA-256.

use anyhow::{Context, Result, ensure};
use prost::Message as _;
use russet_reapi::proto::reapi::ActionResult;
use sha2::{Digest as _, Sha256};

use crate::http::server::hex;
use crate::http::{Dialect, Server};
use crate::{Check, check};

pub(super) const CHECKS: &[Check<Server>] = &[
    check!(
        cas,
        "bazel-cas-round-trip",
        "a blob stored under its SHA-256 comes back, HEAD tells its length, and a miss is 404",
        "Bazel: HTTP caching protocol"
    ),
    check!(
        verified,
        "bazel-cas-is-verified",
        "a body that does not match its SHA-256 is refused with 4xx and is not stored",
        "Bazel: HTTP caching protocol"
    ),
    check!(
        ac,
        "bazel-ac-round-trip",
        "an action result comes back, and a newer one replaces it",
        "Bazel: HTTP caching protocol"
    ),
    check!(
        apart,
        "bazel-ac-is-not-cas",
        "one hash below ac and below cas names two things",
        "Bazel: HTTP caching protocol"
    ),
    check!(
        malformed,
        "bazel-malformed-hash",
        "what is no SHA-256 is refused with 4xx and stored nowhere",
        "Bazel: HTTP caching protocol"
    ),
];

fn target(server: &Server, kind: &str, hash: &str) -> String {
    match server.dialect {
        Dialect::Bazel => format!("/{kind}/{hash}"),
        Dialect::Contract => format!("/bazel/{}/{kind}/{hash}", server.project),
    }
}

fn hash(body: &[u8]) -> String {
    hex(&Sha256::digest(body))
}

async fn cas(server: &Server) -> Result<()> {
    let writer = server.writer();
    for size in [16, 5000, 400_000] {
        let body = server.body(size);
        let target = target(server, "cas", &hash(&body));
        writer.get(&target).await?.expect(404)?;
        writer.head(&target).await?.expect(404)?;
        writer.store(&target, &body).await?;
        writer.get(&target).await?.expect(200)?.expect_body(&body)?;
        let head = writer.head(&target).await?;
        head.expect(200)?;
        ensure!(
            head.field("content-length") == Some(size.to_string()),
            "HEAD says {:?}",
            head.field("content-length")
        );
    }
    Ok(())
}

async fn verified(server: &Server) -> Result<()> {
    for size in [100, 400_000] {
        let body = server.body(size);
        let target = target(server, "cas", &hash(&body));
        let mut other = body.clone();
        if let Some(byte) = other.last_mut() {
            *byte ^= 1;
        }
        for wrong in [other, body.get(1..).unwrap_or_default().to_vec()] {
            let refused = server.writer().put(&target, &wrong).await?;
            ensure!(
                (400..500).contains(&refused.status),
                "{size} wrong bytes were answered with {refused}"
            );
            server.writer().get(&target).await?.expect(404)?;
        }
    }
    Ok(())
}

fn result(code: i32) -> Vec<u8> {
    let result = ActionResult {
        exit_code: code,
        stdout_raw: "said".into(),
        ..ActionResult::default()
    };
    result.encode_to_vec()
}

async fn ac(server: &Server) -> Result<()> {
    let writer = server.writer();
    let target = target(server, "ac", &hash(&server.body(40)));
    writer.get(&target).await?.expect(404)?;
    for code in [1, 2, 3] {
        writer.store(&target, &result(code)).await?;
        let hit = writer.get(&target).await?;
        let found = ActionResult::decode(hit.expect(200)?.body.as_slice()).context("no action result")?;
        ensure!(
            found.exit_code == code,
            "exit code {} after {code} was stored",
            found.exit_code
        );
    }
    Ok(())
}

async fn apart(server: &Server) -> Result<()> {
    let (writer, body) = (server.writer(), server.body(300));
    writer.store(&target(server, "cas", &hash(&body)), &body).await?;
    writer.get(&target(server, "ac", &hash(&body))).await?.expect(404)?;
    let other = hash(&server.body(30));
    writer.store(&target(server, "ac", &other), &result(7)).await?;
    writer.get(&target(server, "cas", &other)).await?.expect(404)?;
    Ok(())
}

async fn malformed(server: &Server) -> Result<()> {
    let body = server.body(50);
    let good = hash(&body);
    for bad in [
        good.get(..63).unwrap_or_default().to_owned(),
        format!("{good}0"),
        "z".repeat(64),
        format!("..%2f{good}"),
        format!("{good}%00"),
        format!("x/../{good}"),
        String::new(),
    ] {
        for kind in ["cas", "ac"] {
            let refused = server.writer().put(&target(server, kind, &bad), &body).await?;
            // A redirect to a cleaner path stores nothing either.
            ensure!(
                (300..500).contains(&refused.status),
                "{kind}/{bad} was answered with {refused}"
            );
        }
    }
    server
        .writer()
        .get(&target(server, "cas", &good))
        .await?
        .expect(404)
        .context("stored under another spelling")?;
    Ok(())
}
