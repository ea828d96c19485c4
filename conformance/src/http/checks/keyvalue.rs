//! Xcode's key-value store.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::http::Server;
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    round_trip, "keyvalue-round-trip", "contract: key-value" [contract]:
        "entries come back as JSON under their cas_id";
    last_wins, "keyvalue-last-write-wins", "contract: key-value" [contract]:
        "every acknowledged write replaces the one before, however fast they follow";
    miss, "keyvalue-miss-message", "contract: key-value" [contract]:
        "a miss is 404 with the contract's message";
    bad_json, "keyvalue-bad-json-400", "contract: key-value" [contract]:
        "what is no document is 400 and leaves the old one in place";
    limit, "keyvalue-limit-413", "contract: key-value" [contract]:
        "a document over the limit is 413 and leaves the old one in place";
};

fn get(server: &Server, key: &str) -> String {
    server.api(&format!("keyvalue/{key}"))
}

fn document(key: &str, values: &[&str]) -> Vec<u8> {
    let entries: Vec<_> = values.iter().map(|value| json!({ "value": value })).collect();
    json!({"cas_id": key, "entries": entries}).to_string().into_bytes()
}

async fn round_trip(server: &Server) -> Result<()> {
    let (writer, key) = (server.writer(), server.key("kv"));
    let values = ["one", "two \"quoted\"\n", "drei ü"];
    let put = writer.put(&server.api("keyvalue"), &document(&key, &values)).await?;
    put.expect(204)?.expect_body(b"")?;
    let hit = writer.get(&get(server, &key)).await?;
    let expected = json!({"entries": values.map(|value| json!({ "value": value }))});
    ensure!(hit.expect(200)?.json()? == expected, "got {hit}");
    hit.expect_media("application/json").map(drop)
}

async fn last_wins(server: &Server) -> Result<()> {
    let (writer, key, put) = (server.writer(), server.key("kv"), server.api("keyvalue"));
    for round in 0..50 {
        let value = round.to_string();
        writer.puts(&put, &document(&key, &[&value]), 204).await?;
        let hit = writer.get(&get(server, &key)).await?;
        let expected = json!({"entries": [{ "value": value }]});
        ensure!(hit.json()? == expected, "after write {round}: {hit}");
    }
    Ok(())
}

async fn miss(server: &Server) -> Result<()> {
    let miss = server.writer().get(&get(server, &server.key("none"))).await?;
    miss.expect_message(404, "Key-value entry not found").map(drop)
}

async fn refused(server: &Server, status: u16, bodies: &[Vec<u8>], key: &str) -> Result<()> {
    let (writer, put) = (server.writer(), server.api("keyvalue"));
    writer.puts(&put, &document(key, &["old"]), 204).await?;
    for body in bodies {
        let message = writer.put(&put, body).await?.expect(status)?.message()?;
        let right = status != 413 || message == "Request body exceeded allowed size";
        ensure!(right, "the message is {message:?}");
    }
    let kept = writer.get(&get(server, key)).await?;
    ensure!(kept.json()? == json!({"entries": [{"value": "old"}]}), "got {kept}");
    Ok(())
}

async fn bad_json(server: &Server) -> Result<()> {
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
    ];
    refused(server, 400, &bodies.map(String::into_bytes), &key).await
}

async fn limit(server: &Server) -> Result<()> {
    let key = server.key("kv");
    // Over the hard cap of 4 MiB, so it holds however the server is set up.
    let body = document(&key, &[&"x".repeat(4 << 20)]);
    refused(server, 413, &[body], &key).await
}
