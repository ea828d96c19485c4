//! Modules, which are uploaded in parts.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::http::Server;
use crate::http::wire::Response;
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    round_trip, "module-parts-become-one", "contract: module multipart" [contract]:
        "parts sent in any order, and replaced, become one module; HEAD is 204, GET its bytes";
    known, "module-start-of-known-is-null", "contract: module multipart" [contract]:
        "starting an upload of what is stored gives no upload id";
    identity, "module-identity", "contract: module multipart" [contract]:
        "category, hash and name are the identity; the id in the path is not; the category defaults to builds";
    mismatch, "module-parts-must-match", "contract: module multipart" [contract]:
        "the list must be exactly the uploaded parts, ascending, and a refused list can be corrected";
    numbers, "module-part-numbers", "contract: module multipart" [contract]:
        "part numbers are 1 to 10000; anything else is 400";
    part_limit, "module-part-limit-10-mib", "contract: module multipart" [contract]:
        "10 MiB is a part, one byte more is 413 and is not kept";
    unknown, "module-unknown-upload-404", "contract: module multipart" [contract]:
        "an upload id nobody gave is 404 with the contract's message";
    parameters, "module-parameters-are-required", "contract: module multipart" [contract]:
        "start, part and complete without their parameters are 400";
    miss, "module-miss", "contract: module multipart" [contract]:
        "HEAD of a miss is 404 without a body, GET 404 with a message";
};

/// A module under one name; `server` writes it.
struct Module<'s> {
    server: &'s Server,
    query: String,
}

impl<'s> Module<'s> {
    fn new(server: &'s Server, name: &str) -> Self {
        Self::of(server, &format!("hash={}&name=Feature", server.key(name)))
    }

    fn of(server: &'s Server, query: &str) -> Self {
        let query = format!("{}&{query}", server.scope());
        Self { server, query }
    }

    fn target(&self) -> String {
        format!("/api/cache/module/any?{}", self.query)
    }

    async fn start(&self) -> Result<Value> {
        let target = format!("/api/cache/module/start?{}", self.query);
        let started = self.server.writer().post(&target, b"").await?;
        let id = started.expect(200)?.json()?.get("upload_id").cloned();
        id.with_context(|| format!("no upload_id in {started}"))
    }

    async fn begin(&self) -> Result<Upload<'s>> {
        let id = self.start().await?;
        let id = id.as_str().with_context(|| format!("no upload id: {id}"))?.to_owned();
        Ok(Upload {
            server: self.server,
            id,
        })
    }

    async fn store(&self, body: &[u8]) -> Result<()> {
        let upload = self.begin().await?;
        upload.part("1", body).await?.expect(204)?;
        upload.complete("[1]").await?.expect(204).map(drop)
    }
}

struct Upload<'s> {
    server: &'s Server,
    id: String,
}

impl Upload<'_> {
    async fn part(&self, number: &str, body: &[u8]) -> Result<Response> {
        let target = self.server.api("module/part");
        let target = format!("{target}&upload_id={}&part_number={number}", self.id);
        self.server.writer().post(&target, body).await
    }

    async fn complete(&self, list: &str) -> Result<Response> {
        self.complete_with(&format!(r#"{{"parts":{list}}}"#)).await
    }

    async fn complete_with(&self, text: &str) -> Result<Response> {
        let target = format!("{}&upload_id={}", self.server.api("module/complete"), self.id);
        let json = [("Content-Type", "application/json")];
        self.server.writer().send("POST", &target, &json, text.as_bytes()).await
    }
}

async fn round_trip(server: &Server) -> Result<()> {
    let (writer, module) = (server.writer(), Module::new(server, "module"));
    let upload = module.begin().await?;
    upload.part("2", b"world").await?.expect(204)?.expect_body(b"")?;
    upload.part("1", b"wrong").await?.expect(204)?;
    upload.part("1", b"hello ").await?.expect(204)?;
    writer.head(&module.target()).await?.expect(404)?;
    upload.complete("[1,2]").await?.expect(204)?.expect_body(b"")?;
    writer.head(&module.target()).await?.expect(204)?.expect_body(b"")?;
    writer.hit(&module.target(), b"hello world").await?;
    let again = upload.complete("[1,2]").await?;
    again.expect_message(404, "Upload not found").map(drop)
}

async fn known(server: &Server) -> Result<()> {
    let module = Module::new(server, "known");
    module.store(b"x").await?;
    let id = module.start().await?;
    ensure!(id.is_null(), "a known module got the upload id {id}");
    Ok(())
}

async fn identity(server: &Server) -> Result<()> {
    let (writer, hash) = (server.writer(), server.key("identity"));
    let genuine = Module::of(server, &format!("hash={hash}&name=Feature"));
    genuine.store(b"builds").await?;
    for (path, query, status) in [
        ("any", format!("hash={hash}&name=Feature"), 204),
        ("other", format!("hash={hash}&name=Feature&cache_category=builds"), 204),
        ("any", format!("hash={hash}&name=Feature&cache_category=selective"), 404),
        ("any", format!("hash={hash}&name=Other"), 404),
        ("any", format!("hash={hash}x&name=Feature"), 404),
        ("any", format!("hash={hash}F&name=eature"), 404),
        ("any", format!("hash={hash}%2FFeature&name="), 400),
    ] {
        let target = format!("{}&{query}", server.api(&format!("module/{path}")));
        writer.sends("HEAD", &target, &[], b"", status).await?;
    }
    Ok(())
}

const MISMATCH: &str = "Parts mismatch or missing parts";

async fn mismatch(server: &Server) -> Result<()> {
    let module = Module::new(server, "mismatch");
    let upload = module.begin().await?;
    upload.part("1", b"a").await?.expect(204)?;
    upload.part("3", b"c").await?.expect(204)?;
    for list in ["[1]", "[3,1]", "[]", "[1,2,3]", "[1,1,3]", "[1,3,4]"] {
        let refused = upload.complete(list).await?;
        refused.expect_message(400, MISMATCH).context(list)?;
    }
    for text in ["", "x", "[1,3]", r#"{"parts":"1,3"}"#, r#"{"parts":[-1]}"#] {
        let refused = upload.complete_with(text).await?;
        refused.expect_any(&[400, 415, 422]).context(text)?;
    }
    server.writer().head(&module.target()).await?.expect(404)?;
    upload.complete("[1,3]").await?.expect(204)?;
    server.writer().hit(&module.target(), b"ac").await
}

async fn numbers(server: &Server) -> Result<()> {
    let upload = Module::new(server, "numbers").begin().await?;
    for number in ["0", "10001", "-1", "x", "", "1.5", "99999999999999999999"] {
        upload.part(number, b"x").await?.expect(400)?;
    }
    for number in ["1", "10000"] {
        upload.part(number, b"x").await?.expect(204)?;
    }
    Ok(())
}

async fn part_limit(server: &Server) -> Result<()> {
    let module = Module::new(server, "limit");
    let upload = module.begin().await?;
    let whole = server.body((10 << 20) + 1);
    let refused = upload.part("1", &whole).await?;
    refused.expect_message(413, "Part exceeds 10MB limit")?;
    upload.complete("[1]").await?.expect_message(400, MISMATCH)?;
    let allowed = whole.get(..10 << 20).unwrap_or_default();
    upload.part("1", allowed).await?.expect(204)?;
    upload.complete("[1]").await?.expect(204)?;
    server.writer().hit(&module.target(), allowed).await
}

async fn unknown(server: &Server) -> Result<()> {
    for id in ["0192aaaa-0000-7000-8000-000000000000", "..", "x", "%2e%2e%2f"] {
        let upload = Upload {
            server,
            id: id.to_owned(),
        };
        for refused in [upload.part("1", b"x").await?, upload.complete("[1]").await?] {
            refused.expect_message(404, "Upload not found")?;
        }
    }
    Ok(())
}

async fn parameters(server: &Server) -> Result<()> {
    for (path, query) in [
        ("start", "&name=n"),
        ("start", "&hash=h"),
        ("start", "&hash=h&name=n&hash=i"),
        ("part", "&part_number=1"),
        ("part", "&upload_id=x"),
        ("complete", ""),
    ] {
        let target = format!("{}{query}", server.api(&format!("module/{path}")));
        server.writer().post(&target, b"x").await?.expect(400)?.message()?;
    }
    Ok(())
}

async fn miss(server: &Server) -> Result<()> {
    let (writer, module) = (server.writer(), Module::new(server, "none"));
    writer.head(&module.target()).await?.expect(404)?.expect_body(b"")?;
    writer.get(&module.target()).await?.expect(404)?.message().map(drop)
}
