//! What one tenant, project or client must not be able to do to another, on every tool's route.

use crate::node::Node;
use crate::tools::{READER, STRANGER, WRITER, bearer, count, entries, guarded, sha256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

#[test]
fn every_tool_stores_with_200_reads_back_and_is_counted() {
    let (node, _dir) = guarded();
    for entry in entries("ios", "round trip") {
        let tool = entry.tool;
        assert_eq!(entry.get(&node, WRITER).status, 404, "{}", entry.target);
        assert_eq!(entry.put(&node, WRITER).status, 200, "{}", entry.target);
        let hit = entry.get(&node, READER);
        assert_eq!((hit.status, &hit.body), (200, &entry.body), "{}", entry.target);
        assert!(hit.field("etag").is_some(), "{}", entry.target);
        let tag = format!("If-None-Match: {}", hit.field("etag").unwrap());
        let head = node.client().send("HEAD", &entry.target, &[&bearer(READER)], b"");
        assert_eq!(
            (head.status, head.field("content-length")),
            (200, Some(entry.body.len().to_string().as_str())),
            "{}",
            entry.target
        );
        let same = node.client().send("GET", &entry.target, &[&bearer(READER), &tag], b"");
        assert_eq!(same.status, 304, "{}", entry.target);
        let part = node
            .client()
            .send("GET", &entry.target, &[&bearer(READER), "Range: bytes=1-1"], b"");
        assert_eq!(
            (part.status, &part.body[..]),
            (206, &entry.body[1..2]),
            "{}",
            entry.target
        );
        assert!(count(&node, tool, "ios", "hit") >= 1, "{tool}");
        assert!(count(&node, tool, "ios", "miss") >= 1, "{tool}");
        // Go's output is the blob Bazel stored a moment ago: the bytes are shared.
        let written = if tool == "go" { "known" } else { "stored" };
        assert!(count(&node, tool, "ios", written) >= 1, "{tool}");
    }
}

#[test]
fn credentials_decide_and_a_refused_write_leaves_nothing() {
    let (node, _dir) = guarded();
    for entry in entries("ios", "grants") {
        let target = &entry.target;
        let anonymous = node.send("GET", target, b"");
        assert_eq!(
            (anonymous.status, anonymous.field("www-authenticate")),
            (401, Some("Basic realm=\"kura\"")),
            "{target}"
        );
        assert_eq!(entry.put(&node, "0123456789abcdef-nobody").status, 401, "{target}");
        assert_eq!(entry.put(&node, READER).status, 403, "{target}");
        assert_eq!(entry.put(&node, STRANGER).status, 403, "{target}");
        assert_eq!(entry.get(&node, STRANGER).status, 403, "{target}");
        assert_eq!(
            entry.get(&node, READER).status,
            404,
            "{target}: a refused write was stored"
        );
        let basic = format!("Authorization: Basic {}", STANDARD.encode(format!("anyone:{WRITER}")));
        let mut fields: Vec<&str> = entry.fields.iter().map(String::as_str).collect();
        fields.push(&basic);
        assert_eq!(
            node.client().send("PUT", target, &fields, &entry.body).status,
            200,
            "{target}"
        );
        assert_eq!(entry.get(&node, READER).status, 200, "{target}");
    }
    let log = node.log().join("\n");
    assert!(!log.contains(WRITER) && !log.contains(READER), "a token was logged");
}

#[test]
fn one_projects_entries_are_not_anothers() {
    let node = Node::start(&[]);
    for (mine, theirs) in entries("mine", "x").into_iter().zip(entries("theirs", "x")) {
        assert_eq!(mine.put(&node, "any").status, 200, "{}", mine.target);
        assert_eq!(theirs.get(&node, "any").status, 404, "{}", theirs.target);
        assert_eq!(mine.get(&node, "any").status, 200, "{}", mine.target);
    }
}

/// The scope is in the path; whoever names another one in the query, or a project that is no name, is not served at all.
#[test]
fn a_path_has_one_scope_and_a_project_is_a_name() {
    let (node, _dir) = guarded();
    let token = bearer(WRITER);
    for entry in entries("ios", "scope") {
        for parameter in [
            "namespace_id=android",
            "tenant_id=acme",
            "%6eamespace_id=android",
            "project_handle=x",
        ] {
            let separator = if entry.target.contains('?') { '&' } else { '?' };
            let target = format!("{}{separator}{parameter}", entry.target);
            let mut fields: Vec<&str> = entry.fields.iter().map(String::as_str).collect();
            fields.push(&token);
            let refused = node.client().send("PUT", &target, &fields, &entry.body);
            assert_eq!(refused.status, 400, "{target}");
        }
        assert_eq!(entry.get(&node, WRITER).status, 404, "{}", entry.target);
    }
    for project in [
        "..",
        "%2e%2e",
        "ios%2f..%2fandroid",
        "%00",
        "-x",
        "a%20b",
        "",
        "ios%252f",
    ] {
        for entry in entries(project, "names") {
            // Turborepo without a team means the default project.
            if entry.tool == "turborepo" && project.is_empty() {
                continue;
            }
            let status = entry.put(&node, WRITER).status;
            assert!(matches!(status, 400 | 404), "{status} for {}", entry.target);
        }
    }
}

#[test]
fn keys_with_path_tricks_are_refused_or_just_keys() {
    let node = Node::start(&[]);
    for target in [
        "/generic/p/../q/k",
        "/generic/p/%2e%2e/q/k",
        "/generic/p/a//b",
        "/generic/p/a/./b",
        "/generic/p/a%00b",
        "/maven/p/v1/../../q/app.jar",
        "/sccache/p/a/..%2f..%2fb",
        "/ccache/p/../q",
        "/ccache/p/ab/..",
        "/bazel/p/cas/..%2f..%2f",
        "/bazel/p/ac/AB",
        "/go/p/..%2fx",
        "/v8/artifacts/..%2fx?slug=p",
    ] {
        let refused = node.send("PUT", target, b"poison");
        assert_eq!(refused.status, 400, "{target}");
    }
    let inspect = node.send("GET", "/metrics", b"");
    assert!(
        inspect.text().contains("kura_manifest_index_entries 0"),
        "something was stored"
    );
    // Gradle's keys are one segment and opaque, as they always were.
    assert_eq!(node.send("PUT", "/gradle/p/%2e%2e%2fq", b"x").status, 200);
    assert_eq!(node.send("GET", "/gradle/p/..%2Fq", b"").status, 200);
    assert_eq!(node.send("GET", "/gradle/q/k", b"").status, 404);
}

#[test]
fn a_body_cut_short_leaves_nothing() {
    let node = Node::start(&[]);
    for size in [100, 1 << 20] {
        for entry in entries("p", &format!("cut {size}")) {
            let mut client = node.client();
            let fields = entry.lines();
            client.raw(
                format!(
                    "PUT {} HTTP/1.1\r\nHost: x\r\n{fields}Content-Length: {size}\r\n\r\n",
                    entry.target
                )
                .as_bytes(),
            );
            client.raw(&entry.body);
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(client.response().status, 400, "{}", entry.target);
            assert_eq!(entry.get(&node, "any").status, 404, "{}", entry.target);
        }
    }
}

#[test]
fn oversized_bodies_are_refused_before_they_are_read() {
    let node = Node::start(&[]);
    for entry in entries("p", "large") {
        let limit: u64 = match entry.tool {
            // Gradle turns its cache off when a write is refused: see its own test.
            "gradle" => continue,
            "bazel" if entry.target.contains("/ac/") => 4 << 20,
            _ => 2 << 30,
        };
        let mut client = node.client();
        let fields = entry.lines();
        let length = limit + 1;
        client.raw(
            format!(
                "PUT {} HTTP/1.1\r\nHost: x\r\n{fields}Content-Length: {length}\r\n\r\n",
                entry.target
            )
            .as_bytes(),
        );
        assert_eq!(client.response().status, 413, "{}", entry.target);
        assert_eq!(entry.get(&node, "any").status, 404, "{}", entry.target);
    }
}

/// Incident: a cache that cannot serve a read now said 503, and with that failed Nx and Metro builds, kept sccache from starting
/// and switched Gradle's cache off. For a tool such a read is a miss; a write is told to come back.
#[test]
fn a_leaving_node_is_a_miss_to_every_tool() {
    let node = Node::start(&[]);
    let stored = entries("p", "drain");
    for entry in &stored {
        assert_eq!(entry.put(&node, "any").status, 200);
    }
    for target in ["/v1/cache/1", "/api/metro/cache/1"] {
        assert_eq!(node.send("PUT", target, b"x").status, 200);
    }
    node.signal("USR1");
    crate::node::until("the node drains", || {
        (node.send("GET", "/ready", b"").status == 503).then_some(())
    });
    for entry in &stored {
        let missed = entry.get(&node, "any");
        assert_eq!(
            (missed.status, missed.field("connection")),
            (404, Some("close")),
            "{}",
            entry.target
        );
        let refused = entry.put(&node, "any");
        assert_eq!(
            (refused.status, refused.field("retry-after")),
            (503, Some("1")),
            "{}",
            entry.target
        );
    }
    for target in ["/v1/cache/1", "/api/metro/cache/1"] {
        assert_eq!(node.send("GET", target, b"").status, 404, "{target}");
    }
    assert_eq!(
        node.send("PUT", "/v1/cache/2", b"x").status,
        403,
        "Nx fails a build over anything else"
    );
    assert_eq!(node.send("PUT", "/api/metro/cache/2", b"x").status, 503);
    assert_eq!(
        crate::tools::metric(&node, "kura_tool_shed_reads_total{tool=\"nx\"}"),
        1
    );
    assert_eq!(
        node.send("GET", "/api/cache/gradle/k?tenant_id=a", b"").status,
        503,
        "the original contract stays"
    );
}

#[test]
fn nx_is_refused_in_plain_text_and_never_with_what_fails_a_build() {
    let (node, _dir) = guarded();
    let target = "/v1/cache/1234";
    let refused = node.send("GET", target, b"");
    assert_eq!(
        (refused.status, refused.field("content-type")),
        (401, Some("text/plain"))
    );
    assert_eq!(node.send("PUT", target, b"x").status, 403);
    let reader = node.client().send("PUT", target, &[&bearer(READER)], b"x");
    assert_eq!((reader.status, reader.field("content-type")), (403, Some("text/plain")));
    let mut client = node.client();
    client.raw(
        format!(
            "PUT {target} HTTP/1.1\r\nHost: x\r\n{}\r\nContent-Length: 3000000000\r\n\r\n",
            bearer(WRITER)
        )
        .as_bytes(),
    );
    assert_eq!(client.response().status, 403);
    assert_eq!(node.client().send("GET", target, &[&bearer(READER)], b"").status, 404);
    assert_eq!(node.client().send("PUT", target, &[&bearer(WRITER)], b"x").status, 200);
}

#[test]
fn every_digest_is_checked_whatever_the_size() {
    let node = Node::start(&[]);
    for size in [0, 1, 4096, 131_072, 131_073, 3 << 20] {
        let body = crate::tools::bytes(size);
        let (right, wrong) = (sha256(&body), sha256(b"something else"));
        let poisoned = node.send("PUT", &format!("/bazel/p/cas/{wrong}"), &body);
        assert_eq!(poisoned.status, 400, "{size}");
        let field = format!("x-kura-output-id: {wrong}");
        let action = sha256(&size.to_le_bytes());
        let poisoned = node.client().send("PUT", &format!("/go/p/{action}"), &[&field], &body);
        assert_eq!(poisoned.status, 400, "{size}");
        assert_eq!(
            node.send("GET", &format!("/bazel/p/cas/{wrong}"), b"").status,
            404,
            "{size}"
        );
        assert_eq!(node.send("GET", &format!("/go/p/{action}"), b"").status, 404, "{size}");
        assert_eq!(
            node.send("PUT", &format!("/bazel/p/cas/{right}"), &body).status,
            200,
            "{size}"
        );
        assert!(
            node.send("GET", &format!("/bazel/p/cas/{right}"), b"").body == body,
            "{size}"
        );
    }
}
