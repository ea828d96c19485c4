//! The routes of single tools: Gradle, Xcode, Nx, Metro.

use anyhow::{Result, ensure};

use crate::http::Server;
use crate::{Check, check};

pub(super) const CHECKS: &[Check<Server>] = &[
    check!(
        gradle,
        "gradle-201-then-200",
        "a new entry is 201, a known one 200; the first body stays",
        "contract: Gradle"
    ),
    check!(
        gradle_miss,
        "gradle-miss-message",
        "a miss is 404 with the contract's message",
        "contract: Gradle"
    ),
    check!(
        gradle_limit,
        "gradle-limit-100-mib",
        "more than 100 MiB is 413, told before the body is sent",
        "contract: Gradle"
    ),
    check!(
        xcode,
        "xcode-204-new-and-known",
        "storing answers 204 whether new or known; the first body stays",
        "contract: Xcode CAS"
    ),
    check!(
        xcode_ids,
        "xcode-ids-are-opaque",
        "ids are opaque text and are not verified against the body",
        "contract: Xcode CAS"
    ),
    check!(
        xcode_limit,
        "xcode-limit-256-mib",
        "more than 256 MiB is 413, told before the body is sent",
        "contract: Xcode CAS"
    ),
    check!(
        nx,
        "nx-200-without-parameters",
        "Nx stores and reads with 200, names no tenant, and its misses are 404",
        "contract: Nx"
    ),
    check!(
        metro,
        "metro-200-without-parameters",
        "Metro stores and reads with 200, names no tenant, and its misses are 404",
        "contract: Metro"
    ),
    check!(
        apart,
        "kinds-are-apart",
        "one key in two tools' routes is two entries",
        "contract: producers"
    ),
];

async fn gradle(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, target) = (server.writer(), server.gradle(&server.key("gradle")));
    writer.put(&target, b"first").await?.expect(201)?;
    writer.put(&target, b"second").await?.expect(200)?;
    writer.get(&target).await?.expect(200)?.expect_body(b"first")?;
    Ok(())
}

async fn gradle_miss(server: &Server) -> Result<()> {
    server.contract()?;
    let miss = server.writer().get(&server.gradle(&server.key("none"))).await?;
    miss.expect_message(404, "Artifact not found")?;
    Ok(())
}

async fn gradle_limit(server: &Server) -> Result<()> {
    server.contract()?;
    let target = server.gradle(&server.key("large"));
    too_large(server, "PUT", &target, 100 << 20).await
}

/// Announces one byte too many, and expects the refusal before any of them.
async fn too_large(server: &Server, method: &str, target: &str, limit: u64) -> Result<()> {
    let mut wire = server.wire().await?;
    let length = (limit + 1).to_string();
    let head = server.writer().head_of(method, target, &[("Content-Length", &length)]);
    wire.write(head).await;
    let refused = wire.response(method).await?;
    refused.expect_message(413, "Request body exceeded allowed size")?;
    ensure!(refused.closes(), "a body nobody will read must end the connection");
    server.writer().get(target).await?.expect(404)?;
    Ok(())
}

async fn xcode(server: &Server) -> Result<()> {
    server.contract()?;
    let writer = server.writer();
    let target = format!("/api/cache/cas/{}?{}", server.key("xcode"), server.scope());
    writer.get(&target).await?.expect_message(404, "Artifact not found")?;
    writer.post(&target, b"object").await?.expect(204)?.expect_body(b"")?;
    writer.post(&target, b"another").await?.expect(204)?;
    writer.get(&target).await?.expect(200)?.expect_body(b"object")?;
    Ok(())
}

async fn xcode_ids(server: &Server) -> Result<()> {
    server.contract()?;
    let writer = server.writer();
    let key = server.key("id");
    for id in [format!("0~{key}%3D%3D"), format!("{key}~"), format!("{key}%20x")] {
        let target = format!("/api/cache/cas/{id}?{}", server.scope());
        writer.post(&target, id.as_bytes()).await?.expect(204)?;
        writer.get(&target).await?.expect(200)?.expect_body(id.as_bytes())?;
    }
    Ok(())
}

async fn xcode_limit(server: &Server) -> Result<()> {
    server.contract()?;
    let target = format!("/api/cache/cas/{}?{}", server.key("large"), server.scope());
    too_large(server, "POST", &target, 256 << 20).await
}

async fn nx(server: &Server) -> Result<()> {
    server.contract()?;
    without_parameters(server, &format!("/v1/cache/{}", server.key("nx"))).await
}

async fn metro(server: &Server) -> Result<()> {
    server.contract()?;
    without_parameters(server, &format!("/api/metro/cache/{}", server.key("metro"))).await
}

async fn without_parameters(server: &Server, target: &str) -> Result<()> {
    let writer = server.writer();
    writer.get(target).await?.expect(404)?;
    writer.put(target, b"first").await?.expect(200)?;
    writer.get(target).await?.expect(200)?.expect_body(b"first")?;
    writer.head(target).await?.expect(200)?;
    Ok(())
}

async fn apart(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, key) = (server.writer(), server.key("apart"));
    writer.store(&server.gradle(&key), b"gradle").await?;
    for target in [
        format!("/api/cache/cas/{key}?{}", server.scope()),
        format!("/api/cache/keyvalue/{key}?{}", server.scope()),
        format!("/v1/cache/{key}"),
        format!("/api/metro/cache/{key}"),
    ] {
        writer.get(&target).await?.expect(404)?;
    }
    Ok(())
}
