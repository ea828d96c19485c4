//! Emptying a namespace.

use anyhow::Result;

use crate::http::Server;
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    clean, "clean-empties-one-namespace", "contract: clean":
        "clean answers 204, everything of the namespace is a miss, and nothing of another one is";
    storable_again, "clean-then-store-again", "contract: clean":
        "what was cleaned can be stored again at once, and is new";
    empty, "clean-of-nothing-is-204", "contract: clean":
        "cleaning what is empty is a success";
};

fn allowed(server: &Server) -> Result<String> {
    server.contract()?;
    if !server.may_clean {
        return not_applicable(format!("would empty the project {}; not allowed to", server.project));
    }
    Ok(format!("/api/cache/clean?{}", server.scope()))
}

async fn clean(server: &Server) -> Result<()> {
    let clean = allowed(server)?;
    let (writer, key) = (server.writer(), server.key("clean"));
    let account = format!("/api/cache/gradle/{key}?tenant_id={}", server.tenant);
    let kv = format!("/api/cache/keyvalue/{key}?{}", server.scope());
    writer.store(&server.gradle(&key), b"x").await?;
    writer.store(&account, b"account").await?;
    let document = format!(r#"{{"cas_id":"{key}","entries":[]}}"#);
    writer
        .store(&format!("/api/cache/keyvalue?{}", server.scope()), document.as_bytes())
        .await?;
    let nx = format!("/v1/cache/{key}");
    writer.store(&nx, b"nx").await?;
    let sibling = format!("/api/cache/gradle/{key}?{}", server.scope_of(&server.victim_project));
    if let Ok(owner) = server.victim() {
        owner.store(&sibling, b"theirs").await?;
    }
    writer.delete(&clean).await?.expect(204)?.expect_body(b"")?;
    writer.get(&server.gradle(&key)).await?.expect(404)?;
    writer.get(&kv).await?.expect(404)?;
    writer.get(&account).await?.expect(200)?.expect_body(b"account")?;
    writer.get(&nx).await?.expect(200)?.expect_body(b"nx")?;
    if let Ok(owner) = server.victim() {
        owner.get(&sibling).await?.expect(200)?.expect_body(b"theirs")?;
    }
    Ok(())
}

/// The neighbour answered 503 to a write in the same millisecond as a clean.
async fn storable_again(server: &Server) -> Result<()> {
    let clean = allowed(server)?;
    let (writer, target) = (server.writer(), server.gradle(&server.key("again")));
    for round in 0..20 {
        let body = format!("round {round}");
        writer.put(&target, body.as_bytes()).await?.expect(201)?;
        writer.get(&target).await?.expect(200)?.expect_body(body.as_bytes())?;
        writer.delete(&clean).await?.expect(204)?;
        writer.get(&target).await?.expect(404)?;
    }
    Ok(())
}

async fn empty(server: &Server) -> Result<()> {
    let clean = allowed(server)?;
    for _ in 0..2 {
        server.writer().delete(&clean).await?.expect(204)?;
    }
    Ok(())
}
