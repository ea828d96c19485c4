//! Turborepo's API.

use crate::node::{Node, Options};
use crate::tools::{READER, WRITER, bearer, bytes, guarded};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const TARGET: &str = "/v8/artifacts/0123456789abcdef?slug=ios";
const FIELDS: [&str; 2] = ["x-artifact-tag: dGFn", "x-artifact-duration: 1234"];

#[test]
fn tag_and_duration_come_back_with_the_artifact_at_every_size() {
    let node = Node::start(&[]);
    let mut client = node.client();
    for size in [0, 1, 100_000, 131_071, 131_072, 5 << 20] {
        let target = format!("/v8/artifacts/{size:016x}?slug=ios");
        let body = bytes(size);
        let mut fields = FIELDS.to_vec();
        if size == 0 {
            fields.push("Content-Length: 0");
        }
        assert_eq!(client.send("PUT", &target, &fields, &body).status, 200, "{size}");
        for method in ["GET", "HEAD"] {
            let hit = client.send(method, &target, &[], b"");
            assert_eq!(hit.status, 200, "{size}");
            assert_eq!(hit.field("x-artifact-tag"), Some("dGFn"), "{size}");
            assert_eq!(hit.field("x-artifact-duration"), Some("1234"), "{size}");
            assert_eq!(hit.field("content-length"), Some(size.to_string().as_str()));
            assert!(method == "HEAD" || hit.body == body, "{size} bytes came back changed");
        }
        if size > 10 {
            let part = client.send("GET", &target, &["Range: bytes=-4"], b"");
            assert_eq!((part.status, &part.body[..]), (206, &body[size - 4..]), "{size}");
        }
    }
}

/// A restarted node has verified nothing yet; the envelope is read only after the bytes were.
#[test]
fn a_restart_keeps_them_and_damage_is_a_miss() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let options = Options { args: &[], env: &[] };
    let body = bytes(1 << 20);
    let mut node = Node::start_in(&data, &options);
    assert_eq!(node.client().send("PUT", TARGET, &FIELDS, &body).status, 200);
    for _ in 0..2 {
        node.signal("TERM");
        assert!(node.wait().success());
        node = Node::start_in(&data, &options);
        for method in ["HEAD", "GET"] {
            let hit = node.client().send(method, TARGET, &["Range: bytes=5-9"], b"");
            assert_eq!(hit.field("x-artifact-tag"), Some("dGFn"));
            assert!(method == "HEAD" || hit.body == body[5..10]);
        }
    }
    node.signal("TERM");
    assert!(node.wait().success());
    for segment in std::fs::read_dir(data.join("store/segments")).unwrap() {
        let path = segment.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(64).position(|window| window == &body[4096..4160]) {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    node = Node::start_in(&data, &options);
    assert_eq!(node.client().send("GET", TARGET, &[], b"").status, 404);
    assert_eq!(crate::tools::count(&node, "turborepo", "ios", "miss"), 1);
    assert_eq!(crate::tools::count(&node, "turborepo", "ios", "hit"), 0);
}

#[test]
fn the_rest_of_the_api_answers() {
    let (node, _dir) = guarded();
    let send = |method: &str, target: &str, token: &str, body: &[u8]| {
        node.client().send(method, target, &[&bearer(token)], body)
    };
    let status = send("GET", "/v8/artifacts/status?slug=ios", READER, b"");
    assert_eq!((status.status, status.text()), (200, r#"{"status":"enabled"}"#));
    assert_eq!(send("POST", "/v8/artifacts/events?slug=ios", READER, b"[]").status, 200);
    let authorization = bearer(WRITER);
    let fields = [FIELDS[0], FIELDS[1], &authorization];
    assert_eq!(node.client().send("PUT", TARGET, &fields, b"artifact").status, 200);
    let asked = br#"{"hashes":["0123456789abcdef","00"]}"#;
    let answer = send("POST", "/v8/artifacts?slug=ios", READER, asked).json();
    assert_eq!(
        answer,
        serde_json::json!({"0123456789abcdef":{"size":8,"taskDurationMs":1234,"tag":"dGFn"},"00":null})
    );
    assert_eq!(
        send("POST", "/v8/artifacts?slug=ios", READER, br#"{"hashes":["../x"]}"#).status,
        400
    );
    assert_eq!(send("POST", "/v8/artifacts?slug=ios", READER, b"nonsense").status, 400);
    let refused = send("PUT", TARGET, READER, b"x");
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (403, &"forbidden".into())
    );
    for bad in [
        "x-artifact-tag: a b",
        "x-artifact-duration: soon",
        "x-artifact-duration:",
    ] {
        assert_eq!(
            node.client().send("PUT", TARGET, &[bad, &authorization], b"x").status,
            400,
            "{bad}"
        );
    }
    assert_eq!(send("GET", TARGET, READER, b"").text(), "artifact");
}

#[test]
fn a_team_goes_by_its_name_or_its_id_or_none() {
    let node = Node::start(&[]);
    for (query, project) in [
        ("?slug=One", "one"),
        ("?teamId=team_Two", "team_two"),
        ("?teamId=team_x&slug=three", "three"),
        ("", "default"),
    ] {
        let target = format!("/v8/artifacts/00{query}");
        assert_eq!(node.send("PUT", &target, project.as_bytes()).status, 200, "{query}");
        assert_eq!(
            node.send("GET", &format!("/v8/artifacts/00?slug={project}"), b"")
                .text(),
            project
        );
    }
    assert_eq!(node.send("PUT", "/v8/artifacts/00?slug=a&slug=b", b"x").status, 400);
}

#[test]
fn a_preflight_needs_no_token_and_allows_one() {
    let (node, _dir) = guarded();
    let answer = node.send("OPTIONS", TARGET, b"");
    assert_eq!(answer.status, 200);
    let allowed = answer.field("access-control-allow-headers").unwrap();
    for field in ["Authorization", "x-artifact-tag", "x-artifact-duration"] {
        assert!(allowed.contains(field), "{allowed}");
    }
    assert!(answer.field("access-control-allow-methods").unwrap().contains("PUT"));
}

#[test]
fn with_a_key_only_signed_artifacts_are_stored() {
    let node = Node::start_with(&Options {
        args: &[],
        env: &[("KURA_TURBOREPO_SIGNATURE_KEY", "a-key-of-at-least-thirty-two-bytes")],
    });
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"a-key-of-at-least-thirty-two-bytes");
    let tag = |fields: &[&[u8]]| {
        format!(
            "x-artifact-tag: {}",
            STANDARD.encode(hmac::sign(&key, &fields.concat()))
        )
    };
    let length = |field: &[u8]| (field.len() as u64).to_le_bytes().to_vec();
    for size in [10, 300_000] {
        let (hash, team, body) = (format!("{size:016x}"), "team_1", bytes(size));
        let target = format!("/v8/artifacts/{hash}?teamId={team}");
        let domain = b"artifact-signature:v2";
        let new = tag(&[
            &length(domain),
            domain,
            &length(hash.as_bytes()),
            hash.as_bytes(),
            &length(team.as_bytes()),
            team.as_bytes(),
            &length(&body),
            &body,
        ]);
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
        let request =
            format!("PUT {target} HTTP/1.1\r\nHost: x\r\n{new}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
        chunked.raw(request.as_bytes());
        assert_eq!(chunked.response().status, 411);
        assert_eq!(
            node.send("GET", &target, b"").status,
            404,
            "something unsigned was stored"
        );
        for signed in [&new, &old] {
            assert_eq!(put(&[signed], &body), 200, "{size}");
            assert!(node.send("GET", &target, b"").body == body);
        }
    }
    let log = node.log().join("\n");
    assert!(!log.contains("thirty-two"), "the key was logged");
}
