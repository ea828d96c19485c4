//! Where grants come from: flags, a file, a control plane.

use crate::node::{CLIENT_SECRET, GUARDED, Node, come_back};
use crate::tools::{READER, WRITER, guarded};
use std::io::{Read as _, Write as _};

const IOS: &str = "/api/cache/gradle/k?tenant_id=acme&namespace_id=ios";

fn ask(node: &Node, method: &str, target: &str, token: &str, body: &[u8]) -> u16 {
    let field = format!("Authorization: Bearer {token}");
    node.client().send(method, target, &[&field], body).status
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
fn static_tokens_are_read_from_a_file_and_never_logged() {
    let (node, _dir) = guarded();
    assert_eq!(ask(&node, "PUT", IOS, READER, b"x"), 403);
    assert_eq!(ask(&node, "PUT", IOS, WRITER, b"x"), 201);
    assert_eq!(ask(&node, "GET", IOS, READER, b""), 200);
    assert_eq!(ask(&node, "GET", IOS, "0123456789abcdef-xx", b""), 401);
    assert_eq!(ask(&node, "GET", &IOS.replace("ios", "android"), WRITER, b""), 403);
    let log = node.log();
    assert!(!log.contains(WRITER) && !log.contains(READER), "a token was logged");
}

/// A control plane that says the same to every node.
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
    let flags = format!(
        "{} --auth-tuist-url {url} --control-plane-client-id node",
        GUARDED.join(" ")
    );
    Node::told(&flags, &[CLIENT_SECRET])
}

#[test]
fn a_token_nobody_here_can_read_is_asked_about_and_the_body_waits() {
    let grant = r#"{"active":true,"cache_grants":{"project":{"write":["acme/ios"]}}}"#;
    let node = asking(&oracle("200 OK", grant));
    let token = "an-opaque-token-of-the-server";
    assert_eq!(ask(&node, "PUT", IOS, token, &vec![4; 300_000]), 201);
    assert_eq!(ask(&node, "GET", IOS, token, b""), 200);
}

#[test]
fn when_nobody_can_be_asked_nothing_is_allowed() {
    let node = asking(&oracle("500 Oops", ""));
    let field = "Authorization: Bearer an-opaque-token-of-the-server";
    come_back(&node.client().send("PUT", IOS, &[field], b"x"));
}
