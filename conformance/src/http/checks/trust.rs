//! Who may do what.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::http::tokens::reading;
use crate::http::{Caller, Server, entries};
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    missing, "trust-401-without-credential", "contract: auth; RFC 9110 §11.6.1" [contract, guarded]:
        "without a credential everything but the probes is 401, says how to authenticate, and the error is JSON";
    unknown, "trust-401-unknown-credential", "contract: auth" [contract, guarded]:
        "a token nobody issued is 401 or 403 everywhere";
    read_only, "trust-reader-may-not-write", "contract: auth" [contract]:
        "a read grant reads with GET and HEAD, and every write is 403 and changes nothing";
    other_tenant, "trust-other-tenant-403", "contract: auth" [contract]:
        "another tenant's credential is 403 for reading and writing";
    other_project, "trust-other-project-403", "contract: auth" [contract]:
        "a grant of one project is 403 in another";
    basic, "trust-basic-password-is-the-token", "contract: auth" [contract, guarded]:
        "the token is accepted as the password of Basic, whatever the user name";
    bare, "trust-bearer-prefix-is-optional", "contract: auth" [contract, guarded]:
        "the token alone is accepted too";
    nx, "trust-nx-is-refused-in-plain-text", "contract: Nx" [contract, guarded]:
        "Nx is refused as plain text, and no write with anything but 403, which is all that does not fail a build";
    accounts, "trust-nx-and-metro-need-a-grant", "contract: auth, Nx, Metro" [contract]:
        "Nx and Metro work with a grant of the account, and are refused without";
    probes, "trust-probes-need-nothing", "contract: probes" [contract]:
        "probes and metrics answer without a credential and with a wrong one";
};

/// A method, a target, a body, and whether it writes.
type Route = (&'static str, String, Vec<u8>, bool);

/// Every way to read or write something, without bodies that would make it a bad request.
fn routes(server: &Server, key: &str) -> Vec<Route> {
    let module = |path: &str, rest: &str| format!("{}&{rest}", server.api(&format!("module/{path}")));
    let named = format!("hash={key}&name=n");
    let entry: &[u8] = br#"{"cas_id":"trust","entries":[]}"#;
    let routes: [(_, _, &[u8], _); 17] = [
        ("GET", server.gradle(key), b"", false),
        ("HEAD", server.gradle(key), b"", false),
        ("PUT", server.gradle(key), b"x", true),
        ("GET", server.api(&format!("cas/{key}")), b"", false),
        ("POST", server.api(&format!("cas/{key}")), b"x", true),
        ("GET", server.api(&format!("keyvalue/{key}")), b"", false),
        ("PUT", server.api("keyvalue"), entry, true),
        ("HEAD", module("x", &named), b"", false),
        ("GET", module("x", &named), b"", false),
        ("POST", module("start", &named), b"", true),
        ("POST", module("part", "upload_id=x&part_number=1"), b"x", true),
        ("POST", module("complete", "upload_id=x"), br#"{"parts":[1]}"#, true),
        ("DELETE", server.api("clean"), b"", true),
        ("GET", format!("/v1/cache/{key}"), b"", false),
        ("PUT", format!("/v1/cache/{key}"), b"x", true),
        ("GET", format!("/api/metro/cache/{key}"), b"", false),
        ("PUT", format!("/api/metro/cache/{key}"), b"x", true),
    ];
    let owned = |(method, target, body, writes): (_, _, &[u8], _)| (method, target, body.to_vec(), writes);
    let mut routes: Vec<Route> = routes.into_iter().map(owned).collect();
    for entry in entries(&server.project, key) {
        routes.push(("GET", entry.target.clone(), Vec::new(), false));
        routes.push(("PUT", entry.target, entry.body, true));
    }
    routes.push(("MKCOL", format!("/sccache/{}/{key}/", server.project), Vec::new(), true));
    routes
}

async fn missing(server: &Server) -> Result<()> {
    for (method, target, body, _) in routes(server, &server.key("trust")) {
        let refused = server.anonymous().send(method, &target, &[], &body).await?;
        // Nx takes 403 for "do not store", breaks a build for anything else, and reads errors as plain text.
        let nx = method == "PUT" && target.starts_with("/v1/");
        refused.expect_any(if nx { &[401, 403] } else { &[401] })?;
        if method != "HEAD" && target.starts_with("/api/") {
            refused.message()?;
        }
        let challenge = refused.field("www-authenticate");
        // Maven sends no credentials before it is challenged so.
        let right = match (target.starts_with("/api/"), &challenge) {
            (true, challenge) => challenge.is_some(),
            (false, challenge) => challenge.as_deref() == Some("Basic realm=\"kura\""),
        };
        let challenged = refused.status != 401 || right;
        ensure!(challenged, "the challenge is {challenge:?}: {refused}");
    }
    // A caller that says nothing learns nothing, not even that the scope is missing.
    for target in [server.gradle("k"), "/api/cache/gradle/k".to_owned()] {
        let refused = server.anonymous().get(&target).await?;
        refused.expect_message(401, "Missing Authorization header")?;
    }
    Ok(())
}

async fn unknown(server: &Server) -> Result<()> {
    for token in ["garbage", "a.b.c", "..", "0123456789abcdef0123456789abcdef"] {
        let caller = server.bearer(token);
        for (method, target, body, _) in routes(server, &server.key("trust")) {
            let refused = caller.send(method, &target, &[], &body).await?;
            refused.expect_any(&[401, 403])?;
        }
    }
    Ok(())
}

async fn read_only(server: &Server) -> Result<()> {
    let (writer, reader) = (server.writer(), server.reader()?);
    let (kept, fresh) = (server.gradle(&server.key("kept")), server.key("fresh"));
    writer.store(&kept, b"kept").await?;
    reader.hit(&kept, b"kept").await?;
    reader.head(&kept).await?.expect(200)?;
    for (method, target, body, writes) in routes(server, &fresh) {
        let answer = reader.send(method, &target, &[], &body).await?;
        answer.expect_any(match (writes, target.contains(&server.project)) {
            (true, _) => &[403],
            (false, true) => &[404],
            // Whether the account may be read depends on what the reader was granted.
            (false, false) => &[403, 404],
        })?;
    }
    for (method, target, _, writes) in routes(server, &fresh) {
        if !writes && method == "GET" {
            writer.miss(&target).await.context("it was stored")?;
        }
    }
    writer.hit(&kept, b"kept").await
}

async fn other_tenant(server: &Server) -> Result<()> {
    all_forbidden(server, server.stranger()?).await
}

/// Nothing may be read, nothing may be stored.
async fn all_forbidden(server: &Server, caller: Caller<'_>) -> Result<()> {
    let key = server.key("forbidden");
    server.writer().store(&server.gradle(&key), b"mine").await?;
    for (method, target, body, _) in routes(server, &key) {
        caller.sends(method, &target, &[], &body, 403).await?;
    }
    server.writer().hit(&server.gradle(&key), b"mine").await
}

async fn other_project(server: &Server) -> Result<()> {
    let (writer, owner, project) = (server.writer(), server.victim()?, &server.victim_project);
    // Who was granted another project may do nothing in this one, nor in the account itself.
    all_forbidden(server, owner).await?;
    for query in [
        format!("tenant_id={}", server.tenant),
        format!("tenant_id=other&namespace_id={project}"),
    ] {
        let target = format!("/api/cache/gradle/k?{query}");
        owner.sends("GET", &target, &[], b"", 403).await?;
    }
    let theirs = server.api_of(project, &format!("gradle/{}", server.key("theirs")));
    owner.store(&theirs, b"theirs").await?;
    for (method, body) in [("GET", &b""[..]), ("HEAD", b""), ("PUT", b"x")] {
        writer.sends(method, &theirs, &[], body, 403).await?;
    }
    writer.delete(&server.api_of(project, "clean")).await?.expect(403)?;
    owner.hit(&theirs, b"theirs").await
}

async fn basic(server: &Server) -> Result<()> {
    let (token, anonymous) = (writers_token(server)?, server.anonymous());
    let none = server.gradle("none");
    let basic = |user: &str| format!("Basic {}", STANDARD.encode(format!("{user}:{token}")));
    for user in ["", "anyone", "me@example.invalid"] {
        let fields = [("Authorization", basic(user))];
        let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
        let answer = anonymous.sends("GET", &none, &fields, b"", 404).await;
        answer.with_context(|| format!("user {user:?}"))?;
    }
    let value = basic("anyone");
    for entry in entries(&server.project, &server.key("basic")) {
        let mut fields = entry.fields();
        fields.push(("Authorization", &value));
        anonymous.sends("PUT", &entry.target, &fields, &entry.body, 200).await?;
        server.writer().hit(&entry.target, &entry.body).await?;
    }
    Ok(())
}

fn writers_token(server: &Server) -> Result<&str> {
    let token = server.credentials.writer.as_ref().context("no credential")?;
    Ok(token.expose())
}

async fn bare(server: &Server) -> Result<()> {
    let token = writers_token(server)?;
    for value in [token, &format!("bearer {token}")] {
        let fields = [("Authorization", value)];
        server
            .anonymous()
            .sends("GET", &server.gradle("none"), &fields, b"", 404)
            .await?;
    }
    Ok(())
}

async fn accounts(server: &Server) -> Result<()> {
    let (writer, owner) = (server.writer(), server.victim()?);
    for path in ["/v1/cache", "/api/metro/cache"] {
        let target = format!("{path}/{}", server.key("account"));
        // Who was granted one project was not granted the account.
        owner.puts(&target, b"x", 403).await?;
        writer.puts(&target, b"x", 200).await?;
        owner.sends("GET", &target, &[], b"", 403).await?;
        writer.hit(&target, b"x").await?;
        if let Some(forge) = &server.credentials.forge {
            let token = forge.sign(&reading(&[&server.tenant], &[]))?;
            let reader = server.bearer(&token);
            reader.hit(&target, b"x").await?;
            reader.puts(&target, b"x", 403).await?;
        }
    }
    Ok(())
}

async fn probes(server: &Server) -> Result<()> {
    for path in ["/up", "/ready", "/status/rollout", "/status/cluster", "/metrics"] {
        server.anonymous().get(path).await?.expect(200)?;
        server.bearer("garbage").get(path).await?.expect(200)?;
    }
    Ok(())
}

async fn nx(server: &Server) -> Result<()> {
    let target = format!("/v1/cache/{}", server.key("nx"));
    let (anonymous, reader, writer) = (server.anonymous(), server.reader()?, server.writer());
    for (refused, status) in [
        (anonymous.get(&target).await?, 401),
        (anonymous.put(&target, b"x").await?, 403),
        (reader.put(&target, b"x").await?, 403),
    ] {
        refused.expect(status)?.expect_field("content-type", "text/plain")?;
    }
    if !server.transport.is_http2() {
        let large = writer.head_of("PUT", &target, &[("Content-Length", "3000000000")]);
        server.told(large).await?.response("PUT").await?.expect(403)?;
    }
    writer.miss(&target).await?;
    writer.puts(&target, b"x", 200).await
}
