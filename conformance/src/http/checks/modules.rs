//! Modules, which are uploaded in parts.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::http::Server;
use crate::http::wire::Response;
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    round_trip, "module-parts-become-one", "contract: module multipart":
        "parts sent in any order, and replaced, become one module; HEAD is 204, GET its bytes";
    known, "module-start-of-known-is-null", "contract: module multipart":
        "starting an upload of what is stored gives no upload id";
    identity, "module-identity", "contract: module multipart":
        "category, hash and name are the identity; the id in the path is not; the category defaults to builds";
    mismatch, "module-parts-must-match", "contract: module multipart":
        "the list must be exactly the uploaded parts, ascending, and a refused list can be corrected";
    numbers, "module-part-numbers", "contract: module multipart":
        "part numbers are 1 to 10000; anything else is 400";
    part_limit, "module-part-limit-10-mib", "contract: module multipart":
        "10 MiB is a part, one byte more is 413 and is not kept";
    unknown, "module-unknown-upload-404", "contract: module multipart":
        "an upload id nobody gave is 404 with the contract's message";
    parameters, "module-parameters-are-required", "contract: module multipart":
        "start, part and complete without their parameters are 400";
    miss, "module-miss", "contract: module multipart":
        "HEAD of a miss is 404 without a body, GET 404 with a message";
};

struct Module {
    query: String,
}

impl Module {
    fn new(server: &Server, name: &str) -> Self {
        let hash = server.key(name);
        Self {
            query: format!("{}&hash={hash}&name=Feature", server.scope()),
        }
    }

    fn target(&self) -> String {
        format!("/api/cache/module/any?{}", self.query)
    }

    async fn start(&self, server: &Server) -> Result<Value> {
        let started = server
            .writer()
            .post(&format!("/api/cache/module/start?{}", self.query), b"")
            .await?;
        let value = started.expect(200)?.json()?;
        value
            .get("upload_id")
            .cloned()
            .with_context(|| format!("no upload_id in {started}"))
    }
}

async fn begin(server: &Server, module: &Module) -> Result<String> {
    let id = module.start(server).await?;
    Ok(id.as_str().with_context(|| format!("no upload id: {id}"))?.to_owned())
}

async fn part(server: &Server, id: &str, number: &str, body: &[u8]) -> Result<Response> {
    let target = format!(
        "/api/cache/module/part?{}&upload_id={id}&part_number={number}",
        server.scope()
    );
    server.writer().post(&target, body).await
}

async fn complete(server: &Server, id: &str, list: &str) -> Result<Response> {
    let target = format!("/api/cache/module/complete?{}&upload_id={id}", server.scope());
    let json = [("Content-Type", "application/json")];
    server.writer().send("POST", &target, &json, list.as_bytes()).await
}

async fn round_trip(server: &Server) -> Result<()> {
    server.contract()?;
    let module = Module::new(server, "module");
    let id = begin(server, &module).await?;
    part(server, &id, "2", b"world").await?.expect(204)?.expect_body(b"")?;
    part(server, &id, "1", b"wrong").await?.expect(204)?;
    part(server, &id, "1", b"hello ").await?.expect(204)?;
    server.writer().head(&module.target()).await?.expect(404)?;
    complete(server, &id, r#"{"parts":[1,2]}"#)
        .await?
        .expect(204)?
        .expect_body(b"")?;
    let writer = server.writer();
    writer.head(&module.target()).await?.expect(204)?.expect_body(b"")?;
    writer
        .get(&module.target())
        .await?
        .expect(200)?
        .expect_body(b"hello world")?;
    complete(server, &id, r#"{"parts":[1,2]}"#)
        .await?
        .expect_message(404, "Upload not found")?;
    Ok(())
}

async fn known(server: &Server) -> Result<()> {
    server.contract()?;
    let module = Module::new(server, "known");
    store(server, &module, b"x").await?;
    let id = module.start(server).await?;
    ensure!(id.is_null(), "a known module got the upload id {id}");
    Ok(())
}

async fn store(server: &Server, module: &Module, body: &[u8]) -> Result<()> {
    let id = begin(server, module).await?;
    part(server, &id, "1", body).await?.expect(204)?;
    complete(server, &id, r#"{"parts":[1]}"#).await?.expect(204)?;
    Ok(())
}

async fn identity(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, hash) = (server.writer(), server.key("identity"));
    let of = |query: &str| Module {
        query: format!("{}&{query}", server.scope()),
    };
    store(server, &of(&format!("hash={hash}&name=Feature")), b"builds").await?;
    for (path, query, status) in [
        ("any", format!("hash={hash}&name=Feature"), 204),
        ("other", format!("hash={hash}&name=Feature&cache_category=builds"), 204),
        ("any", format!("hash={hash}&name=Feature&cache_category=selective"), 404),
        ("any", format!("hash={hash}&name=Other"), 404),
        ("any", format!("hash={hash}x&name=Feature"), 404),
        ("any", format!("hash={hash}F&name=eature"), 404),
        ("any", format!("hash={hash}%2FFeature&name="), 400),
    ] {
        let target = format!("/api/cache/module/{path}?{}&{query}", server.scope());
        writer.head(&target).await?.expect(status)?;
    }
    Ok(())
}

async fn mismatch(server: &Server) -> Result<()> {
    server.contract()?;
    let module = Module::new(server, "mismatch");
    let id = begin(server, &module).await?;
    part(server, &id, "1", b"a").await?.expect(204)?;
    part(server, &id, "3", b"c").await?.expect(204)?;
    for list in ["[1]", "[3,1]", "[]", "[1,2,3]", "[1,1,3]", "[1,3,4]"] {
        complete(server, &id, &format!(r#"{{"parts":{list}}}"#))
            .await?
            .expect_message(400, "Parts mismatch or missing parts")
            .with_context(|| list.to_owned())?;
    }
    for text in ["", "x", "[1,3]", r#"{"parts":"1,3"}"#, r#"{"parts":[-1]}"#] {
        complete(server, &id, text)
            .await?
            .expect_any(&[400, 415, 422])
            .with_context(|| text.to_owned())?;
    }
    server.writer().head(&module.target()).await?.expect(404)?;
    complete(server, &id, r#"{"parts":[1,3]}"#).await?.expect(204)?;
    let hit = server.writer().get(&module.target()).await?;
    hit.expect(200)?.expect_body(b"ac")?;
    Ok(())
}

async fn numbers(server: &Server) -> Result<()> {
    server.contract()?;
    let id = begin(server, &Module::new(server, "numbers")).await?;
    for number in ["0", "10001", "-1", "x", "", "1.5", "99999999999999999999"] {
        part(server, &id, number, b"x")
            .await?
            .expect(400)
            .with_context(|| format!("part_number={number}"))?;
    }
    for number in ["1", "10000"] {
        part(server, &id, number, b"x").await?.expect(204)?;
    }
    Ok(())
}

async fn part_limit(server: &Server) -> Result<()> {
    server.contract()?;
    let module = Module::new(server, "limit");
    let id = begin(server, &module).await?;
    let whole = server.body((10 << 20) + 1);
    part(server, &id, "1", &whole)
        .await?
        .expect_message(413, "Part exceeds 10MB limit")?;
    complete(server, &id, r#"{"parts":[1]}"#)
        .await?
        .expect_message(400, "Parts mismatch or missing parts")?;
    let allowed = whole.get(..10 << 20).unwrap_or_default();
    part(server, &id, "1", allowed).await?.expect(204)?;
    complete(server, &id, r#"{"parts":[1]}"#).await?.expect(204)?;
    let hit = server.writer().get(&module.target()).await?;
    hit.expect(200)?.expect_body(allowed)?;
    Ok(())
}

async fn unknown(server: &Server) -> Result<()> {
    server.contract()?;
    for id in ["0192aaaa-0000-7000-8000-000000000000", "..", "x", "%2e%2e%2f"] {
        part(server, id, "1", b"x")
            .await?
            .expect_message(404, "Upload not found")
            .with_context(|| id.to_owned())?;
        complete(server, id, r#"{"parts":[1]}"#)
            .await?
            .expect_message(404, "Upload not found")?;
    }
    Ok(())
}

async fn parameters(server: &Server) -> Result<()> {
    server.contract()?;
    let scope = server.scope();
    for target in [
        format!("/api/cache/module/start?{scope}&name=n"),
        format!("/api/cache/module/start?{scope}&hash=h"),
        format!("/api/cache/module/start?{scope}&hash=h&name=n&hash=i"),
        format!("/api/cache/module/part?{scope}&part_number=1"),
        format!("/api/cache/module/part?{scope}&upload_id=x"),
        format!("/api/cache/module/complete?{scope}"),
    ] {
        let refused = server.writer().post(&target, b"x").await?;
        refused.expect(400)?.message()?;
    }
    Ok(())
}

async fn miss(server: &Server) -> Result<()> {
    server.contract()?;
    let module = Module::new(server, "none");
    let writer = server.writer();
    writer.head(&module.target()).await?.expect(404)?.expect_body(b"")?;
    writer.get(&module.target()).await?.expect(404)?.message()?;
    Ok(())
}
