//! Entity tags and If-None-Match.

use anyhow::{Context, Result, ensure};

use crate::http::{Caller, Server};
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    stable, "etag-strong-and-stable", "RFC 9110 §8.8.3":
        "a blob has a strong tag, the same for every reader and for HEAD; other bytes have another";
    not_modified, "etag-304", "RFC 9110 §13.1.2, §15.4.5":
        "If-None-Match that names the tag (alone, in a list, weakly, as *) is 304 without a body";
    modified, "etag-other-is-200", "RFC 9110 §13.1.2":
        "If-None-Match that does not name the tag gives the blob";
    follows, "etag-follows-a-mutable-entry", "RFC 9110 §8.8.1":
        "a replaced key-value entry has another tag, and the old tag is no 304";
};

async fn tagged(server: &Server) -> Result<(Caller<'_>, String, Vec<u8>, String)> {
    server.contract()?;
    let writer = server.writer();
    let body = server.body(1000);
    let target = server.blob(&body);
    writer.store(&target, &body).await?;
    let tag = writer.get(&target).await?.field("etag").context("no ETag")?;
    Ok((writer, target, body, tag))
}

async fn stable(server: &Server) -> Result<()> {
    let (writer, target, _, tag) = tagged(server).await?;
    ensure!(
        tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"'),
        "{tag} is no strong tag"
    );
    ensure!(
        writer.get(&target).await?.field("etag").as_deref() == Some(tag.as_str()),
        "the tag changed"
    );
    ensure!(
        writer.head(&target).await?.field("etag").as_deref() == Some(tag.as_str()),
        "HEAD has another tag"
    );
    let (.., other) = tagged(server).await?;
    ensure!(other != tag, "two blobs share the tag {tag}");
    Ok(())
}

async fn not_modified(server: &Server) -> Result<()> {
    let (writer, target, _, tag) = tagged(server).await?;
    for value in [tag.clone(), format!("\"x\", {tag}"), format!("W/{tag}"), "*".to_owned()] {
        for method in ["GET", "HEAD"] {
            let same = writer.send(method, &target, &[("If-None-Match", &value)], b"").await?;
            same.expect(304)
                .and_then(|same| same.expect_body(b""))
                .with_context(|| format!("{method} {value}"))?;
            ensure!(
                same.field("etag").as_deref() == Some(tag.as_str()),
                "304 without its tag"
            );
        }
    }
    Ok(())
}

async fn modified(server: &Server) -> Result<()> {
    let (writer, target, body, tag) = tagged(server).await?;
    let unquoted = tag.trim_matches('"').to_owned();
    for value in ["\"x\"".to_owned(), unquoted, "\"x\", \"y\"".to_owned()] {
        let whole = writer.send("GET", &target, &[("If-None-Match", &value)], b"").await?;
        whole
            .expect(200)
            .and_then(|whole| whole.expect_body(&body))
            .with_context(|| value.clone())?;
    }
    Ok(())
}

async fn follows(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, key) = (server.writer(), server.key("tagged"));
    let put = format!("/api/cache/keyvalue?{}", server.scope());
    let get = format!("/api/cache/keyvalue/{key}?{}", server.scope());
    let mut last: Option<String> = None;
    for value in ["one", "two", "six"] {
        let document = format!(r#"{{"cas_id":"{key}","entries":[{{"value":"{value}"}}]}}"#);
        writer.put(&put, document.as_bytes()).await?.expect(204)?;
        let old = last.take().unwrap_or_else(|| "\"none\"".to_owned());
        let hit = writer.send("GET", &get, &[("If-None-Match", &old)], b"").await?;
        let tag = hit.expect(200)?.field("etag").context("no ETag")?;
        ensure!(tag != old, "{value} has the tag of the entry before it");
        last = Some(tag);
    }
    Ok(())
}
