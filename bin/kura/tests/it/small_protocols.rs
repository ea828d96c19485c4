//! Gradle by path, ccache, sccache, Maven, Go and the plain paths.

use crate::node::Node;
use crate::tools::{READER, WRITER, bearer, bytes, count, guarded, sha256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io::Write as _;

#[test]
fn gradle_has_the_same_entries_under_both_paths() {
    let node = Node::start(&[]);
    assert_eq!(node.send("PUT", "/gradle/ios/0a1b", b"entry").status, 200);
    let api = "/api/cache/gradle/0a1b?tenant_id=a&namespace_id=ios";
    assert_eq!(node.send("GET", api, b"").text(), "entry");
    assert_eq!(node.send("PUT", api, b"entry").status, 200, "existing");
    assert_eq!(node.send("PUT", "/gradle/ios/0a1b", b"another").status, 200);
    assert_eq!(
        node.send("GET", "/gradle/ios/0a1b", b"").text(),
        "entry",
        "the first write wins"
    );
}

/// Gradle takes a 413 as a reason to stop reading from the cache for the rest of the build.
#[test]
fn gradle_may_send_too_much_and_goes_on() {
    let node = Node::start(&[]);
    let mut client = node.client();
    let length: usize = 100 * 1024 * 1024 + 1;
    client.raw(format!("PUT /gradle/ios/large HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n").as_bytes());
    let piece = vec![0; 1 << 20];
    let mut left = length;
    while left > 0 {
        let now = left.min(piece.len());
        client.stream.write_all(&piece[..now]).unwrap();
        left -= now;
    }
    assert_eq!(client.response().status, 200);
    assert_eq!(client.send("GET", "/gradle/ios/large", &[], b"").status, 404);
    assert_eq!(count(&node, "gradle", "ios", "dropped"), 1);
}

#[test]
fn ccache_layouts_share_their_entries_and_the_last_write_wins() {
    let node = Node::start(&[]);
    let key = "0123456789abcdef0123456789abcdef01234567";
    let flat = format!("/ccache/p/{key}");
    let deep = format!("/ccache/p/{}/{}", &key[..2], &key[2..]);
    let bazel = format!("/ccache/p/ac/{key}{}", &key[..24]);
    for (number, target) in [&flat, &deep, &bazel].into_iter().enumerate() {
        let body = format!("result {number}");
        assert_eq!(node.send("PUT", target, body.as_bytes()).status, 200, "{target}");
        for other in [&flat, &deep, &bazel] {
            assert_eq!(node.send("GET", other, b"").text(), body, "{other}");
        }
    }
    let old = "/ccache/p/9f/v0123456789abcdefghijklmnopqrst";
    assert_eq!(node.send("PUT", old, b"x").status, 200);
    assert_eq!(node.send("GET", old, b"").status, 200);
    assert_eq!(node.send("GET", "/ccache/p/nonsense", b"").status, 400);
}

#[test]
fn ccache_may_send_an_empty_field() {
    let node = Node::start(&[]);
    let target = "/ccache/p/01/23456789abcdef0123456789abcdef01234567";
    assert_eq!(
        node.client().send("GET", target, &["Accept-Encoding:"], b"").status,
        404
    );
}

#[test]
fn sccache_finds_every_folder_and_need_not_make_any() {
    let (node, _dir) = guarded();
    let send = |method: &str, target: &str, token: &str, body: &[u8]| {
        node.client().send(method, target, &[&bearer(token), "Depth: 0"], body)
    };
    let check = "/sccache/ios/pre/.sccache_check";
    assert_eq!(send("GET", check, WRITER, b"").status, 404);
    for folder in ["/sccache/ios/", "/sccache/ios/pre/", "/sccache/ios/pre/a/b/c/"] {
        let answer = send(
            "PROPFIND",
            folder,
            READER,
            b"<propfind xmlns=\"DAV:\"><allprop/></propfind>",
        );
        assert_eq!(answer.status, 207, "{folder}");
        let text = answer.text();
        assert!(text.contains(&format!("<D:href>{folder}</D:href>")), "{text}");
        assert!(
            text.contains("<D:collection/>") && text.contains("getlastmodified"),
            "{text}"
        );
        assert_eq!(send("MKCOL", folder, WRITER, b"").status, 201);
        assert_eq!(send("MKCOL", folder, READER, b"").status, 403);
        assert_eq!(send("PUT", folder, WRITER, b"x").status, 405);
    }
    assert_eq!(
        send("PUT", check, READER, b"Hello, World!").status,
        403,
        "sccache goes on read-only"
    );
    assert_eq!(send("PUT", check, WRITER, b"Hello, World!").status, 200);
    let file = send("PROPFIND", check, READER, b"");
    assert!(
        file.text().contains("<D:getcontentlength>13</D:getcontentlength>"),
        "{file:?}"
    );
    assert_eq!(send("PROPFIND", "/sccache/ios/none", READER, b"").status, 404);
    let options = node.send("OPTIONS", "/sccache/ios/", b"");
    assert_eq!((options.status, options.field("dav")), (200, Some("1")));
    assert_eq!(send("DELETE", check, WRITER, b"").status, 405);
}

/// Maven sends no credentials until it is challenged, waits for `100 Continue` before each body, and ends every build with a
/// report nobody reads.
#[test]
fn maven_is_challenged_awaited_and_relieved_of_its_report() {
    let (node, _dir) = guarded();
    let folder = "/maven/ios/v1.2/com.acme/app/0123456789abcdef";
    let challenge = node.send("GET", &format!("{folder}/buildinfo.xml"), b"");
    assert_eq!(
        (challenge.status, challenge.field("www-authenticate")),
        (401, Some("Basic realm=\"kura\""))
    );
    let basic = format!("Authorization: Basic {}", STANDARD.encode(format!("ci:{WRITER}")));
    let mut client = node.client();
    for (name, body) in [
        ("app.jar", &b"jar"[..]),
        ("buildinfo.xml", b"<build/>"),
        ("uuid/build-cache-report.xml", b"<r/>"),
    ] {
        client.raw(
            format!(
                "PUT {folder}/{name} HTTP/1.1\r\nHost: x\r\n{basic}\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
                body.len()
            )
            .as_bytes(),
        );
        assert_eq!(client.response().status, 100, "{name}");
        client.raw(body);
        assert_eq!(client.response().status, 200, "{name}");
    }
    let get = |name: &str| node.client().send("GET", &format!("{folder}/{name}"), &[&basic], b"");
    assert_eq!(get("app.jar").text(), "jar");
    assert_eq!(get("buildinfo.xml").text(), "<build/>");
    assert_eq!(get("uuid/build-cache-report.xml").status, 404);
    assert_eq!(count(&node, "maven", "ios", "dropped"), 1);
}

#[test]
fn go_shares_its_outputs_with_other_actions_and_other_tools() {
    let node = Node::start(&[]);
    let body = bytes(200_000);
    let id = sha256(&body);
    let field = format!("x-kura-output-id: {id}");
    let actions: Vec<String> = (0..2).map(|n: u8| format!("/go/p/{}", sha256(&[n]))).collect();
    for action in &actions {
        assert_eq!(node.client().send("PUT", action, &[&field], &body).status, 200);
        let hit = node.send("GET", action, b"");
        assert_eq!((hit.status, hit.field("x-kura-output-id")), (200, Some(id.as_str())));
        assert!(hit.body == body);
    }
    assert_eq!(count(&node, "go", "p", "stored"), 1);
    assert_eq!(count(&node, "go", "p", "known"), 1, "the second output is the first");
    assert!(node.send("GET", &format!("/bazel/p/cas/{id}"), b"").body == body);
    assert_eq!(node.send("PUT", &actions[0], &body).status, 400, "no output id");
    assert_eq!(
        node.client()
            .send("PUT", &actions[0], &["x-kura-output-id: ABC"], b"x")
            .status,
        400
    );
}

#[test]
fn plain_paths_take_any_tidy_key_and_the_last_write_wins() {
    let node = Node::start(&[]);
    let target = "/generic/p/logs/2026/11/build%20log.txt";
    for body in ["one", "two"] {
        assert_eq!(node.send("PUT", target, body.as_bytes()).status, 200);
        assert_eq!(
            node.send(
                "GET",
                "/generic/p/logs/2026/11/build log.txt".replace(' ', "%20").as_str(),
                b""
            )
            .text(),
            body
        );
    }
    let answer = node.send("DELETE", target, b"");
    assert_eq!(
        (answer.status, answer.field("allow")),
        (405, Some("GET, HEAD, PUT, OPTIONS"))
    );
    let chunked =
        "PUT /generic/p/chunked HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let mut client = node.client();
    client.raw(chunked.as_bytes());
    assert_eq!(client.response().status, 200);
    assert_eq!(node.send("GET", "/generic/p/chunked", b"").text(), "hello");
}

/// What Go fetched was counted as if it had been asked for by the Remote Execution API, and its uploads twice.
#[test]
fn go_has_counters_of_its_own() {
    let node = Node::start(&[]);
    let body = crate::tools::bytes(5000);
    let target = format!("/go/ios/{}", crate::tools::sha256(b"action"));
    let id = format!("x-kura-output-id: {}", crate::tools::sha256(&body));
    assert_eq!(node.client().send("PUT", &target, &[&id], &body).status, 200);
    assert!(node.send("GET", &target, b"").body == body);
    assert_eq!(
        node.send("GET", &format!("/go/ios/{}", "0".repeat(64)), b"").status,
        404
    );
    let text = String::from_utf8(node.send("GET", "/metrics", b"").body).unwrap();
    for line in [
        "kura_artifact_reads_total_total{producer=\"go\",result=\"hit\"} 1",
        "kura_artifact_reads_total_total{producer=\"go\",result=\"miss\"} 1",
        "kura_artifact_writes_total_total{producer=\"go\",result=\"created\"} 1",
        "kura_tool_requests_total{tool=\"go\",project=\"ios\",result=\"hit\"} 1",
        "kura_tool_bytes_total{tool=\"go\",project=\"ios\",direction=\"sent\"} 5000",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(
        !text.contains("kura_artifact_reads_total_total{producer=\"reapi\",result=\"hit\"} 1"),
        "{text}"
    );
}

/// A reader that goes away in the middle counted as if it had got everything.
#[test]
fn bytes_of_a_hit_count_when_they_have_left() {
    let node = Node::start(&[]);
    let body = vec![7; 64 << 20];
    assert_eq!(node.send("PUT", "/generic/ios/large", &body).status, 200);
    let mut client = node.client();
    client.raw(b"GET /generic/ios/large HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut first = [0; 1000];
    std::io::Read::read_exact(&mut client.stream, &mut first).unwrap();
    drop(client);
    let line = "kura_tool_bytes_total{tool=\"generic\",project=\"ios\",direction=\"sent\"}";
    let sent = crate::node::until("the reader is gone", || {
        Some(crate::tools::metric(&node, line)).filter(|sent| *sent > 0)
    });
    assert!(sent < 64 << 20, "{sent}");
}
