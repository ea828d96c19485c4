//! Modules in parts.

use crate::node::{Node, Options};

const MODULE: &str = "tenant_id=acme&namespace_id=ios&hash=h1&name=Feature";

fn start(node: &Node) -> serde_json::Value {
    let started = node.send("POST", &format!("/api/cache/module/start?{MODULE}"), b"");
    assert_eq!(started.status, 200);
    started.json()["upload_id"].clone()
}

fn part(node: &Node, id: &str, number: &str, body: &[u8]) -> u16 {
    let target = format!("/api/cache/module/part?tenant_id=acme&namespace_id=ios&upload_id={id}&part_number={number}");
    node.send("POST", &target, body).status
}

fn complete(node: &Node, id: &str, list: &str) -> crate::wire::Response {
    let target = format!("/api/cache/module/complete?tenant_id=acme&namespace_id=ios&upload_id={id}");
    node.send("POST", &target, list.as_bytes())
}

#[test]
fn parts_in_any_order_become_one_module() {
    let node = Node::start(&[]);
    let target = format!("/api/cache/module/ignored?{MODULE}");
    assert_eq!(node.client().send("HEAD", &target, &[], b"").status, 404);
    let id = start(&node);
    let id = id.as_str().unwrap();
    assert_eq!(part(&node, id, "2", b"world"), 204);
    assert_eq!(part(&node, id, "1", b"wrong"), 204);
    assert_eq!(part(&node, id, "1", b"hello "), 204);
    for list in [
        r#"{"parts":[1]}"#,
        r#"{"parts":[2,1]}"#,
        r#"{"parts":[]}"#,
        r#"{"parts":[1,2,3]}"#,
    ] {
        let refused = complete(&node, id, list);
        assert_eq!(
            (refused.status, refused.message().as_str()),
            (400, "Parts mismatch or missing parts"),
            "{list}"
        );
    }
    assert_eq!(complete(&node, id, "nonsense").status, 400);
    assert_eq!(complete(&node, id, r#"{"parts":[1,2]}"#).status, 204);
    assert_eq!(complete(&node, id, r#"{"parts":[1,2]}"#).message(), "Upload not found");
    assert_eq!(node.send("GET", &target, b"").text(), "hello world");
    assert_eq!(node.client().send("HEAD", &target, &[], b"").status, 204);
    assert!(start(&node).is_null(), "a module that is there needs no upload");
}

#[test]
fn parts_have_limits() {
    let node = Node::start(&["--multipart-max-active-uploads", "2"]);
    let id = start(&node);
    let id = id.as_str().unwrap();
    for number in ["0", "10001", "x", "-1", "99999"] {
        assert_eq!(part(&node, id, number, b"x"), 400, "{number}");
    }
    assert_eq!(part(&node, "0192aaaa-0000-7000-8000-000000000000", "1", b"x"), 404);
    assert_eq!(part(&node, "..", "1", b"x"), 404);
    let target = format!("/api/cache/module/part?tenant_id=acme&namespace_id=ios&upload_id={id}&part_number=1");
    let large = node.send("POST", &target, &vec![0; (10 << 20) + 1]);
    assert_eq!(
        (large.status, large.message().as_str()),
        (413, "Part exceeds 10MB limit")
    );
    // For another namespace the upload does not exist.
    let other = format!("/api/cache/module/part?tenant_id=acme&namespace_id=other&upload_id={id}&part_number=1");
    assert_eq!(node.send("POST", &other, b"x").message(), "Upload not found");
    start(&node);
    let refused = node.send("POST", &format!("/api/cache/module/start?{MODULE}"), b"");
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
}

#[test]
fn open_uploads_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { args: &[], env: &[] };
    let mut node = Node::start_in(dir.path(), &options);
    let id = start(&node);
    let id = id.as_str().unwrap();
    assert_eq!(part(&node, id, "1", &vec![5; 3 << 20]), 204);
    node.kill();
    let node = Node::start_in(dir.path(), &options);
    assert_eq!(part(&node, id, "2", b"end"), 204);
    assert_eq!(complete(&node, id, r#"{"parts":[1,2]}"#).status, 204);
    let module = node.send("GET", &format!("/api/cache/module/x?{MODULE}"), b"");
    assert_eq!(module.body.len(), (3 << 20) + 3);
}
