//! Xcode's key-value store.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::http::Server;
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    round_trip, "keyvalue-round-trip", "contract: key-value":
        "entries come back as JSON under their cas_id";
    last_wins, "keyvalue-last-write-wins", "contract: key-value":
        "every acknowledged write replaces the one before, however fast they follow";
    miss, "keyvalue-miss-message", "contract: key-value":
        "a miss is 404 with the contract's message";
    bad_json, "keyvalue-bad-json-400", "contract: key-value":
        "what is no document is 400 and leaves the old one in place";
    limit, "keyvalue-limit-413", "contract: key-value":
        "a document over the limit is 413 and leaves the old one in place";
};

fn put(server: &Server) -> String {
    format!("/api/cache/keyvalue?{}", server.scope())
}

fn get(server: &Server, key: &str) -> String {
    format!("/api/cache/keyvalue/{key}?{}", server.scope())
}

fn document(key: &str, values: &[&str]) -> Vec<u8> {
    let entries: Vec<_> = values.iter().map(|value| json!({ "value": value })).collect();
    json!({"cas_id": key, "entries": entries}).to_string().into_bytes()
}

async fn round_trip(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, key) = (server.writer(), server.key("kv"));
    let values = ["one", "two \"quoted\"\n", "drei ü"];
    writer
        .put(&put(server), &document(&key, &values))
        .await?
        .expect(204)?
        .expect_body(b"")?;
    let hit = writer.get(&get(server, &key)).await?;
    let expected = json!({"entries": values.map(|value| json!({ "value": value }))});
    ensure!(hit.expect(200)?.json()? == expected, "got {hit}");
    let media = hit.field("content-type").unwrap_or_default();
    ensure!(media.starts_with("application/json"), "the media type is {media:?}");
    Ok(())
}

async fn last_wins(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, key) = (server.writer(), server.key("kv"));
    for round in 0..50 {
        let value = round.to_string();
        writer
            .put(&put(server), &document(&key, &[&value]))
            .await?
            .expect(204)?;
        let hit = writer.get(&get(server, &key)).await?;
        let expected = json!({"entries": [{ "value": value }]});
        ensure!(hit.json()? == expected, "after write {round}: {hit}");
    }
    Ok(())
}

async fn miss(server: &Server) -> Result<()> {
    server.contract()?;
    let miss = server.writer().get(&get(server, &server.key("none"))).await?;
    miss.expect_message(404, "Key-value entry not found")?;
    Ok(())
}

async fn refused(server: &Server, status: u16, bodies: &[Vec<u8>], key: &str) -> Result<()> {
    let writer = server.writer();
    writer.put(&put(server), &document(key, &["old"])).await?.expect(204)?;
    for body in bodies {
        let message = writer.put(&put(server), body).await?.expect(status)?.message()?;
        ensure!(
            status != 413 || message == "Request body exceeded allowed size",
            "the message is {message:?}"
        );
    }
    let kept = writer.get(&get(server, key)).await?;
    ensure!(kept.json()? == json!({"entries": [{"value": "old"}]}), "got {kept}");
    Ok(())
}

async fn bad_json(server: &Server) -> Result<()> {
    server.contract()?;
    let key = server.key("kv");
    let bodies = [
        format!(r#"{{"cas_id":"{key}","entries":[{{"value":"new"}}]"#),
        format!(r#"{{"cas_id":"{key}","entries":[{{"value":1}}]}}"#),
        format!(r#"{{"cas_id":"{key}","entries":"new"}}"#),
        format!(r#"{{"cas_id":"{key}"}}"#),
        r#"{"entries":[]}"#.to_owned(),
        r#"{"cas_id":"","entries":[]}"#.to_owned(),
        "[]".to_owned(),
        "x".to_owned(),
    ]
    .map(String::into_bytes);
    refused(server, 400, &bodies, &key).await
}

async fn limit(server: &Server) -> Result<()> {
    server.contract()?;
    let key = server.key("kv");
    // Over the hard cap of 4 MiB, so it holds however the server is set up.
    let body = document(&key, &[&"x".repeat(4 << 20)]);
    refused(server, 413, &[body], &key).await
}
