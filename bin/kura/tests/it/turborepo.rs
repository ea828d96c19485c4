//! Turborepo's artifacts on a disk that was damaged, and under a key of the operator's.

use crate::node::{Node, Options, damage};
use crate::tools::bytes;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const TARGET: &str = "/v8/artifacts/0123456789abcdef?slug=ios";
const FIELDS: [&str; 2] = ["x-artifact-tag: dGFn", "x-artifact-duration: 1234"];

/// A restarted node has verified nothing yet; the envelope is read only after the bytes were.
#[test]
fn a_restart_keeps_them_and_damage_is_a_miss() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let options = Options::default();
    let body = bytes(1 << 20);
    let mut node = Node::start_in(&data, &options);
    assert_eq!(node.client().send("PUT", TARGET, &FIELDS, &body).status, 200);
    for _ in 0..2 {
        node.stop();
        node = Node::start_in(&data, &options);
        for method in ["HEAD", "GET"] {
            let hit = node.client().send(method, TARGET, &["Range: bytes=5-9"], b"");
            assert_eq!(hit.field("x-artifact-tag").as_deref(), Some("dGFn"));
            assert!(method == "HEAD" || hit.body == body[5..10]);
        }
    }
    node.stop();
    damage(&data, &body[4096..4160]);
    node = Node::start_in(&data, &options);
    assert_eq!(node.client().send("GET", TARGET, &[], b"").status, 404);
    assert_eq!(node.count("turborepo", "ios", "miss"), 1);
    assert_eq!(node.count("turborepo", "ios", "hit"), 0);
}

#[test]
fn with_a_key_only_signed_artifacts_are_stored() {
    let key = "a-key-of-at-least-thirty-two-bytes";
    let node = Node::told("", &[("KURA_TURBOREPO_SIGNATURE_KEY", key)]);
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let tag = |fields: &[&[u8]]| {
        let signature = hmac::sign(&key, &fields.concat());
        format!("x-artifact-tag: {}", STANDARD.encode(signature))
    };
    let length = |field: &[u8]| (field.len() as u64).to_le_bytes().to_vec();
    for size in [10, 300_000] {
        let (hash, team, body) = (format!("{size:016x}"), "team_1", bytes(size));
        let target = format!("/v8/artifacts/{hash}?teamId={team}");
        let domain = b"artifact-signature:v2";
        let fields = [&domain[..], hash.as_bytes(), team.as_bytes(), body.as_slice()];
        let framed = fields.map(|field| [length(field).as_slice(), field].concat());
        let new = tag(&framed.each_ref().map(Vec::as_slice));
        let old = tag(&[hash.as_bytes(), team.as_bytes(), &body]);
        let foreign = tag(&[hash.as_bytes(), b"team_2", &body]);
        let put = |fields: &[&str], body: &[u8]| node.client().send("PUT", &target, fields, body).status;
        assert_eq!(put(&[], &body), 403, "unsigned");
        assert_eq!(put(&["x-artifact-tag: !"], &body), 400, "not a signature");
        assert_eq!(put(&[&foreign], &body), 403, "signed for another team");
        let mut changed = body.clone();
        changed[7] ^= 1;
        assert_eq!(put(&[&new], &changed), 403, "changed on the way");
        let mut chunked = node.client();
        let head = format!("PUT {target} HTTP/1.1\r\nHost: x\r\n{new}");
        chunked.raw(format!("{head}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").as_bytes());
        assert_eq!(chunked.response().status, 411);
        assert_eq!(node.status("GET", &target, b""), 404, "something unsigned was stored");
        for signed in [&new, &old] {
            assert_eq!(put(&[signed], &body), 200, "{size}");
            assert!(node.send("GET", &target, b"").body == body);
        }
    }
    let log = node.log();
    assert!(!log.contains("thirty-two"), "the key was logged");
}
