//! Who may do what.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::http::tokens::reading;
use crate::http::{Caller, Server, entries};
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    missing, "trust-401-without-credential", "contract: auth; RFC 9110 §11.6.1":
        "without a credential everything but the probes is 401, says how to authenticate, and the error is JSON";
    unknown, "trust-401-unknown-credential", "contract: auth":
        "a token nobody issued is 401 or 403 everywhere";
    read_only, "trust-reader-may-not-write", "contract: auth":
        "a read grant reads with GET and HEAD, and every write is 403 and changes nothing";
    other_tenant, "trust-other-tenant-403", "contract: auth":
        "another tenant's credential is 403 for reading and writing";
    other_project, "trust-other-project-403", "contract: auth":
        "a grant of one project is 403 in another";
    basic, "trust-basic-password-is-the-token", "contract: auth":
        "the token is accepted as the password of Basic, whatever the user name";
    bare, "trust-bearer-prefix-is-optional", "contract: auth":
        "the token alone is accepted too";
    nx, "trust-nx-is-refused-in-plain-text", "contract: Nx":
        "Nx is refused as plain text, and no write with anything but 403, which is all that does not fail a build";
    accounts, "trust-nx-and-metro-need-a-grant", "contract: auth, Nx, Metro":
        "Nx and Metro work with a grant of the account, and are refused without";
    probes, "trust-probes-need-nothing", "contract: probes":
        "probes and metrics answer without a credential and with a wrong one";
};

/// Every way to read or write something, without bodies that would make it a bad request.
fn routes(server: &Server, key: &str) -> Vec<(&'static str, String, Vec<u8>, bool)> {
    let scope = server.scope();
    let mut routes: Vec<(&str, String, &[u8], bool)> = vec![
        ("GET", server.gradle(key), b"", false),
        ("HEAD", server.gradle(key), b"", false),
        ("PUT", server.gradle(key), b"x", true),
        ("GET", format!("/api/cache/cas/{key}?{scope}"), b"", false),
        ("POST", format!("/api/cache/cas/{key}?{scope}"), b"x", true),
        ("GET", format!("/api/cache/keyvalue/{key}?{scope}"), b"", false),
        (
            "PUT",
            format!("/api/cache/keyvalue?{scope}"),
            br#"{"cas_id":"trust","entries":[]}"#,
            true,
        ),
        (
            "HEAD",
            format!("/api/cache/module/x?{scope}&hash={key}&name=n"),
            b"",
            false,
        ),
        (
            "GET",
            format!("/api/cache/module/x?{scope}&hash={key}&name=n"),
            b"",
            false,
        ),
        (
            "POST",
            format!("/api/cache/module/start?{scope}&hash={key}&name=n"),
            b"",
            true,
        ),
        (
            "POST",
            format!("/api/cache/module/part?{scope}&upload_id=x&part_number=1"),
            b"x",
            true,
        ),
        (
            "POST",
            format!("/api/cache/module/complete?{scope}&upload_id=x"),
            br#"{"parts":[1]}"#,
            true,
        ),
        ("DELETE", format!("/api/cache/clean?{scope}"), b"", true),
    ];
    routes.extend([
        ("GET", format!("/v1/cache/{key}"), &b""[..], false),
        ("PUT", format!("/v1/cache/{key}"), b"x", true),
        ("GET", format!("/api/metro/cache/{key}"), b"", false),
        ("PUT", format!("/api/metro/cache/{key}"), b"x", true),
    ]);
    let owned = |(method, target, body, writes): (_, _, &[u8], _)| (method, target, body.to_vec(), writes);
    let mut routes: Vec<_> = routes.into_iter().map(owned).collect();
    for entry in entries(&server.project, key) {
        routes.push(("GET", entry.target.clone(), Vec::new(), false));
        routes.push(("PUT", entry.target, entry.body, true));
    }
    routes.push(("MKCOL", format!("/sccache/{}/{key}/", server.project), Vec::new(), true));
    routes
}

async fn missing(server: &Server) -> Result<()> {
    server.contract()?;
    server.guarded()?;
    for (method, target, body, _) in routes(server, &server.key("trust")) {
        let refused = server.anonymous().send(method, &target, &[], &body).await?;
        // Nx takes 403 for "do not store", breaks a build for anything else, and reads errors as plain text.
        let statuses: &[u16] = if method == "PUT" && target.starts_with("/v1/") {
            &[401, 403]
        } else {
            &[401]
        };
        refused.expect_any(statuses)?;
        if method != "HEAD" && target.starts_with("/api/") {
            refused.message().with_context(|| format!("{method} {target}"))?;
        }
        let challenge = refused.field("www-authenticate");
        // Maven sends no credentials before it is challenged so.
        let right = match (target.starts_with("/api/"), &challenge) {
            (true, challenge) => challenge.is_some(),
            (false, challenge) => challenge.as_deref() == Some("Basic realm=\"kura\""),
        };
        ensure!(
            refused.status != 401 || right,
            "{method} {target}: the challenge of 401 is {challenge:?}"
        );
    }
    // A caller that says nothing learns nothing, not even that the scope is missing.
    for target in [server.gradle("k"), "/api/cache/gradle/k".to_owned()] {
        let refused = server.anonymous().get(&target).await?;
        refused.expect_message(401, "Missing Authorization header")?;
    }
    Ok(())
}

async fn unknown(server: &Server) -> Result<()> {
    server.contract()?;
    server.guarded()?;
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
    server.contract()?;
    let (writer, reader) = (server.writer(), server.reader()?);
    let (key, fresh) = (server.key("kept"), server.key("fresh"));
    writer.store(&server.gradle(&key), b"kept").await?;
    reader
        .get(&server.gradle(&key))
        .await?
        .expect(200)?
        .expect_body(b"kept")?;
    reader.head(&server.gradle(&key)).await?.expect(200)?;
    let inside = |target: &str| target.contains(&server.project);
    for (method, target, body, writes) in routes(server, &fresh) {
        let answer = reader.send(method, &target, &[], &body).await?;
        let statuses: &[u16] = match (writes, inside(&target)) {
            (true, _) => &[403],
            (false, true) => &[404],
            // Whether the account may be read depends on what the reader was granted.
            (false, false) => &[403, 404],
        };
        answer.expect_any(statuses)?;
    }
    for (method, target, body, writes) in routes(server, &fresh) {
        if !writes && method == "GET" {
            let answer = writer.send(method, &target, &[], &body).await?;
            answer.expect(404).with_context(|| format!("{target} was stored"))?;
        }
    }
    writer
        .get(&server.gradle(&key))
        .await?
        .expect(200)?
        .expect_body(b"kept")?;
    Ok(())
}

async fn other_tenant(server: &Server) -> Result<()> {
    server.contract()?;
    let stranger = server.stranger()?;
    all_forbidden(server, stranger).await
}

/// Nothing may be read, nothing may be stored.
async fn all_forbidden(server: &Server, caller: Caller<'_>) -> Result<()> {
    let key = server.key("forbidden");
    server.writer().store(&server.gradle(&key), b"mine").await?;
    for (method, target, body, _) in routes(server, &key) {
        let refused = caller.send(method, &target, &[], &body).await?;
        refused.expect(403)?;
    }
    let kept = server.writer().get(&server.gradle(&key)).await?;
    kept.expect(200)?.expect_body(b"mine")?;
    Ok(())
}

async fn other_project(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, owner) = (server.writer(), server.victim()?);
    // Who was granted another project may do nothing in this one, nor in the account itself.
    all_forbidden(server, owner).await?;
    for target in [
        format!("/api/cache/gradle/k?tenant_id={}", server.tenant),
        format!(
            "/api/cache/gradle/k?tenant_id=other&namespace_id={}",
            server.victim_project
        ),
    ] {
        owner.get(&target).await?.expect(403)?;
    }
    let key = server.key("theirs");
    let theirs = format!("/api/cache/gradle/{key}?{}", server.scope_of(&server.victim_project));
    owner.store(&theirs, b"theirs").await?;
    for (method, body) in [("GET", &b""[..]), ("HEAD", b""), ("PUT", b"x")] {
        writer.send(method, &theirs, &[], body).await?.expect(403)?;
    }
    let clean = format!("/api/cache/clean?{}", server.scope_of(&server.victim_project));
    writer.delete(&clean).await?.expect(403)?;
    owner.get(&theirs).await?.expect(200)?.expect_body(b"theirs")?;
    Ok(())
}

async fn basic(server: &Server) -> Result<()> {
    server.contract()?;
    server.guarded()?;
    let token = server.credentials.writer.as_ref().context("no credential")?;
    for user in ["", "anyone", "me@example.invalid"] {
        let value = format!("Basic {}", STANDARD.encode(format!("{user}:{}", token.expose())));
        let answer = server
            .anonymous()
            .send("GET", &server.gradle("none"), &[("Authorization", &value)], b"")
            .await?;
        answer.expect(404).with_context(|| format!("user {user:?}"))?;
    }
    let value = format!("Basic {}", STANDARD.encode(format!("anyone:{}", token.expose())));
    for entry in entries(&server.project, &server.key("basic")) {
        let mut fields = entry.fields();
        fields.push(("Authorization", &value));
        let stored = server
            .anonymous()
            .send("PUT", &entry.target, &fields, &entry.body)
            .await?;
        stored.expect(200)?;
        let hit = server.writer().get(&entry.target).await?;
        hit.expect(200)?.expect_body(&entry.body)?;
    }
    Ok(())
}

async fn bare(server: &Server) -> Result<()> {
    server.contract()?;
    server.guarded()?;
    let token = server.credentials.writer.as_ref().context("no credential")?;
    for value in [token.expose().clone(), format!("bearer {}", token.expose())] {
        let answer = server
            .anonymous()
            .send("GET", &server.gradle("none"), &[("Authorization", &value)], b"")
            .await?;
        answer.expect(404)?;
    }
    Ok(())
}

async fn accounts(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, owner) = (server.writer(), server.victim()?);
    for path in ["/v1/cache", "/api/metro/cache"] {
        let target = format!("{path}/{}", server.key("account"));
        // Who was granted one project was not granted the account.
        owner.put(&target, b"x").await?.expect(403)?;
        writer.put(&target, b"x").await?.expect(200)?;
        owner.get(&target).await?.expect(403)?;
        writer.get(&target).await?.expect(200)?;
        if let Some(forge) = &server.credentials.forge {
            let token = forge.sign(&reading(&[&server.tenant], &[]))?;
            let reader = server.bearer(&token);
            reader.get(&target).await?.expect(200)?;
            reader.put(&target, b"x").await?.expect(403)?;
        }
    }
    Ok(())
}

async fn probes(server: &Server) -> Result<()> {
    server.contract()?;
    for path in ["/up", "/ready", "/status/rollout", "/status/cluster", "/metrics"] {
        server.anonymous().get(path).await?.expect(200)?;
        server.bearer("garbage").get(path).await?.expect(200)?;
    }
    Ok(())
}

async fn nx(server: &Server) -> Result<()> {
    server.contract()?;
    server.guarded()?;
    let target = format!("/v1/cache/{}", server.key("nx"));
    let (anonymous, reader) = (server.anonymous(), server.reader()?);
    for (refused, status) in [
        (anonymous.get(&target).await?, 401),
        (anonymous.put(&target, b"x").await?, 403),
        (reader.put(&target, b"x").await?, 403),
    ] {
        let media = refused.expect(status)?.field("content-type");
        ensure!(media.as_deref() == Some("text/plain"), "refused as {media:?}");
    }
    if !server.transport.is_http2() {
        let mut wire = server.wire().await?;
        let large = [("Content-Length", "3000000000")];
        wire.write(server.writer().head_of("PUT", &target, &large)).await;
        wire.response("PUT").await?.expect(403)?;
    }
    server.writer().get(&target).await?.expect(404)?;
    server.writer().put(&target, b"x").await?.expect(200)?;
    Ok(())
}
