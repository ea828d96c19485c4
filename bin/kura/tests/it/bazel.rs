//! Bazel's HTTP cache, and moon's use of it.

use crate::node::Node;
use crate::tools::{bytes, sha256};

fn message(number: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 128);
    [&[number << 3 | 2, u8::try_from(body.len()).unwrap()], body].concat()
}

fn digest(body: &[u8]) -> Vec<u8> {
    // Sizes below 128 are one byte.
    [
        message(1, sha256(body).as_bytes()),
        vec![2 << 3, u8::try_from(body.len()).unwrap()],
    ]
    .concat()
}

/// An `ActionResult` with one output file.
fn result(file: &[u8]) -> Vec<u8> {
    message(2, &[message(1, b"out.txt"), message(2, &digest(file))].concat())
}

fn cas(body: &[u8]) -> String {
    format!("/bazel/p/cas/{}", sha256(body))
}

fn ac(name: &str) -> String {
    format!("/bazel/p/ac/{}", sha256(name.as_bytes()))
}

#[test]
fn a_hit_implies_that_its_blobs_are_there() {
    let node = Node::start(&[]);
    let target = ac("whole");
    assert_eq!(node.send("PUT", &target, &result(b"output")).status, 200);
    assert_eq!(
        node.send("GET", &target, b"").status,
        404,
        "a result without its blobs is a miss"
    );
    assert_eq!(node.send("PUT", &cas(b"output"), b"output").status, 200);
    assert_eq!(node.send("PUT", &target, &result(b"output")).status, 200);
    let hit = node.send("GET", &target, b"");
    assert_eq!((hit.status, hit.body), (200, result(b"output")));
}

#[test]
fn the_leaves_of_output_directories_count_too() {
    let node = Node::start(&[]);
    let file = message(1, &[message(1, b"leaf"), message(2, &digest(b"leaf"))].concat());
    let tree = message(1, &file);
    let directory = [message(1, b"out"), message(3, &digest(&tree))].concat();
    let result = message(3, &directory);
    assert_eq!(node.send("PUT", &cas(&tree), &tree).status, 200);
    let target = ac("tree");
    assert_eq!(node.send("PUT", &target, &result).status, 200);
    assert_eq!(node.send("GET", &target, b"").status, 404, "the leaf is missing");
    assert_eq!(node.send("PUT", &cas(b"leaf"), b"leaf").status, 200);
    assert_eq!(node.send("PUT", &target, &result).status, 200);
    assert_eq!(node.send("GET", &target, b"").status, 200);
}

fn metric(node: &Node, name: &str) -> f64 {
    let text = String::from_utf8(node.send("GET", "/metrics", b"").body).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in\n{text}"))
        .parse()
        .unwrap()
}

/// A hit over gRPC kept its blobs from eviction for an hour; one over HTTP promised them and kept nothing.
#[test]
fn what_a_hit_vouches_for_is_kept() {
    let node = Node::start(&[]);
    let file = message(1, &[message(1, b"leaf"), message(2, &digest(b"leaf"))].concat());
    let tree = message(1, &file);
    let flat = [result(b"output"), message(6, &digest(b"printed"))].concat();
    let deep = message(3, &[message(1, b"out"), message(3, &digest(&tree))].concat());
    for body in [&b"output"[..], b"printed", b"leaf", &tree] {
        assert_eq!(node.send("PUT", &cas(body), body).status, 200);
    }
    for (name, body) in [("flat", &flat), ("deep", &deep)] {
        assert_eq!(node.send("PUT", &ac(name), body).status, 200);
    }
    assert!(metric(&node, "kura_store_leases") < 0.5);
    assert_eq!(node.send("GET", &ac("flat"), b"").status, 200);
    assert!(
        metric(&node, "kura_store_leases") > 2.5,
        "two blobs and the result itself"
    );
    assert_eq!(node.send("GET", &ac("deep"), b"").status, 200);
    assert!(metric(&node, "kura_store_leases") > 5.5, "the tree and its leaf too");
}

/// gRPC looked below a directory and at the size a digest claims, HTTP did neither.
#[test]
fn holes_are_found_wherever_grpc_finds_them() {
    let node = Node::start(&[]);
    let leaf = message(1, &[message(1, b"leaf"), message(2, &digest(b"leaf"))].concat());
    assert_eq!(node.send("PUT", &cas(&leaf), &leaf).status, 200);
    let rooted = message(3, &[message(1, b"out"), message(5, &digest(&leaf))].concat());
    assert_eq!(node.send("PUT", &ac("rooted"), &rooted).status, 200);
    assert_eq!(node.send("GET", &ac("rooted"), b"").status, 404, "the leaf is missing");
    assert_eq!(node.send("PUT", &cas(b"leaf"), b"leaf").status, 200);
    assert_eq!(node.send("GET", &ac("rooted"), b"").status, 200);
    let wrong = [message(1, sha256(b"leaf").as_bytes()), vec![2 << 3, 99]].concat();
    let sized = message(2, &[message(1, b"out"), message(2, &wrong)].concat());
    assert_eq!(node.send("PUT", &ac("sized"), &sized).status, 200);
    assert_eq!(
        node.send("GET", &ac("sized"), b"").status,
        404,
        "no such blob has 99 bytes"
    );
}

/// Both Bazel versions take an empty result for a success and fail over its missing outputs.
#[test]
fn what_is_no_action_result_is_refused_and_not_stored() {
    let node = Node::start(&[]);
    let target = ac("garbage");
    for body in [
        &b""[..],
        b"not a protobuf",
        &message(13, b"unknown"),
        &message(2, &message(2, b"x")),
    ] {
        // An empty body needs its length said.
        let refused = node.client().send("PUT", &target, &["X: y"], body);
        assert_eq!(
            (refused.status, refused.message().as_str()),
            (400, "Body is not an action result")
        );
        assert_eq!(node.send("GET", &target, b"").status, 404);
    }
}

#[test]
fn the_root_is_the_default_project() {
    let node = Node::start(&[]);
    let hash = sha256(b"blob");
    assert_eq!(node.send("PUT", &format!("/cas/{hash}"), b"blob").status, 200);
    assert_eq!(
        node.send("GET", &format!("/bazel/default/cas/{hash}"), b"").text(),
        "blob"
    );
    assert_eq!(node.send("GET", &format!("/bazel/p/cas/{hash}"), b"").status, 404);
    let action = sha256(b"action");
    assert_eq!(node.send("PUT", &format!("/ac/{action}"), &result(b"blob")).status, 200);
    assert_eq!(node.send("GET", &format!("/ac/{action}"), b"").status, 200);
}

#[test]
fn the_empty_blob_is_always_there() {
    let node = Node::start(&[]);
    let target = cas(b"");
    let hit = node.send("GET", &target, b"");
    assert_eq!((hit.status, hit.body.len()), (200, 0));
    // Bazel 2.1 uploads it nevertheless.
    let put = node.client().send("PUT", &target, &["Content-Length: 0"], b"");
    assert_eq!(put.status, 200);
    assert_eq!(node.send("GET", &target, b"").status, 200);
}

#[test]
fn a_blob_that_is_known_need_not_be_sent_again() {
    let node = Node::start(&[]);
    let body = bytes(300_000);
    let target = cas(&body);
    assert_eq!(node.send("PUT", &target, &body).status, 200);
    // Its name vouches for it: what comes now is not even looked at.
    assert_eq!(node.send("PUT", &target, b"other").status, 200);
    assert!(node.send("GET", &target, b"").body == body);
}

/// moon sends action results as JSON and asks for JSON. Bazel, under the same hash, gets what Bazel stored.
#[test]
fn json_results_are_kept_apart_from_protobuf_ones() {
    let node = Node::start(&[]);
    let target = ac("moon");
    let text = format!(
        r#"{{"outputFiles":[{{"path":"a/out","digest":{{"hash":"{}","sizeBytes":"6"}}}}]}}"#,
        sha256(b"output")
    );
    let put = |body: &[u8]| {
        node.client()
            .send("PUT", &target, &["Content-Type: application/json"], body)
    };
    let get = || node.client().send("GET", &target, &["Accept: application/json"], b"");
    assert_eq!(put(text.as_bytes()).status, 200);
    assert_eq!(get().status, 404, "its blob is missing");
    assert_eq!(node.send("PUT", &cas(b"output"), b"output").status, 200);
    assert_eq!(put(text.as_bytes()).status, 200);
    let hit = get();
    assert_eq!((hit.status, hit.text()), (200, text.as_str()));
    assert_eq!(hit.field("content-type"), Some("application/json"));
    assert_eq!(node.send("GET", &target, b"").status, 404, "Bazel cannot read JSON");
    assert_eq!(put(b"{\"a\":1}").status, 400);
    assert_eq!(put(&result(b"output")).status, 400);
}
