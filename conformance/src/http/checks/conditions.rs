//! Entity tags and If-None-Match.

use anyhow::{Context, Result, ensure};

use crate::http::{Caller, Server};
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    stable, "etag-strong-and-stable", "RFC 9110 §8.8.3" [contract]:
        "a blob has a strong tag, the same for every reader and for HEAD; other bytes have another";
    not_modified, "etag-304", "RFC 9110 §13.1.2, §15.4.5" [contract]:
        "If-None-Match that names the tag (alone, in a list, weakly, as *) is 304 without a body";
    modified, "etag-other-is-200", "RFC 9110 §13.1.2" [contract]:
        "If-None-Match that does not name the tag gives the blob";
    follows, "etag-follows-a-mutable-entry", "RFC 9110 §8.8.1" [contract]:
        "a replaced key-value entry has another tag, and the old tag is no 304";
};

async fn tagged(server: &Server) -> Result<(Caller<'_>, String, Vec<u8>, String)> {
    let (body, target) = server.stored(1000).await?;
    let writer = server.writer();
    let tag = writer.get(&target).await?.field("etag").context("no ETag")?;
    Ok((writer, target, body, tag))
}

async fn stable(server: &Server) -> Result<()> {
    let (writer, target, _, tag) = tagged(server).await?;
    let strong = tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"');
    ensure!(strong, "{tag} is no strong tag");
    writer.get(&target).await?.expect_field("etag", &tag)?;
    writer.head(&target).await?.expect_field("etag", &tag)?;
    let (.., other) = tagged(server).await?;
    ensure!(other != tag, "two blobs share the tag {tag}");
    Ok(())
}

async fn not_modified(server: &Server) -> Result<()> {
    let (writer, target, _, tag) = tagged(server).await?;
    for value in [tag.clone(), format!("\"x\", {tag}"), format!("W/{tag}"), "*".to_owned()] {
        for method in ["GET", "HEAD"] {
            let same = writer.send(method, &target, &[("If-None-Match", &value)], b"").await?;
            same.expect(304)?.expect_body(b"")?.expect_field("etag", &tag)?;
        }
    }
    Ok(())
}

async fn modified(server: &Server) -> Result<()> {
    let (writer, target, body, tag) = tagged(server).await?;
    for value in ["\"x\"", tag.trim_matches('"'), "\"x\", \"y\""] {
        let whole = writer.send("GET", &target, &[("If-None-Match", value)], b"").await?;
        whole.expect(200)?.expect_body(&body)?;
    }
    Ok(())
}

async fn follows(server: &Server) -> Result<()> {
    let (writer, key) = (server.writer(), server.key("tagged"));
    let (put, get) = (server.api("keyvalue"), server.api(&format!("keyvalue/{key}")));
    let mut last = "\"none\"".to_owned();
    for value in ["one", "two", "six"] {
        let document = format!(r#"{{"cas_id":"{key}","entries":[{{"value":"{value}"}}]}}"#);
        writer.puts(&put, document.as_bytes(), 204).await?;
        let hit = writer.send("GET", &get, &[("If-None-Match", &last)], b"").await?;
        let tag = hit.expect(200)?.field("etag").context("no ETag")?;
        ensure!(tag != last, "{value} has the tag of the entry before it");
        last = tag;
    }
    Ok(())
}
