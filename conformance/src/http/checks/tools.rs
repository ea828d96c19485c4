//! The routes of single tools: Gradle, Xcode, Nx, Metro, and those that name their project in the path.

use anyhow::{Context, Result, ensure};
use sha2::{Digest as _, Sha256};

use super::probes::{counted, metric};
use crate::http::server::hex;
use crate::http::wire::Response;
use crate::http::{Caller, Server};
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    gradle, "gradle-201-then-200", "contract: Gradle":
        "a new entry is 201, a known one 200; the first body stays";
    gradle_miss, "gradle-miss-message", "contract: Gradle":
        "a miss is 404 with the contract's message";
    gradle_limit, "gradle-limit-100-mib", "contract: Gradle":
        "more than 100 MiB is 413, told before the body is sent";
    xcode, "xcode-204-new-and-known", "contract: Xcode CAS":
        "storing answers 204 whether new or known; the first body stays";
    xcode_ids, "xcode-ids-are-opaque", "contract: Xcode CAS":
        "ids are opaque text and are not verified against the body";
    xcode_limit, "xcode-limit-256-mib", "contract: Xcode CAS":
        "more than 256 MiB is 413, told before the body is sent";
    nx, "nx-200-without-parameters", "contract: Nx":
        "Nx stores and reads with 200, names no tenant, and its misses are 404";
    metro, "metro-200-without-parameters", "contract: Metro":
        "Metro stores and reads with 200, names no tenant, and its misses are 404";
    apart, "kinds-are-apart", "contract: producers":
        "one key in two tools' routes is two entries";
    every_tool, "tools-round-trip", "contract: tools":
        "every tool stores with 200, reads back whole, in part and conditionally, is counted, and has its project to itself";
    limits, "tools-limits-413", "contract: tools":
        "a body over the limit of a tool's route is 413, told before the body is sent, and nothing is stored";
    gradle_paths, "gradle-both-paths", "contract: Gradle":
        "Gradle's path with the project in it names the entries of the other one, with 200 for every write";
    gradle_excess, "gradle-path-drops-too-much", "contract: Gradle":
        "Gradle takes 413 as a reason to stop reading, so a body over the limit is 200, dropped and counted";
    ccache, "ccache-layouts", "ccache: HTTP storage backend":
        "every layout of ccache names the same entry, and the last write wins";
    sccache, "sccache-webdav", "RFC 4918 §9.1, §9.3":
        "every folder is there without being made, files tell their length, and a reader may make nothing";
    maven, "maven-report-is-dropped", "contract: Maven":
        "what Maven stores comes back, but for the report that nothing reads, which is dropped and counted";
    go, "go-outputs-are-shared", "contract: Go":
        "an output is verified, stored once for all actions, is the blob that Bazel knows, and is counted for Go alone";
    generic, "generic-last-write-wins", "contract: plain paths":
        "a plain path keeps what was written last, however its name is escaped, and cannot be deleted";
    turborepo, "turborepo-tag-and-duration", "Vercel remote cache API":
        "tag and duration come back with the artifact at every size; malformed ones are 400";
    turborepo_api, "turborepo-api", "Vercel remote cache API":
        "status, events, queries and preflights are answered; a team goes by its name, its id or none";
};

/// An entry of a tool that names its project in the path.
#[derive(Debug)]
pub struct Entry {
    pub tool: &'static str,
    pub target: String,
    pub body: Vec<u8>,
    /// What its write needs beside the body.
    pub fields: Vec<(&'static str, String)>,
}

impl Entry {
    pub fn fields(&self) -> Vec<(&str, &str)> {
        self.fields
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect()
    }

    pub async fn put(&self, caller: Caller<'_>) -> Result<Response> {
        caller.send("PUT", &self.target, &self.fields(), &self.body).await
    }
}

/// One entry of each tool in the project; entries with another `salt` are others.
pub fn entries(project: &str, salt: &str) -> Vec<Entry> {
    let body = format!("what the tool made, {salt}").into_bytes();
    let (hash, action) = (sha256(&body), sha256(salt.as_bytes()));
    let entry = |tool, target| Entry {
        tool,
        target,
        body: body.clone(),
        fields: Vec::new(),
    };
    let (two, rest) = hash.split_at(2);
    let mut all = vec![
        entry("gradle", format!("/gradle/{project}/{hash}")),
        entry("bazel", format!("/bazel/{project}/cas/{hash}")),
        entry("turborepo", format!("/v8/artifacts/{hash}?slug={project}")),
        entry("ccache", format!("/ccache/{project}/{two}/{}", &rest[..38])),
        entry("sccache", format!("/sccache/{project}/pre/a/b/c/{hash}")),
        entry("maven", format!("/maven/{project}/v1.2/com.acme/app/{two}/app.jar")),
        entry("generic", format!("/generic/{project}/some/where/{hash}")),
        entry("bazel", format!("/bazel/{project}/ac/{action}")),
        entry("go", format!("/go/{project}/{action}")),
    ];
    for entry in &mut all {
        if entry.tool == "go" {
            entry.fields.push(("x-kura-output-id", hash.clone()));
        } else if entry.target.contains("/ac/") {
            // An exit code, which is an action result.
            entry.body = vec![4 << 3, 1];
        }
    }
    all
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The counter of requests of a tool in the project that ended so.
fn requests(server: &Server, tool: &str, result: &str) -> String {
    let project = &server.project;
    format!("kura_tool_requests_total{{tool=\"{tool}\",project=\"{project}\",result=\"{result}\"}}")
}

async fn gradle(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, target) = (server.writer(), server.gradle(&server.key("gradle")));
    writer.put(&target, b"first").await?.expect(201)?;
    writer.put(&target, b"second").await?.expect(200)?;
    writer.get(&target).await?.expect(200)?.expect_body(b"first")?;
    Ok(())
}

async fn gradle_miss(server: &Server) -> Result<()> {
    server.contract()?;
    let miss = server.writer().get(&server.gradle(&server.key("none"))).await?;
    miss.expect_message(404, "Artifact not found")?;
    Ok(())
}

async fn gradle_limit(server: &Server) -> Result<()> {
    server.contract()?;
    let target = server.gradle(&server.key("large"));
    too_large(server, "PUT", &target, 100 << 20).await
}

/// Announces one byte too many, and expects the refusal before any of them.
async fn too_large(server: &Server, method: &str, target: &str, limit: u64) -> Result<()> {
    let mut wire = server.wire().await?;
    let length = (limit + 1).to_string();
    let head = server.writer().head_of(method, target, &[("Content-Length", &length)]);
    wire.write(head).await;
    let refused = wire.response(method).await?;
    refused.expect_message(413, "Request body exceeded allowed size")?;
    ensure!(refused.closes(), "a body nobody will read must end the connection");
    server.writer().get(target).await?.expect(404)?;
    Ok(())
}

async fn xcode(server: &Server) -> Result<()> {
    server.contract()?;
    let writer = server.writer();
    let target = format!("/api/cache/cas/{}?{}", server.key("xcode"), server.scope());
    writer.get(&target).await?.expect_message(404, "Artifact not found")?;
    writer.post(&target, b"object").await?.expect(204)?.expect_body(b"")?;
    writer.post(&target, b"another").await?.expect(204)?;
    writer.get(&target).await?.expect(200)?.expect_body(b"object")?;
    Ok(())
}

async fn xcode_ids(server: &Server) -> Result<()> {
    server.contract()?;
    let writer = server.writer();
    let key = server.key("id");
    for id in [format!("0~{key}%3D%3D"), format!("{key}~"), format!("{key}%20x")] {
        let target = format!("/api/cache/cas/{id}?{}", server.scope());
        writer.post(&target, id.as_bytes()).await?.expect(204)?;
        writer.get(&target).await?.expect(200)?.expect_body(id.as_bytes())?;
    }
    Ok(())
}

async fn xcode_limit(server: &Server) -> Result<()> {
    server.contract()?;
    let target = format!("/api/cache/cas/{}?{}", server.key("large"), server.scope());
    too_large(server, "POST", &target, 256 << 20).await
}

async fn nx(server: &Server) -> Result<()> {
    server.contract()?;
    without_parameters(server, &format!("/v1/cache/{}", server.key("nx"))).await
}

async fn metro(server: &Server) -> Result<()> {
    server.contract()?;
    without_parameters(server, &format!("/api/metro/cache/{}", server.key("metro"))).await
}

async fn without_parameters(server: &Server, target: &str) -> Result<()> {
    let writer = server.writer();
    writer.get(target).await?.expect(404)?;
    writer.put(target, b"first").await?.expect(200)?;
    writer.get(target).await?.expect(200)?.expect_body(b"first")?;
    writer.head(target).await?.expect(200)?;
    Ok(())
}

async fn apart(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, key) = (server.writer(), server.key("apart"));
    writer.store(&server.gradle(&key), b"gradle").await?;
    for target in [
        format!("/api/cache/cas/{key}?{}", server.scope()),
        format!("/api/cache/keyvalue/{key}?{}", server.scope()),
        format!("/v1/cache/{key}"),
        format!("/api/metro/cache/{key}"),
    ] {
        writer.get(&target).await?.expect(404)?;
    }
    Ok(())
}

async fn every_tool(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, salt) = (server.writer(), server.key("tool"));
    let theirs = entries(&server.victim_project, &salt);
    for (entry, other) in entries(&server.project, &salt).into_iter().zip(theirs) {
        let (target, body) = (&entry.target, &entry.body);
        let shown = || target.clone();
        // Go's output is the blob that Bazel stored a moment ago: the bytes are shared.
        let written = if entry.tool == "go" { "known" } else { "stored" };
        let rows = ["hit", "miss", written].map(|result| requests(server, entry.tool, result));
        let mut before = Vec::new();
        for row in &rows {
            before.push(metric(server, row).await?);
        }
        writer.get(target).await?.expect(404)?;
        entry.put(writer).await?.expect(200)?;
        let hit = writer.get(target).await?;
        hit.expect(200)?.expect_body(body)?;
        let tag = hit.field("etag").with_context(shown)?;
        let head = writer.head(target).await?;
        ensure!(
            head.expect(200)?.field("content-length") == Some(body.len().to_string()),
            "HEAD of {target} got {head}"
        );
        let same = writer.send("GET", target, &[("If-None-Match", &tag)], b"").await?;
        same.expect(304)?;
        let part = writer.send("GET", target, &[("Range", "bytes=1-1")], b"").await?;
        part.expect(206)?.expect_body(body.get(1..2).unwrap_or_default())?;
        for (row, before) in rows.iter().zip(before) {
            counted(server, row, before + 1.0).await?;
        }
        if let Ok(owner) = server.victim() {
            owner.get(&other.target).await?.expect(404)?;
        }
    }
    Ok(())
}

async fn limits(server: &Server) -> Result<()> {
    server.contract()?;
    for entry in entries(&server.project, &server.key("large")) {
        // Gradle has a check of its own.
        if entry.tool == "gradle" {
            continue;
        }
        let limit: u64 = if entry.target.contains("/ac/") {
            4 << 20
        } else {
            2 << 30
        };
        let length = (limit + 1).to_string();
        let mut fields = entry.fields();
        fields.push(("Content-Length", &length));
        let mut wire = server.wire().await?;
        wire.write(server.writer().head_of("PUT", &entry.target, &fields)).await;
        let refused = wire.response("PUT").await?;
        refused.expect(413).with_context(|| entry.target.clone())?;
        server.writer().get(&entry.target).await?.expect(404)?;
    }
    Ok(())
}

async fn gradle_paths(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, key) = (server.writer(), server.key("both"));
    let (path, api) = (format!("/gradle/{}/{key}", server.project), server.gradle(&key));
    writer.put(&path, b"entry").await?.expect(200)?;
    writer.get(&api).await?.expect(200)?.expect_body(b"entry")?;
    for target in [&api, &path] {
        writer.put(target, b"another").await?.expect(200)?;
        writer.get(&path).await?.expect(200)?.expect_body(b"entry")?;
    }
    Ok(())
}

async fn gradle_excess(server: &Server) -> Result<()> {
    server.contract()?;
    let target = format!("/gradle/{}/{}", server.project, server.key("excess"));
    let row = requests(server, "gradle", "dropped");
    let before = metric(server, &row).await?;
    server
        .writer()
        .put(&target, &vec![0; (100 << 20) + 1])
        .await?
        .expect(200)?;
    server.writer().get(&target).await?.expect(404)?;
    counted(server, &row, before + 1.0).await
}

async fn ccache(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, root) = (server.writer(), format!("/ccache/{}", server.project));
    let hash = sha256(server.key("ccache").as_bytes());
    let (two, rest) = hash[..40].split_at(2);
    let layouts = [
        format!("{root}/{two}{rest}"),
        format!("{root}/{two}/{rest}"),
        format!("{root}/ac/{two}{rest}{}", &hash[..24]),
    ];
    // ccache may send a field without a value.
    let miss = writer.send("GET", &layouts[1], &[("Accept-Encoding", "")], b"").await?;
    miss.expect(404)?;
    for (number, target) in layouts.iter().enumerate() {
        let body = format!("result {number}").into_bytes();
        writer.put(target, &body).await?.expect(200)?;
        for other in &layouts {
            let hit = writer.get(other).await?;
            hit.expect(200)?.expect_body(&body)?;
        }
    }
    let old = format!("{root}/9f/v0123456789abcdefghijklmnopqrst");
    writer.put(&old, b"x").await?.expect(200)?;
    writer.get(&old).await?.expect(200)?;
    writer.get(&format!("{root}/nonsense")).await?.expect(400)?;
    Ok(())
}

async fn sccache(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, depth) = (server.writer(), [("Depth", "0")]);
    let root = format!("/sccache/{}/", server.project);
    let made = format!("{root}{}/", server.key("pre"));
    let check = format!("{made}.sccache_check");
    writer.get(&check).await?.expect(404)?;
    for folder in [&root, &made, &format!("{made}a/b/c/")] {
        let asked = b"<propfind xmlns=\"DAV:\"><allprop/></propfind>";
        let answer = writer.send("PROPFIND", folder, &depth, asked).await?;
        let text = answer.expect(207)?.text()?;
        let href = format!("<D:href>{folder}</D:href>");
        for part in [href.as_str(), "<D:collection/>", "getlastmodified"] {
            ensure!(text.contains(part), "{folder}: no {part} in {text}");
        }
        writer.send("MKCOL", folder, &depth, b"").await?.expect(201)?;
        writer.put(folder, b"x").await?.expect(405)?;
    }
    if let Ok(reader) = server.reader() {
        reader.send("PROPFIND", &made, &depth, b"").await?.expect(207)?;
        reader.send("MKCOL", &made, &depth, b"").await?.expect(403)?;
        // sccache goes on read-only.
        reader.put(&check, b"Hello, World!").await?.expect(403)?;
    }
    writer.put(&check, b"Hello, World!").await?.expect(200)?;
    let file = writer.send("PROPFIND", &check, &depth, b"").await?;
    let length = "<D:getcontentlength>13</D:getcontentlength>";
    ensure!(file.text()?.contains(length), "no {length} in {file}");
    let none = format!("{root}{}", server.key("none"));
    writer.send("PROPFIND", &none, &depth, b"").await?.expect(404)?;
    let options = server.anonymous().send("OPTIONS", &root, &[], b"").await?;
    ensure!(
        options.expect(200)?.field("dav").as_deref() == Some("1"),
        "got {options}"
    );
    writer.delete(&check).await?.expect(405)?;
    let elsewhere = format!("/generic/{}/a", server.project);
    writer.send("PROPFIND", &elsewhere, &depth, b"").await?.expect(405)?;
    Ok(())
}

async fn maven(server: &Server) -> Result<()> {
    server.contract()?;
    let writer = server.writer();
    let folder = format!(
        "/maven/{}/v1.2/com.acme/app/{}",
        server.project,
        &sha256(server.key("maven").as_bytes())[..16]
    );
    let row = requests(server, "maven", "dropped");
    let before = metric(server, &row).await?;
    for (name, body) in [("app.jar", &b"jar"[..]), ("buildinfo.xml", b"<build/>")] {
        let target = format!("{folder}/{name}");
        writer.put(&target, body).await?.expect(200)?;
        writer.get(&target).await?.expect(200)?.expect_body(body)?;
    }
    let report = format!("{folder}/uuid/build-cache-report.xml");
    writer.put(&report, b"<r/>").await?.expect(200)?;
    writer.get(&report).await?.expect(404)?;
    counted(server, &row, before + 1.0).await
}

async fn go(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, project) = (server.writer(), &server.project);
    let body = server.body(200_000);
    let id = sha256(&body);
    let artifacts =
        |verb: &str, result: &str| format!("kura_artifact_{verb}_total_total{{producer=\"go\",result=\"{result}\"}}");
    let sent = format!("kura_tool_bytes_total{{tool=\"go\",project=\"{project}\",direction=\"sent\"}}");
    let rows = [
        (requests(server, "go", "stored"), 1.0),
        (requests(server, "go", "known"), 1.0),
        (requests(server, "go", "hit"), 2.0),
        (artifacts("writes", "created"), 1.0),
        (artifacts("reads", "hit"), 2.0),
        (artifacts("reads", "miss"), 1.0),
        (sent, 400_000.0),
    ];
    let elsewhere = "kura_artifact_reads_total_total{producer=\"reapi\",result=\"hit\"}";
    let mut before = Vec::new();
    for (row, _) in &rows {
        before.push(metric(server, row).await?);
    }
    let not_for_go = metric(server, elsewhere).await?;
    let action = |salt: &str| format!("/go/{project}/{}", sha256(server.key(salt).as_bytes()));
    let actions = [action("one"), action("two")];
    writer.get(&action("none")).await?.expect(404)?;
    for action in &actions {
        writer
            .send("PUT", action, &[("x-kura-output-id", &id)], &body)
            .await?
            .expect(200)?;
        let hit = writer.get(action).await?;
        hit.expect(200)?.expect_body(&body)?;
        ensure!(hit.field("x-kura-output-id").as_ref() == Some(&id), "got {hit}");
    }
    for ((row, more), before) in rows.iter().zip(before) {
        counted(server, row, before + more).await?;
    }
    let now = metric(server, elsewhere).await?;
    ensure!(
        now.to_bits() == not_for_go.to_bits(),
        "Go's hits were counted as the Remote Execution API's"
    );
    let blob = writer.get(&format!("/bazel/{project}/cas/{id}")).await?;
    blob.expect(200)?.expect_body(&body)?;
    writer.put(&actions[0], &body).await?.expect(400)?;
    for wrong in ["ABC", &sha256(b"something else")] {
        let fresh = action("wrong");
        writer
            .send("PUT", &fresh, &[("x-kura-output-id", wrong)], &body)
            .await?
            .expect(400)?;
        writer.get(&fresh).await?.expect(404)?;
    }
    Ok(())
}

async fn generic(server: &Server) -> Result<()> {
    server.contract()?;
    let writer = server.writer();
    let target = format!(
        "/generic/{}/logs/{}/build%20log.txt",
        server.project,
        server.key("generic")
    );
    let escaped = target.replace("log.txt", "%6cog.txt");
    for body in [b"one", b"two"] {
        writer.put(&target, body).await?.expect(200)?;
        for target in [&target, &escaped] {
            writer.get(target).await?.expect(200)?.expect_body(body)?;
        }
    }
    let refused = writer.delete(&target).await?;
    let allow = refused.expect(405)?.field("allow");
    ensure!(
        allow.as_deref() == Some("GET, HEAD, PUT, OPTIONS"),
        "Allow is {allow:?}"
    );
    Ok(())
}

async fn turborepo(server: &Server) -> Result<()> {
    server.contract()?;
    let writer = server.writer();
    let target = || {
        format!(
            "/v8/artifacts/{}?slug={}",
            sha256(server.key("turbo").as_bytes()),
            server.project
        )
    };
    for size in [0, 1, 100_000, 131_071, 131_072, 5 << 20] {
        let (target, body, length) = (target(), server.body(size), size.to_string());
        let mut fields = vec![("x-artifact-tag", "dGFn"), ("x-artifact-duration", "1234")];
        if size == 0 {
            fields.push(("Content-Length", "0"));
        }
        writer.send("PUT", &target, &fields, &body).await?.expect(200)?;
        for method in ["GET", "HEAD"] {
            let hit = writer.send(method, &target, &[], b"").await?;
            hit.expect(200)?
                .expect_body(if method == "GET" { &body } else { b"" })?;
            for (name, value) in [
                ("x-artifact-tag", "dGFn"),
                ("x-artifact-duration", "1234"),
                ("content-length", &length),
            ] {
                ensure!(
                    hit.field(name).as_deref() == Some(value),
                    "{method} of {size} bytes: {name} is {:?}",
                    hit.field(name)
                );
            }
        }
        if size > 10 {
            let part = writer.send("GET", &target, &[("Range", "bytes=-4")], b"").await?;
            part.expect(206)?
                .expect_body(body.get(size - 4..).unwrap_or_default())?;
        }
    }
    let target = target();
    for bad in [
        ("x-artifact-tag", "a b"),
        ("x-artifact-duration", "soon"),
        ("x-artifact-duration", ""),
    ] {
        writer
            .send("PUT", &target, &[bad], b"x")
            .await?
            .expect(400)
            .with_context(|| format!("{bad:?}"))?;
    }
    writer.get(&target).await?.expect(404)?;
    Ok(())
}

async fn turborepo_api(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, project) = (server.writer(), &server.project);
    let hash = sha256(server.key("turbo").as_bytes());
    let (target, scope) = (
        format!("/v8/artifacts/{hash}?slug={project}"),
        format!("?slug={project}"),
    );
    let preflight = server.anonymous().send("OPTIONS", &target, &[], b"").await?;
    preflight.expect(200)?;
    for (name, value) in [
        ("access-control-allow-headers", "Authorization"),
        ("access-control-allow-headers", "x-artifact-tag"),
        ("access-control-allow-headers", "x-artifact-duration"),
        ("access-control-allow-methods", "PUT"),
    ] {
        let allowed = preflight.field(name).unwrap_or_default();
        ensure!(allowed.contains(value), "{name} is {allowed:?}");
    }
    let status = writer.get(&format!("/v8/artifacts/status{scope}")).await?;
    status.expect(200)?.expect_body(br#"{"status":"enabled"}"#)?;
    writer
        .post(&format!("/v8/artifacts/events{scope}"), b"[]")
        .await?
        .expect(200)?;
    let fields = [("x-artifact-tag", "dGFn"), ("x-artifact-duration", "1234")];
    writer.send("PUT", &target, &fields, b"artifact").await?.expect(200)?;
    let query = format!("/v8/artifacts{scope}");
    let asked = format!(r#"{{"hashes":["{hash}","00"]}}"#);
    let answer = writer.post(&query, asked.as_bytes()).await?.expect(200)?.json()?;
    let expected = serde_json::json!({&hash: {"size": 8, "taskDurationMs": 1234, "tag": "dGFn"}, "00": null});
    ensure!(answer == expected, "got {answer}");
    for bad in [&br#"{"hashes":["../x"]}"#[..], b"nonsense"] {
        writer.post(&query, bad).await?.expect(400)?;
    }
    if let Ok(reader) = server.reader() {
        let refused = reader.put(&target, b"x").await?.expect(403)?.json()?;
        ensure!(
            refused.pointer("/error/code") == Some(&"forbidden".into()),
            "got {refused}"
        );
        reader.get(&target).await?.expect(200)?.expect_body(b"artifact")?;
    }
    let team = |query: &str| format!("/v8/artifacts/{hash}{query}");
    for query in [
        format!("?slug={}", project.to_uppercase()),
        format!("?teamId={project}"),
        format!("?teamId=team_x&slug={project}"),
    ] {
        writer.get(&team(&query)).await?.expect(200)?.expect_body(b"artifact")?;
    }
    writer.put(&team(""), b"default").await?.expect(200)?;
    writer
        .get(&team("?slug=default"))
        .await?
        .expect(200)?
        .expect_body(b"default")?;
    writer.put(&team("?slug=a&slug=b"), b"x").await?.expect(400)?;
    Ok(())
}
