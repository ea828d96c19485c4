//! Bodies that say what they hash to (RFC 9530), through every way in.

use crate::doors::{BOTH, Doors};
use aws_lc_rs::digest::{SHA256, SHA512, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

fn sha256(body: &[u8]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(digest(&SHA256, body)))
}

fn sha512(body: &[u8]) -> String {
    format!("sha-512=:{}:", STANDARD.encode(digest(&SHA512, body)))
}

#[test]
fn a_body_that_is_not_what_its_digest_says_is_refused_and_not_stored() {
    let doors = Doors::open(&[]);
    for door in BOTH {
        let mut client = doors.enter(door);
        for size in [5, 200_000, 3_000_000] {
            let body = vec![7; size];
            let target = format!("/api/cache/gradle/{door:?}-{size}?tenant_id=a");
            let both_wrong = format!("{}, {}", sha256(&body), sha512(b"other"));
            for wrong in [sha256(b"other"), sha512(b"other"), both_wrong] {
                let field = format!("Content-Digest: {wrong}");
                let refused = client.send("PUT", &target, &[&field], &body);
                assert_eq!(
                    (refused.status, refused.message().as_str()),
                    (400, "Content-Digest does not match the body"),
                    "{door:?} {size}"
                );
                assert_eq!(client.send("GET", &target, &[], b"").status, 404);
            }
            let malformed = client.send("PUT", &target, &["Content-Digest: sha-256=nonsense"], &body);
            assert_eq!(malformed.status, 400);
            if malformed.field("connection") == Some("close") {
                client = doors.enter(door);
            }
            assert_eq!(client.send("GET", &target, &[], b"").status, 404);
            let right = format!("Content-Digest: md5=:AAAA:, {}, {}", sha256(&body), sha512(&body));
            assert_eq!(
                client.send("PUT", &target, &[&right], &body).status,
                201,
                "{door:?} {size}"
            );
            assert!(client.send("GET", &target, &[], b"").body == body);
        }
        // Chunked, and for a route with a document of its own.
        let head = format!(
            "PUT /api/cache/gradle/{door:?}-chunked?tenant_id=a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\
             Content-Digest: {}\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            sha256(b"abd")
        );
        client.raw(head.as_bytes());
        assert_eq!(client.response().status, 400);
        let document = br#"{"cas_id":"k","entries":[{"value":"v"}]}"#;
        let field = format!("Content-Digest: {}", sha256(b"other"));
        let refused = client.send("PUT", "/api/cache/keyvalue?tenant_id=a", &[&field], document);
        assert_eq!(refused.status, 400);
        assert_eq!(
            client.send("GET", "/api/cache/keyvalue/k?tenant_id=a", &[], b"").status,
            404
        );
    }
}

#[test]
fn answers_carry_a_digest_when_it_is_wanted() {
    let doors = Doors::open(&[]);
    for door in BOTH {
        let mut client = doors.enter(door);
        for size in [5, 200_000, 3_000_000] {
            let body: Vec<u8> = (0..size).map(|at: u32| u8::try_from(at % 249).unwrap()).collect();
            let target = format!("/api/cache/gradle/{door:?}-{size}?tenant_id=a");
            client.send("PUT", &target, &[], &body);
            assert_eq!(client.send("GET", &target, &[], b"").field("content-digest"), None);
            let wanted = client.send("GET", &target, &["Want-Content-Digest: sha-256=5"], b"");
            assert_eq!(
                wanted.field("content-digest"),
                Some(sha256(&body).as_str()),
                "{door:?} {size}"
            );
            assert!(wanted.body == body);
            // A part is described by its own digest, in the preferred algorithm.
            let fields = ["Want-Content-Digest: sha-512=9, sha-256=1", "Range: bytes=1-3"];
            let part = client.send("GET", &target, &fields, b"");
            assert_eq!(
                (part.status, part.field("content-digest")),
                (206, Some(sha512(&body[1..4]).as_str()))
            );
            assert_eq!(
                client
                    .send("GET", &target, &["Want-Content-Digest: md5=9"], b"")
                    .field("content-digest"),
                None
            );
        }
    }
}

#[tokio::test]
async fn http2_checks_and_tells_digests_too() {
    let doors = Doors::open(&[]);
    let stream = tokio::net::TcpStream::connect(doors.node.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let body = Bytes::from(vec![3; 400_000]);
    let uri = format!("http://{}/api/cache/gradle/h2?tenant_id=a", doors.node.address);
    for (claim, status) in [(sha256(b"other"), 400), (sha256(&body), 201)] {
        let put = http::Request::put(&uri)
            .header("content-digest", claim)
            .body(Full::new(body.clone()))
            .unwrap();
        assert_eq!(sender.send_request(put).await.unwrap().status(), status);
    }
    let get = http::Request::get(&uri)
        .header("want-content-digest", "sha-256=1")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let got = sender.send_request(get).await.unwrap();
    assert_eq!(got.headers()["content-digest"], sha256(&body));
    assert_eq!(got.into_body().collect().await.unwrap().to_bytes(), body);
}
