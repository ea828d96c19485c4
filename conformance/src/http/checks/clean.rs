//! Emptying a namespace.

use anyhow::Result;

use crate::http::Server;
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    clean, "clean-empties-one-namespace", "contract: clean" [contract]:
        "clean answers 204, everything of the namespace is a miss, and nothing of another one is";
    storable_again, "clean-then-store-again", "contract: clean" [contract]:
        "what was cleaned can be stored again at once, and is new";
    empty, "clean-of-nothing-is-204", "contract: clean" [contract]:
        "cleaning what is empty is a success";
};

fn allowed(server: &Server) -> Result<String> {
    if !server.may_clean {
        return not_applicable(format!("would empty the project {}; not allowed to", server.project));
    }
    Ok(server.api("clean"))
}

async fn clean(server: &Server) -> Result<()> {
    let clean = allowed(server)?;
    let (writer, key) = (server.writer(), server.key("clean"));
    let (mine, nx) = (server.gradle(&key), format!("/v1/cache/{key}"));
    let account = format!("/api/cache/gradle/{key}?tenant_id={}", server.tenant);
    let document = format!(r#"{{"cas_id":"{key}","entries":[]}}"#);
    let sibling = server.api_of(&server.victim_project, &format!("gradle/{key}"));
    writer.store(&mine, b"x").await?;
    writer.store(&account, b"account").await?;
    writer.store(&server.api("keyvalue"), document.as_bytes()).await?;
    writer.store(&nx, b"nx").await?;
    if let Ok(owner) = server.victim() {
        owner.store(&sibling, b"theirs").await?;
    }
    writer.delete(&clean).await?.expect(204)?.expect_body(b"")?;
    writer.miss(&mine).await?;
    writer.miss(&server.api(&format!("keyvalue/{key}"))).await?;
    writer.hit(&account, b"account").await?;
    writer.hit(&nx, b"nx").await?;
    match server.victim() {
        Ok(owner) => owner.hit(&sibling, b"theirs").await,
        Err(_) => Ok(()),
    }
}

/// The neighbour answered 503 to a write in the same millisecond as a clean.
async fn storable_again(server: &Server) -> Result<()> {
    let clean = allowed(server)?;
    let (writer, target) = (server.writer(), server.gradle(&server.key("again")));
    for round in 0..20 {
        let body = format!("round {round}").into_bytes();
        writer.puts(&target, &body, 201).await?;
        writer.hit(&target, &body).await?;
        writer.delete(&clean).await?.expect(204)?;
        writer.miss(&target).await?;
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
