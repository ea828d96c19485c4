//! What is told to those who ask for what is not there.

use anyhow::{Context, Result, ensure};

use crate::http::Server;
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    unknown_path, "error-unknown-path-is-bare-404", "contract: listeners" [contract]:
        "a path that is no route is 404 without a body; so is everything internal";
    method, "error-method-405", "RFC 9110 §15.5.6" [contract]:
        "a method the route does not have is 405 and names those it has";
    grpc, "error-unknown-grpc-is-status-12", "contract: listeners; gRPC over HTTP/2" [contract]:
        "an unknown gRPC method is HTTP 200 with grpc-status 12";
    key_length, "error-endless-key-400", "contract: limits" [contract]:
        "a key longer than any tool's is refused with 4xx and stored nowhere";
    fields, "error-fields-refused", "RFC 9110 §10.1.1; RFC 6585 §5" [contract]:
        "a repeated Authorization or Range is 400, an unknown expectation 417, too many or too large fields 431";
};

async fn unknown_path(server: &Server) -> Result<()> {
    for target in [
        "/",
        "/nothing",
        "/_internal/backfill",
        "/api/cache",
        "/api/cache/gradle/",
        "/api/cache/gradle/a/b",
        "/api/cache/unknown/k",
        "/_internal/status",
        "/_internal/replicate/artifact",
        "/up/",
    ] {
        server.writer().get(target).await?.expect(404)?.expect_body(b"")?;
    }
    Ok(())
}

async fn method(server: &Server) -> Result<()> {
    for (method, path, has) in [
        ("DELETE", "/api/cache/gradle/k", "PUT"),
        ("POST", "/api/cache/gradle/k", "GET"),
        ("PUT", "/api/cache/cas/k", "POST"),
        ("GET", "/api/cache/clean", "DELETE"),
        ("GET", "/api/cache/keyvalue", "PUT"),
        ("PUT", "/api/cache/module/start", "POST"),
        ("POST", "/v1/cache/k", "PUT"),
        ("PATCH", "/api/metro/cache/k", "PUT"),
    ] {
        let target = format!("{path}?{}", server.scope());
        let refused = server.writer().send(method, &target, &[], b"").await?;
        let allow = refused.expect(405)?.field("allow").unwrap_or_default();
        ensure!(allow.contains(has), "{method} {path}: Allow is {allow:?}");
    }
    Ok(())
}

async fn grpc(server: &Server) -> Result<()> {
    for media in ["application/grpc", "application/grpc+proto"] {
        let fields = [("content-type", media)];
        let answer = server.writer().send("POST", "/some.Service/Call", &fields, b"").await?;
        answer.expect(200)?.expect_field("grpc-status", "12")?;
    }
    Ok(())
}

async fn key_length(server: &Server) -> Result<()> {
    let target = server.gradle(&"k".repeat(5000));
    server.writer().put(&target, b"x").await?.expect_refusal().map(drop)
}

async fn fields(server: &Server) -> Result<()> {
    let target = server.gradle(&server.key("fields"));
    let large = "a".repeat(40_000);
    for (status, fields) in [
        (400, vec![("Authorization", "a"), ("Authorization", "b")]),
        (400, vec![("Range", "bytes=0-1"), ("Range", "bytes=2-3")]),
        (417, vec![("Expect", "something")]),
        (431, vec![("X-Many", "y"); 70]),
        (431, vec![("X-Large", large.as_str())]),
    ] {
        let name = fields.first().map_or("", |(name, _)| *name);
        match server.anonymous().send("GET", &target, &fields, b"").await {
            Ok(refused) => refused.expect(status).context(name)?,
            // A library of HTTP/2 may end the stream of what it will not even read.
            Err(_) if name == "X-Large" && server.transport.is_http2() => continue,
            Err(error) => return Err(error),
        };
    }
    Ok(())
}
