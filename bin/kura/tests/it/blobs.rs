//! Every blob route and its statuses.

use crate::node::{Node, Options};
use std::sync::{Arc, Barrier};

const SCOPE: &str = "tenant_id=acme&namespace_id=ios";

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

#[test]
fn gradle_stores_once_and_reads_back() {
    let node = Node::start(&[]);
    let target = format!("/api/cache/gradle/key?{SCOPE}");
    let miss = node.send("GET", &target, b"");
    assert_eq!((miss.status, miss.message().as_str()), (404, "Artifact not found"));
    assert_eq!(node.send("PUT", &target, b"first").status, 201);
    assert_eq!(node.send("PUT", &target, b"second").status, 200);
    let hit = node.send("GET", &target, b"");
    assert_eq!((hit.status, hit.text()), (200, "first"));
    assert_eq!(hit.field("content-type"), Some("application/octet-stream"));
    let head = node.client().send("HEAD", &target, &[], b"");
    assert_eq!((head.status, head.field("content-length")), (200, Some("5")));
}

#[test]
fn bodies_of_every_size_come_back_whole() {
    let node = Node::start(&[]);
    let mut client = node.client();
    for size in [
        0,
        1,
        4095,
        4096,
        65_536,
        131_071,
        131_072,
        131_073,
        1 << 20,
        (4 << 20) + 7,
    ] {
        let target = format!("/api/cache/gradle/size-{size}?{SCOPE}");
        let body = bytes(size);
        assert_eq!(client.send("PUT", &target, &[], &body).status, 201, "{size}");
        let hit = client.send("GET", &target, &[], b"");
        assert_eq!(hit.status, 200);
        assert!(hit.body == body, "{size} bytes came back changed");
    }
}

#[test]
fn xcode_answers_204_for_new_and_known() {
    let node = Node::start(&[]);
    let target = format!("/api/cache/cas/0~YWJj%3D?{SCOPE}");
    assert_eq!(node.send("POST", &target, b"object").status, 204);
    assert_eq!(node.send("POST", &target, b"another").status, 204);
    assert_eq!(node.send("GET", &target, b"").text(), "object");
    assert_eq!(
        node.send("GET", &format!("/api/cache/cas/none?{SCOPE}"), b"").message(),
        "Artifact not found"
    );
    assert_eq!(node.send("PUT", &target, b"x").status, 405);
}

#[test]
fn the_last_key_value_document_wins() {
    let node = Node::start(&[]);
    let put = format!("/api/cache/keyvalue?{SCOPE}");
    let get = format!("/api/cache/keyvalue/k?{SCOPE}");
    assert_eq!(node.send("GET", &get, b"").message(), "Key-value entry not found");
    let mut client = node.client();
    for value in ["one", "two", "three"] {
        let body = format!(r#"{{"cas_id":"k","entries":[{{"value":"{value}"}}]}}"#);
        assert_eq!(client.send("PUT", &put, &[], body.as_bytes()).status, 204);
    }
    let hit = node.send("GET", &get, b"");
    assert_eq!(hit.text(), r#"{"entries":[{"value":"three"}]}"#);
    assert_eq!(hit.field("content-type"), Some("application/json"));
    assert_eq!(node.send("PUT", &put, b"{").status, 400);
    let large = format!(r#"{{"cas_id":"k","entries":[{{"value":"{}"}}]}}"#, "x".repeat(1 << 20));
    let refused = node.send("PUT", &put, large.as_bytes());
    assert_eq!(
        (refused.status, refused.message().as_str()),
        (413, "Request body exceeded allowed size")
    );
}

#[test]
fn nx_and_metro_need_no_parameters() {
    let node = Node::start(&[]);
    for target in ["/v1/cache/abc", "/api/metro/cache/abc"] {
        assert_eq!(node.send("GET", target, b"").status, 404);
        assert_eq!(node.send("PUT", target, target.as_bytes()).status, 200);
        assert_eq!(node.send("GET", target, b"").text(), target);
    }
}

#[test]
fn a_clean_empties_one_namespace_only() {
    let node = Node::start(&[]);
    let mut client = node.client();
    for namespace in ["&namespace_id=ios", "&namespace_id=android", ""] {
        let target = format!("/api/cache/gradle/k?tenant_id=acme{namespace}");
        assert_eq!(client.send("PUT", &target, &[], b"x").status, 201);
    }
    assert_eq!(
        client
            .send("DELETE", &format!("/api/cache/clean?{SCOPE}"), &[], b"")
            .status,
        204
    );
    assert_eq!(
        client
            .send("GET", &format!("/api/cache/gradle/k?{SCOPE}"), &[], b"")
            .status,
        404
    );
    assert_eq!(
        client
            .send(
                "GET",
                "/api/cache/gradle/k?tenant_id=acme&namespace_id=android",
                &[],
                b""
            )
            .status,
        200
    );
    assert_eq!(
        client
            .send("GET", "/api/cache/gradle/k?tenant_id=acme", &[], b"")
            .status,
        200
    );
    // What was cleaned can be stored again, at once.
    assert_eq!(
        client
            .send("PUT", &format!("/api/cache/gradle/k?{SCOPE}"), &[], b"y")
            .status,
        201
    );
    assert_eq!(
        client
            .send("GET", &format!("/api/cache/gradle/k?{SCOPE}"), &[], b"")
            .text(),
        "y"
    );
}

#[test]
fn keys_with_path_tricks_are_just_keys() {
    let node = Node::start(&[]);
    let mut client = node.client();
    let keys = [
        "..",
        "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "%252e",
        "a%00b",
        "%2F",
        "a;b",
        "con",
    ];
    for (value, key) in keys.iter().enumerate() {
        let target = format!("/api/cache/gradle/{key}?{SCOPE}");
        assert_eq!(
            client.send("PUT", &target, &[], value.to_string().as_bytes()).status,
            201,
            "{key}"
        );
    }
    for (value, key) in keys.iter().enumerate() {
        let target = format!("/api/cache/gradle/{key}?{SCOPE}");
        assert_eq!(client.send("GET", &target, &[], b"").text(), value.to_string(), "{key}");
    }
    assert_eq!(
        client
            .send("GET", &format!("/api/cache/gradle/a/../b?{SCOPE}"), &[], b"")
            .status,
        404
    );
}

#[test]
fn limits_are_told_before_the_body_is_read() {
    let node = Node::start(&[]);
    let mut client = node.client();
    client.raw(
        format!("PUT /api/cache/gradle/k?{SCOPE} HTTP/1.1\r\nHost: x\r\nContent-Length: 104857601\r\n\r\n").as_bytes(),
    );
    let refused = client.response();
    assert_eq!(
        (refused.status, refused.message().as_str()),
        (413, "Request body exceeded allowed size")
    );
    assert_eq!(refused.field("connection"), Some("close"));
}

#[test]
fn ranges_and_tags_work_for_small_and_large_bodies() {
    let node = Node::start(&[]);
    for size in [1000, 300_000] {
        let mut client = node.client();
        let target = format!("/api/cache/gradle/range-{size}?{SCOPE}");
        let body = bytes(size);
        client.send("PUT", &target, &[], &body);
        let part = client.send("GET", &target, &["Range: bytes=10-19"], b"");
        assert_eq!((part.status, &part.body[..]), (206, &body[10..20]));
        assert_eq!(
            part.field("content-range"),
            Some(format!("bytes 10-19/{size}").as_str())
        );
        let tail = client.send("GET", &target, &["Range: bytes=-5"], b"");
        assert_eq!((tail.status, &tail.body[..]), (206, &body[size - 5..]));
        let beyond = client.send("GET", &target, &[&format!("Range: bytes={size}-")], b"");
        assert_eq!(
            (beyond.status, beyond.field("content-range")),
            (416, Some(format!("bytes */{size}").as_str()))
        );
        let tag = part.field("etag").unwrap().to_owned();
        let same = client.send("GET", &target, &[&format!("If-None-Match: {tag}")], b"");
        assert_eq!((same.status, same.field("etag")), (304, Some(tag.as_str())));
        let stale = client.send("GET", &target, &["If-Range: \"other\"", "Range: bytes=0-1"], b"");
        assert_eq!((stale.status, stale.body.len()), (200, size));
        let fresh = client.send("GET", &target, &[&format!("If-Range: {tag}"), "Range: bytes=0-1"], b"");
        assert_eq!((fresh.status, fresh.body.len()), (206, 2));
    }
}

#[test]
fn of_a_hundred_racing_writers_one_is_first_and_all_readers_see_it() {
    let node = Arc::new(Node::start(&[]));
    for size in [100, 200_000] {
        let barrier = Arc::new(Barrier::new(100));
        let target = format!("/api/cache/gradle/race-{size}?{SCOPE}");
        let threads: Vec<_> = (0..100u8)
            .map(|number| {
                let (node, barrier, target) = (Arc::clone(&node), Arc::clone(&barrier), target.clone());
                std::thread::spawn(move || {
                    let mut client = node.client();
                    barrier.wait();
                    let status = client.send("PUT", &target, &[], &vec![number; size]).status;
                    (status, node.send("GET", &target, b"").body)
                })
            })
            .collect();
        let seen: Vec<(u16, Vec<u8>)> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(seen.iter().filter(|(status, _)| *status == 201).count(), 1);
        assert!(seen.iter().all(|(status, _)| matches!(status, 200 | 201)));
        let truth = &seen[0].1;
        assert_eq!(truth.len(), size);
        assert!(
            seen.iter().all(|(_, body)| body == truth),
            "readers saw different bodies"
        );
    }
}

#[test]
fn every_route_needs_a_clear_scope() {
    let node = Node::start_with(&Options { args: &[], env: &[] });
    for (target, message) in [
        ("/api/cache/gradle/k", "Missing tenant_id"),
        ("/api/cache/gradle/k?tenant_id=", "Missing tenant_id"),
        (
            "/api/cache/gradle/k?tenant_id=a&tenant_id=b",
            "Ambiguous parameter tenant_id",
        ),
        (
            "/api/cache/gradle/k?tenant_id=a&account_handle=a",
            "Ambiguous parameter tenant_id",
        ),
        (
            "/api/cache/gradle/k?tenant_id=a&namespace_id=x&%6eamespace_id=y",
            "Ambiguous parameter namespace_id",
        ),
        (
            "/api/cache/gradle/k?tenant_id=a&namespace_id=&project_handle=x",
            "Ambiguous parameter namespace_id",
        ),
        ("/api/cache/gradle/k?tenant_id=%zz", "Malformed query"),
        ("/api/cache/gradle/%zz?tenant_id=a", "Malformed query"),
    ] {
        let refused = node.send("GET", target, b"");
        assert_eq!((refused.status, refused.message().as_str()), (400, message), "{target}");
    }
    // One project, however it is spelled.
    node.send(
        "PUT",
        "/api/cache/gradle/k?account_handle=Acme&project_handle=iOS",
        b"x",
    );
    assert_eq!(
        node.send("GET", "/api/cache/gradle/k?tenant_id=acme&namespace_id=ios", b"")
            .status,
        200
    );
}
