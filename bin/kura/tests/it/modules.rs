//! Uploads in parts: how many may be open, how much they may hold, and that they outlive a process.

use crate::node::{Node, Options, come_back};
use russet_conformance::http::wire::Response;

const SCOPE: &str = "tenant_id=acme&namespace_id=ios";

fn start(node: &Node) -> Response {
    let target = format!("/api/cache/module/start?{SCOPE}&hash=h1&name=Feature");
    node.send("POST", &target, b"")
}

fn begin(node: &Node) -> String {
    start(node).json().unwrap()["upload_id"].as_str().unwrap().to_owned()
}

fn part(node: &Node, id: &str, number: u8, body: &[u8]) -> Response {
    let target = format!("/api/cache/module/part?{SCOPE}&upload_id={id}&part_number={number}");
    node.send("POST", &target, body)
}

#[test]
fn open_uploads_and_what_they_hold_are_limited() {
    let node = Node::told("--multipart-max-active-uploads 2 --multipart-max-stored-bytes 10", &[]);
    let id = begin(&node);
    let refused = part(&node, &id, 1, b"more than ten bytes");
    come_back(&refused);
    refused
        .expect_message(503, "Temporary storage budget exhausted")
        .unwrap();
    part(&node, &id, 1, b"few").expect(204).unwrap();
    begin(&node);
    come_back(&start(&node));
}

#[test]
fn open_uploads_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start_in(dir.path(), &Options::default());
    let id = begin(&node);
    part(&node, &id, 1, &vec![5; 3 << 20]).expect(204).unwrap();
    node.kill();
    let node = Node::start_in(dir.path(), &Options::default());
    part(&node, &id, 2, b"end").expect(204).unwrap();
    let complete = format!("/api/cache/module/complete?{SCOPE}&upload_id={id}");
    node.send("POST", &complete, br#"{"parts":[1,2]}"#).expect(204).unwrap();
    let module = node.send("GET", &format!("/api/cache/module/x?{SCOPE}&hash=h1&name=Feature"), b"");
    assert_eq!(module.body.len(), (3 << 20) + 3);
}
