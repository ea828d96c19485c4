//! The routes of single tools: Gradle, Xcode, Nx, Metro, and those that name their project in the path.

use anyhow::{Context, Result, ensure};
use sha2::{Digest as _, Sha256};

use super::probes::{Counted, metric};
use crate::http::server::hex;
use crate::http::wire::Response;
use crate::http::{Caller, Server};
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    gradle, "gradle-201-then-200", "contract: Gradle" [contract]:
        "a new entry is 201, a known one 200; the first body stays";
    gradle_miss, "gradle-miss-message", "contract: Gradle" [contract]:
        "a miss is 404 with the contract's message";
    gradle_limit, "gradle-limit-100-mib", "contract: Gradle" [contract]:
        "more than 100 MiB is 413, told before the body is sent";
    xcode, "xcode-204-new-and-known", "contract: Xcode CAS" [contract]:
        "storing answers 204 whether new or known; the first body stays";
    xcode_ids, "xcode-ids-are-opaque", "contract: Xcode CAS" [contract]:
        "ids are opaque text and are not verified against the body";
    xcode_limit, "xcode-limit-256-mib", "contract: Xcode CAS" [contract]:
        "more than 256 MiB is 413, told before the body is sent";
    nx, "nx-200-without-parameters", "contract: Nx" [contract]:
        "Nx stores and reads with 200, names no tenant, and its misses are 404";
    metro, "metro-200-without-parameters", "contract: Metro" [contract]:
        "Metro stores and reads with 200, names no tenant, and its misses are 404";
    apart, "kinds-are-apart", "contract: producers" [contract]:
        "one key in two tools' routes is two entries";
    every_tool, "tools-round-trip", "contract: tools" [contract]:
        "every tool stores with 200, reads back whole, in part and conditionally, is counted, and has its project to itself";
    limits, "tools-limits-413", "contract: tools" [contract]:
        "a body over the limit of a tool's route is 413, told before the body is sent, and nothing is stored";
    gradle_paths, "gradle-both-paths", "contract: Gradle" [contract]:
        "Gradle's path with the project in it names the entries of the other one, with 200 for every write";
    gradle_excess, "gradle-path-drops-too-much", "contract: Gradle" [contract]:
        "Gradle takes 413 as a reason to stop reading, so a body over the limit is 200, dropped and counted";
    ccache, "ccache-layouts", "ccache: HTTP storage backend" [contract]:
        "every layout of ccache names the same entry, and the last write wins";
    sccache, "sccache-webdav", "RFC 4918 §9.1, §9.3" [contract]:
        "every folder is there without being made, files tell their length, and a reader may make nothing";
    maven, "maven-report-is-dropped", "contract: Maven" [contract]:
        "what Maven stores comes back, but for the report that nothing reads, which is dropped and counted";
    go, "go-outputs-are-shared", "contract: Go" [contract]:
        "an output is verified, stored once for all actions, is the blob that Bazel knows, and is counted for Go alone";
    generic, "generic-last-write-wins", "contract: plain paths" [contract]:
        "a plain path keeps what was written last, however its name is escaped, and cannot be deleted";
    turborepo, "turborepo-tag-and-duration", "Vercel remote cache API" [contract]:
        "tag and duration come back with the artifact at every size; malformed ones are 400";
    turborepo_api, "turborepo-api", "Vercel remote cache API" [contract]:
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
    let (writer, target) = (server.writer(), server.gradle(&server.key("gradle")));
    writer.puts(&target, b"first", 201).await?;
    writer.puts(&target, b"second", 200).await?;
    writer.hit(&target, b"first").await
}

async fn gradle_miss(server: &Server) -> Result<()> {
    let miss = server.writer().get(&server.gradle(&server.key("none"))).await?;
    miss.expect_message(404, "Artifact not found").map(drop)
}

async fn gradle_limit(server: &Server) -> Result<()> {
    too_large(server, "PUT", &server.gradle(&server.key("large")), 100 << 20).await
}

/// Announces one byte too many, and expects the refusal before any of them.
async fn too_large(server: &Server, method: &str, target: &str, limit: u64) -> Result<()> {
    let length = (limit + 1).to_string();
    let head = server.writer().head_of(method, target, &[("Content-Length", &length)]);
    let refused = server.told(head).await?.response(method).await?;
    refused.expect_message(413, "Request body exceeded allowed size")?;
    ensure!(refused.closes(), "a body nobody will read must end the connection");
    server.writer().miss(target).await
}

async fn xcode(server: &Server) -> Result<()> {
    let writer = server.writer();
    let target = server.api(&format!("cas/{}", server.key("xcode")));
    writer.get(&target).await?.expect_message(404, "Artifact not found")?;
    writer.post(&target, b"object").await?.expect(204)?.expect_body(b"")?;
    writer.post(&target, b"another").await?.expect(204)?;
    writer.hit(&target, b"object").await
}

async fn xcode_ids(server: &Server) -> Result<()> {
    let (writer, key) = (server.writer(), server.key("id"));
    for id in [format!("0~{key}%3D%3D"), format!("{key}~"), format!("{key}%20x")] {
        let target = server.api(&format!("cas/{id}"));
        writer.post(&target, id.as_bytes()).await?.expect(204)?;
        writer.hit(&target, id.as_bytes()).await?;
    }
    Ok(())
}

async fn xcode_limit(server: &Server) -> Result<()> {
    let target = server.api(&format!("cas/{}", server.key("large")));
    too_large(server, "POST", &target, 256 << 20).await
}

async fn nx(server: &Server) -> Result<()> {
    without_parameters(server, &format!("/v1/cache/{}", server.key("nx"))).await
}

async fn metro(server: &Server) -> Result<()> {
    without_parameters(server, &format!("/api/metro/cache/{}", server.key("metro"))).await
}

async fn without_parameters(server: &Server, target: &str) -> Result<()> {
    let writer = server.writer();
    writer.miss(target).await?;
    writer.puts(target, b"first", 200).await?;
    writer.hit(target, b"first").await?;
    writer.sends("HEAD", target, &[], b"", 200).await
}

async fn apart(server: &Server) -> Result<()> {
    let (writer, key) = (server.writer(), server.key("apart"));
    writer.store(&server.gradle(&key), b"gradle").await?;
    for target in [
        server.api(&format!("cas/{key}")),
        server.api(&format!("keyvalue/{key}")),
        format!("/v1/cache/{key}"),
        format!("/api/metro/cache/{key}"),
    ] {
        writer.miss(&target).await?;
    }
    Ok(())
}

async fn every_tool(server: &Server) -> Result<()> {
    let (writer, salt) = (server.writer(), server.key("tool"));
    let theirs = entries(&server.victim_project, &salt);
    for (entry, other) in entries(&server.project, &salt).into_iter().zip(theirs) {
        let (target, body) = (&entry.target, &entry.body);
        // Go's output is the blob that Bazel stored a moment ago: the bytes are shared.
        let written = if entry.tool == "go" { "known" } else { "stored" };
        let rows = ["hit", "miss", written].map(|result| (requests(server, entry.tool, result), 1.0));
        let before = Counted::now(server, &rows).await?;
        writer.miss(target).await?;
        entry.put(writer).await?.expect(200)?;
        let hit = writer.get(target).await?;
        let tag = hit.expect(200)?.expect_body(body)?.field("etag");
        let tag = tag.with_context(|| target.clone())?;
        let head = writer.head(target).await?;
        head.expect(200)?
            .expect_field("content-length", &body.len().to_string())?;
        writer
            .sends("GET", target, &[("If-None-Match", &tag)], b"", 304)
            .await?;
        let part = writer.send("GET", target, &[("Range", "bytes=1-1")], b"").await?;
        part.expect(206)?.expect_body(body.get(1..2).unwrap_or_default())?;
        before.have_come(server).await?;
        if let Ok(owner) = server.victim() {
            owner.miss(&other.target).await?;
        }
    }
    Ok(())
}

async fn limits(server: &Server) -> Result<()> {
    // Gradle has a check of its own.
    let entries = entries(&server.project, &server.key("large")).into_iter();
    for entry in entries.filter(|entry| entry.tool != "gradle") {
        let limit: u64 = if entry.target.contains("/ac/") {
            4 << 20
        } else {
            2 << 30
        };
        let length = (limit + 1).to_string();
        let mut fields = entry.fields();
        fields.push(("Content-Length", &length));
        let mut wire = server
            .told(server.writer().head_of("PUT", &entry.target, &fields))
            .await?;
        wire.response("PUT")
            .await?
            .expect(413)
            .with_context(|| entry.target.clone())?;
        server.writer().miss(&entry.target).await?;
    }
    Ok(())
}

async fn gradle_paths(server: &Server) -> Result<()> {
    let (writer, key) = (server.writer(), server.key("both"));
    let (path, api) = (format!("/gradle/{}/{key}", server.project), server.gradle(&key));
    writer.puts(&path, b"entry", 200).await?;
    writer.hit(&api, b"entry").await?;
    for target in [&api, &path] {
        writer.puts(target, b"another", 200).await?;
        writer.hit(&path, b"entry").await?;
    }
    Ok(())
}

async fn gradle_excess(server: &Server) -> Result<()> {
    let target = format!("/gradle/{}/{}", server.project, server.key("excess"));
    let before = Counted::now(server, &[(requests(server, "gradle", "dropped"), 1.0)]).await?;
    server.writer().puts(&target, &vec![0; (100 << 20) + 1], 200).await?;
    server.writer().miss(&target).await?;
    before.have_come(server).await
}

async fn ccache(server: &Server) -> Result<()> {
    let (writer, root) = (server.writer(), format!("/ccache/{}", server.project));
    let hash = sha256(server.key("ccache").as_bytes());
    let (two, rest) = hash[..40].split_at(2);
    let layouts = [
        format!("{root}/{two}{rest}"),
        format!("{root}/{two}/{rest}"),
        format!("{root}/ac/{two}{rest}{}", &hash[..24]),
    ];
    // ccache may send a field without a value.
    writer
        .sends("GET", &layouts[1], &[("Accept-Encoding", "")], b"", 404)
        .await?;
    for (number, target) in layouts.iter().enumerate() {
        let body = format!("result {number}").into_bytes();
        writer.puts(target, &body, 200).await?;
        for other in &layouts {
            writer.hit(other, &body).await?;
        }
    }
    let old = format!("{root}/9f/v0123456789abcdefghijklmnopqrst");
    writer.puts(&old, b"x", 200).await?;
    writer.hit(&old, b"x").await?;
    writer.sends("GET", &format!("{root}/nonsense"), &[], b"", 400).await
}

async fn sccache(server: &Server) -> Result<()> {
    let (writer, depth) = (server.writer(), [("Depth", "0")]);
    let root = format!("/sccache/{}/", server.project);
    let made = format!("{root}{}/", server.key("pre"));
    let check = format!("{made}.sccache_check");
    writer.miss(&check).await?;
    for folder in [&root, &made, &format!("{made}a/b/c/")] {
        let asked = b"<propfind xmlns=\"DAV:\"><allprop/></propfind>";
        let answer = writer.send("PROPFIND", folder, &depth, asked).await?;
        let text = answer.expect(207)?.text()?;
        let href = format!("<D:href>{folder}</D:href>");
        for part in [href.as_str(), "<D:collection/>", "getlastmodified"] {
            ensure!(text.contains(part), "{folder}: no {part} in {text}");
        }
        writer.sends("MKCOL", folder, &depth, b"", 201).await?;
        writer.puts(folder, b"x", 405).await?;
    }
    if let Ok(reader) = server.reader() {
        reader.sends("PROPFIND", &made, &depth, b"", 207).await?;
        reader.sends("MKCOL", &made, &depth, b"", 403).await?;
        // sccache goes on read-only.
        reader.puts(&check, b"Hello, World!", 403).await?;
    }
    writer.puts(&check, b"Hello, World!", 200).await?;
    let file = writer.send("PROPFIND", &check, &depth, b"").await?;
    let length = "<D:getcontentlength>13</D:getcontentlength>";
    ensure!(file.text()?.contains(length), "no {length} in {file}");
    let none = format!("{root}{}", server.key("none"));
    writer.sends("PROPFIND", &none, &depth, b"", 404).await?;
    let options = server.anonymous().send("OPTIONS", &root, &[], b"").await?;
    options.expect(200)?.expect_field("dav", "1")?;
    writer.delete(&check).await?.expect(405)?;
    let elsewhere = format!("/generic/{}/a", server.project);
    writer.sends("PROPFIND", &elsewhere, &depth, b"", 405).await
}

async fn maven(server: &Server) -> Result<()> {
    let (writer, hash) = (server.writer(), sha256(server.key("maven").as_bytes()));
    let folder = format!("/maven/{}/v1.2/com.acme/app/{}", server.project, &hash[..16]);
    let before = Counted::now(server, &[(requests(server, "maven", "dropped"), 1.0)]).await?;
    for (name, body) in [("app.jar", &b"jar"[..]), ("buildinfo.xml", b"<build/>")] {
        let target = format!("{folder}/{name}");
        writer.puts(&target, body, 200).await?;
        writer.hit(&target, body).await?;
    }
    let report = format!("{folder}/uuid/build-cache-report.xml");
    writer.puts(&report, b"<r/>", 200).await?;
    writer.miss(&report).await?;
    before.have_come(server).await
}

async fn go(server: &Server) -> Result<()> {
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
    let before = Counted::now(server, &rows).await?;
    let not_for_go = metric(server, elsewhere).await?;
    let action = |salt: &str| format!("/go/{project}/{}", sha256(server.key(salt).as_bytes()));
    let actions = [action("one"), action("two")];
    let output = [("x-kura-output-id", id.as_str())];
    writer.miss(&action("none")).await?;
    for action in &actions {
        writer.sends("PUT", action, &output, &body, 200).await?;
        let hit = writer.get(action).await?;
        hit.expect(200)?
            .expect_body(&body)?
            .expect_field("x-kura-output-id", &id)?;
    }
    before.have_come(server).await?;
    let now = metric(server, elsewhere).await?;
    let same = now.to_bits() == not_for_go.to_bits();
    ensure!(same, "Go's hits were counted as the Remote Execution API's");
    writer.hit(&format!("/bazel/{project}/cas/{id}"), &body).await?;
    writer.puts(&actions[0], &body, 400).await?;
    for wrong in ["ABC", &sha256(b"something else")] {
        let fresh = action("wrong");
        let output = [("x-kura-output-id", wrong)];
        writer.sends("PUT", &fresh, &output, &body, 400).await?;
        writer.miss(&fresh).await?;
    }
    Ok(())
}

async fn generic(server: &Server) -> Result<()> {
    let (writer, key) = (server.writer(), server.key("generic"));
    let target = format!("/generic/{}/logs/{key}/build%20log.txt", server.project);
    let escaped = target.replace("log.txt", "%6cog.txt");
    for body in [b"one", b"two"] {
        writer.puts(&target, body, 200).await?;
        for target in [&target, &escaped] {
            writer.hit(target, body).await?;
        }
    }
    let refused = writer.delete(&target).await?;
    let refused = refused.expect(405)?;
    refused.expect_field("allow", "GET, HEAD, PUT, OPTIONS").map(drop)
}

async fn turborepo(server: &Server) -> Result<()> {
    let writer = server.writer();
    let target = || {
        let hash = sha256(server.key("turbo").as_bytes());
        format!("/v8/artifacts/{hash}?slug={}", server.project)
    };
    for size in [0, 1, 100_000, 131_071, 131_072, 5 << 20] {
        let (target, body, length) = (target(), server.body(size), size.to_string());
        let mut fields = vec![("x-artifact-tag", "dGFn"), ("x-artifact-duration", "1234")];
        if size == 0 {
            fields.push(("Content-Length", "0"));
        }
        writer.sends("PUT", &target, &fields, &body, 200).await?;
        for (method, body) in [("GET", body.as_slice()), ("HEAD", b"")] {
            let hit = writer.send(method, &target, &[], b"").await?;
            hit.expect(200)?
                .expect_body(body)?
                .expect_field("content-length", &length)?;
            hit.expect_field("x-artifact-tag", "dGFn")?;
            hit.expect_field("x-artifact-duration", "1234")?;
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
        writer.sends("PUT", &target, &[bad], b"x", 400).await?;
    }
    writer.miss(&target).await
}

async fn turborepo_api(server: &Server) -> Result<()> {
    let (writer, project) = (server.writer(), &server.project);
    let hash = sha256(server.key("turbo").as_bytes());
    let team = |query: &str| format!("/v8/artifacts/{hash}{query}");
    let scope = format!("?slug={project}");
    let target = team(&scope);
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
    let enabled = br#"{"status":"enabled"}"#;
    writer.hit(&format!("/v8/artifacts/status{scope}"), enabled).await?;
    let events = format!("/v8/artifacts/events{scope}");
    writer.post(&events, b"[]").await?.expect(200)?;
    let fields = [("x-artifact-tag", "dGFn"), ("x-artifact-duration", "1234")];
    writer.sends("PUT", &target, &fields, b"artifact", 200).await?;
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
        let code = refused.pointer("/error/code");
        ensure!(code == Some(&"forbidden".into()), "got {refused}");
        reader.hit(&target, b"artifact").await?;
    }
    for query in [
        format!("?slug={}", project.to_uppercase()),
        format!("?teamId={project}"),
        format!("?teamId=team_x&slug={project}"),
    ] {
        writer.hit(&team(&query), b"artifact").await?;
    }
    writer.puts(&team(""), b"default", 200).await?;
    writer.hit(&team("?slug=default"), b"default").await?;
    writer.puts(&team("?slug=a&slug=b"), b"x", 400).await
}
