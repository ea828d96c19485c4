//! Who may do what; and what a request must not be able to make of it.

use crate::node::{Node, Options};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::io::{Read as _, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) const SECRET: &str = "kura-auth-jwt-secret-of-the-tests";

pub(crate) fn token(claims: serde_json::Value) -> String {
    sign(&serde_json::json!({"alg":"HS256","typ":"JWT"}), claims, SECRET)
}

fn sign(header: &serde_json::Value, mut claims: serde_json::Value, secret: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    if claims.get("exp").is_none() {
        claims["exp"] = (now + 600).into();
    }
    let text = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header.to_string()),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes())))
}

fn guarded() -> Node {
    Node::start_with(&Options {
        args: &["--tenant-id", "acme", "--bind-address", "127.0.0.1"],
        env: &[("KURA_AUTH_JWT_SECRET", SECRET)],
    })
}

fn ask(node: &Node, method: &str, target: &str, token: &str, body: &[u8]) -> u16 {
    node.client()
        .send(method, target, &[&format!("Authorization: Bearer {token}")], body)
        .status
}

const IOS: &str = "/api/cache/gradle/k?tenant_id=acme&namespace_id=ios";
const ANDROID: &str = "/api/cache/gradle/k?tenant_id=acme&namespace_id=android";

#[test]
fn grants_cover_what_they_name_and_nothing_else() {
    let node = guarded();
    let write = token(serde_json::json!({"cache_grants":{"project":{"write":["acme/ios"]}}}));
    let read = token(serde_json::json!({"cache_grants":{"project":{"read":["acme/ios"]}}}));
    let missing = node.send("GET", IOS, b"");
    assert_eq!(
        (missing.status, missing.message().as_str()),
        (401, "Missing Authorization header")
    );
    assert_eq!(
        node.send("GET", "/api/cache/gradle/k", b"").status,
        401,
        "who says nothing learns nothing"
    );
    assert_eq!(ask(&node, "GET", "/api/cache/gradle/k", &read, b""), 400);
    assert_eq!(ask(&node, "PUT", IOS, &read, b"x"), 403);
    assert_eq!(ask(&node, "PUT", IOS, &write, b"x"), 201);
    assert_eq!(ask(&node, "GET", IOS, &read, b""), 200);
    assert_eq!(ask(&node, "HEAD", IOS, &read, b""), 200, "HEAD is a read");
    assert_eq!(
        ask(
            &node,
            "DELETE",
            "/api/cache/clean?tenant_id=acme&namespace_id=ios",
            &read,
            b""
        ),
        403
    );
    assert_eq!(ask(&node, "GET", ANDROID, &write, b""), 403);
    assert_eq!(
        ask(&node, "GET", "/api/cache/gradle/k?tenant_id=acme", &write, b""),
        403,
        "a project is not its account"
    );
    assert_eq!(
        ask(
            &node,
            "GET",
            "/api/cache/gradle/k?tenant_id=other&namespace_id=ios",
            &write,
            b""
        ),
        403
    );
    assert_eq!(node.send("GET", "/up", b"").status, 200, "probes need no credential");
}

#[test]
fn nx_and_metro_work_with_authorisation() {
    let node = guarded();
    let write = token(serde_json::json!({"cache_grants":{"account":{"write":["acme"]}}}));
    let read = token(serde_json::json!({"cache_grants":{"account":{"read":["acme"]}}}));
    for target in ["/v1/cache/h", "/api/metro/cache/h"] {
        assert_eq!(node.send("GET", target, b"").status, 401);
        assert_eq!(ask(&node, "PUT", target, &read, b"x"), 403);
        assert_eq!(ask(&node, "PUT", target, &write, b"x"), 200);
        assert_eq!(ask(&node, "GET", target, &read, b""), 200);
    }
}

/// Poisoning: forged, stale, ambiguous or misdirected writes are refused and leave nothing.
#[test]
fn no_trick_stores_anything() {
    let node = guarded();
    let mine = serde_json::json!({"cache_grants":{"project":{"write":["acme/mine"]}}});
    let good = token(mine.clone());
    let unsigned = format!(
        "{}.{}.",
        URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#),
        URL_SAFE_NO_PAD.encode(
            serde_json::json!({"exp":4_102_444_800u64,"cache_grants":{"project":{"write":["acme/victim"]}}})
                .to_string()
        )
    );
    let victim = serde_json::json!({"cache_grants":{"project":{"write":["acme/victim"]}}});
    let forged = sign(
        &serde_json::json!({"alg":"HS256"}),
        victim.clone(),
        "another-secret-altogether",
    );
    let stale = token(serde_json::json!({"exp":1000,"cache_grants":{"project":{"write":["acme/victim"]}}}));
    let put = "/api/cache/gradle/k?tenant_id=acme";
    for (query, bearer) in [
        ("&namespace_id=victim", &good),
        ("&namespace_id=mine&namespace_id=victim", &good),
        ("&namespace_id=mine&%6eamespace_id=victim", &good),
        ("&namespace_id=mine&project_handle=victim", &good),
        ("&namespace_id=mine&tenant_id=other", &good),
        ("&namespace_id=mine%2f..%2fvictim", &good),
        ("&namespace_id=mine%00victim", &good),
        ("&namespace_id=victim", &unsigned),
        ("&namespace_id=victim", &forged),
        ("&namespace_id=victim", &stale),
    ] {
        let status = ask(&node, "PUT", &format!("{put}{query}"), bearer, b"poison");
        assert!((400..404).contains(&status), "{query}: {status}");
    }
    let two = node.client().send(
        "PUT",
        &format!("{put}&namespace_id=victim"),
        &[
            &format!("Authorization: Bearer {good}"),
            &format!("Authorization: Bearer {forged}"),
        ],
        b"poison",
    );
    assert_eq!(two.status, 400);
    let all = token(serde_json::json!({"cache_grants":{"project":{"write":["acme/victim","acme/mine"]}}}));
    for namespace in ["victim", "mine"] {
        assert_eq!(
            ask(&node, "GET", &format!("{put}&namespace_id={namespace}"), &all, b""),
            404,
            "{namespace}"
        );
    }
    let text = node.log().join("\n");
    assert!(!text.contains(&good), "a token was logged");
}

#[test]
fn anonymous_access_is_what_was_asked_for() {
    let reader = Node::start(&["--auth-anonymous", "read", "--bind-address", "127.0.0.1"]);
    assert_eq!(reader.send("GET", "/api/cache/gradle/k?tenant_id=a", b"").status, 404);
    let refused = reader.send("PUT", "/api/cache/gradle/k?tenant_id=a", b"x");
    assert!(matches!(refused.status, 401 | 403), "{refused:?}");
    assert_eq!(reader.send("GET", "/api/cache/gradle/k?tenant_id=a", b"").status, 404);
}

#[test]
fn static_tokens_are_read_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    std::fs::write(
        &file,
        "[[token]]\nname = \"ci\"\nsecret = \"0123456789abcdef-ci\"\nwrite = [\"acme/ios\"]\n",
    )
    .unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let node = Node::start(&[
        "--tenant-id",
        "acme",
        "--bind-address",
        "127.0.0.1",
        "--auth-tokens-file",
        file.to_str().unwrap(),
    ]);
    assert_eq!(ask(&node, "PUT", IOS, "0123456789abcdef-ci", b"x"), 201);
    assert_eq!(ask(&node, "GET", IOS, "0123456789abcdef-xx", b""), 401);
    assert_eq!(ask(&node, "GET", ANDROID, "0123456789abcdef-ci", b""), 403);
}

/// A control plane that says the same to everyone who asks.
fn oracle(status: &'static str, body: &'static str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut asked = vec![0; 16 * 1024];
            let _ = stream.read(&mut asked);
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

fn asking(url: &str) -> Node {
    Node::start_with(&Options {
        args: &[
            "--tenant-id",
            "acme",
            "--bind-address",
            "127.0.0.1",
            "--auth-tuist-url",
            url,
            "--control-plane-client-id",
            "node",
        ],
        env: &[("KURA_CONTROL_PLANE_CLIENT_SECRET", "client-secret-value")],
    })
}

#[test]
fn a_token_nobody_here_can_read_is_asked_about_and_the_body_waits() {
    let node = asking(&oracle(
        "200 OK",
        r#"{"active":true,"cache_grants":{"project":{"write":["acme/ios"]}}}"#,
    ));
    assert_eq!(
        ask(&node, "PUT", IOS, "an-opaque-token-of-the-server", &vec![4; 300_000]),
        201
    );
    assert_eq!(ask(&node, "GET", IOS, "an-opaque-token-of-the-server", b""), 200);
}

#[test]
fn when_nobody_can_be_asked_nothing_is_allowed() {
    let node = asking(&oracle("500 Oops", ""));
    let refused = node.client().send(
        "PUT",
        IOS,
        &["Authorization: Bearer an-opaque-token-of-the-server"],
        b"x",
    );
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
}
