//! HTTP/2 on the plain port, and TLS.

use crate::doors::{certify, trusting};
use crate::node::{Node, until};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName};
use std::net::SocketAddr;
use tokio::net::TcpStream;

fn request(method: &str, uri: String, body: &[u8]) -> http::Request<Full<Bytes>> {
    http::Request::builder()
        .method(method)
        .uri(uri)
        .body(Full::new(Bytes::copy_from_slice(body)))
        .unwrap()
}

#[tokio::test]
async fn http2_with_prior_knowledge_shares_the_port() {
    let node = Node::start(&[]);
    let base = format!("http://{}", node.address);
    let stream = TcpStream::connect(node.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    for size in [5, 3_000_000] {
        let uri = format!("{base}/api/cache/gradle/h2-{size}?tenant_id=a");
        let body = vec![9; size];
        let put = sender.send_request(request("PUT", uri.clone(), &body)).await.unwrap();
        assert_eq!(put.status(), 201);
        let got = sender.send_request(request("GET", uri.clone(), b"")).await.unwrap();
        assert_eq!(got.headers()["content-length"], size.to_string());
        assert_eq!(got.into_body().collect().await.unwrap().to_bytes(), body);
        // And the other engine sees the same.
        assert_eq!(
            node.send("GET", &format!("/api/cache/gradle/h2-{size}?tenant_id=a"), b"")
                .body,
            body
        );
    }
    let mut grpc = request("POST", format!("{base}/build.bazel.Unknown/Call"), b"");
    grpc.headers_mut()
        .insert("content-type", "application/grpc".parse().unwrap());
    let answer = sender.send_request(grpc).await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["grpc-status"]),
        (200, &"12".parse().unwrap())
    );
    let missing = sender
        .send_request(request("GET", format!("{base}/none"), b""))
        .await
        .unwrap();
    assert_eq!(missing.status(), 404);
}

/// WebDAV's methods and the tools' own fields pass through the library as through the hand-written engine.
#[tokio::test]
async fn http2_knows_the_tools_methods_and_fields() {
    let node = Node::start(&[]);
    let base = format!("http://{}", node.address);
    let stream = TcpStream::connect(node.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    for (method, path, status) in [
        ("PROPFIND", "/sccache/p/a/", 207),
        ("MKCOL", "/sccache/p/a/", 201),
        ("OPTIONS", "/v8/artifacts/00", 200),
        ("PROPFIND", "/generic/p/a", 405),
    ] {
        let answer = sender
            .send_request(request(method, format!("{base}{path}"), b""))
            .await
            .unwrap();
        assert_eq!(answer.status(), status, "{method} {path}");
    }
    let artifact = format!("{base}/v8/artifacts/00?slug=p");
    let mut put = request("PUT", artifact.clone(), &vec![5; 300_000]);
    put.headers_mut().insert("x-artifact-tag", "dGFn".parse().unwrap());
    assert_eq!(sender.send_request(put).await.unwrap().status(), 200);
    let hit = sender.send_request(request("GET", artifact, b"")).await.unwrap();
    assert_eq!(hit.headers()["x-artifact-tag"], "dGFn");
    assert_eq!(hit.into_body().collect().await.unwrap().to_bytes(), vec![5; 300_000]);
}

async fn secure(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    alpn: &[u8],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    tokio_rustls::TlsConnector::from(trusting(trusted, alpn))
        .connect(name, stream)
        .await
}

#[tokio::test]
async fn tls_serves_both_versions_and_follows_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let first = certify(dir.path());
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let node = Node::start(&[
        "--public-tls-cert-path",
        &path("tls.crt"),
        "--public-tls-key-path",
        &path("tls.key"),
    ]);
    let address = node.secure.unwrap();

    let stream = secure(address, &first, b"h2").await.unwrap();
    let (mut h2, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let uri = "https://localhost/api/cache/gradle/tls?tenant_id=a";
    assert_eq!(
        h2.send_request(request("PUT", uri.to_owned(), b"secret"))
            .await
            .unwrap()
            .status(),
        201
    );

    let stream = secure(address, &first, b"http/1.1").await.unwrap();
    let (mut h1, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut get = request("GET", "/api/cache/gradle/tls?tenant_id=a".to_owned(), b"");
    get.headers_mut().insert("host", "localhost".parse().unwrap());
    let got = h1.send_request(get).await.unwrap();
    assert_eq!(got.into_body().collect().await.unwrap().to_bytes(), "secret");

    let second = certify(dir.path());
    let deadline = tokio::time::Instant::now() + crate::node::DEADLINE;
    while secure(address, &second, b"h2").await.is_err() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the new certificate was not read"
        );
    }
    assert!(secure(address, &first, b"h2").await.is_err());
    until("the reload is logged", || {
        node.log().iter().any(|line| line.contains("read again")).then_some(())
    });
}

/// An HTTP/2 connection on the plain port, frame by frame.
struct Frames {
    client: crate::wire::Client,
}

impl Frames {
    fn open(node: &Node) -> Self {
        let mut client = node.client();
        client.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let mut frames = Self { client };
        frames.send(4, 0, 0, b"");
        frames
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.client.offer(&frame);
    }

    /// The error code of the GOAWAY frame with which the node ends the connection.
    fn goodbye(&mut self) -> Option<u32> {
        let bytes = self.client.drain();
        let mut rest = &bytes[..];
        let mut last = None;
        while rest.len() >= 9 {
            let length = usize::from(rest[0]) << 16 | usize::from(rest[1]) << 8 | usize::from(rest[2]);
            if rest[3] == 7 {
                last = Some(u32::from_be_bytes(rest[13..17].try_into().unwrap()));
            }
            rest = rest.get(9 + length..).unwrap_or_default();
        }
        last
    }
}

/// `:method: GET`, `:scheme: http`, `:path: /` and an authority, by the static table of HPACK.
const GET_ROOT: &[u8] = &[0x82, 0x86, 0x84, 0x41, 0x01, b'x'];
const ENHANCE_YOUR_CALM: u32 = 11;
const END_HEADERS_AND_STREAM: u8 = 5;

/// "Rapid reset": streams opened and cancelled faster than they are answered end the connection, not the node.
#[test]
fn rapid_resets_end_the_connection() {
    let node = Node::start(&[]);
    let mut frames = Frames::open(&node);
    for number in 0..2000 {
        let stream = number * 2 + 1;
        frames.send(1, END_HEADERS_AND_STREAM, stream, GET_ROOT);
        frames.send(3, 0, stream, &8_u32.to_be_bytes());
    }
    assert_eq!(frames.goodbye(), Some(ENHANCE_YOUR_CALM));
    assert_eq!(node.send("GET", "/up", b"").status, 200);
}

/// A header that never ends, in CONTINUATION frames, is cut off long before it fills memory.
#[test]
fn endless_continuation_frames_end_the_connection() {
    let node = Node::start(&[]);
    let mut frames = Frames::open(&node);
    frames.send(1, 1, 1, GET_ROOT);
    // A literal field without indexing: name "a", a kilobyte of value.
    let field = [&[0x00, 0x01, b'a', 0x7f, 0x81, 0x07][..], &[b'v'; 1024]].concat();
    for _ in 0..4096 {
        frames.send(9, 0, 1, &field);
    }
    assert!(frames.goodbye().is_some());
    assert_eq!(node.send("GET", "/up", b"").status, 200);
}

#[tokio::test]
async fn http2_refuses_what_http1_refuses() {
    let node = Node::start(&[]);
    let base = format!("http://{}", node.address);
    let stream = TcpStream::connect(node.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let target = format!("{base}/api/cache/gradle/h2?tenant_id=a");
    for (name, values, status) in [
        ("authorization", vec!["a", "b"], 400),
        ("range", vec!["bytes=0-1", "bytes=2-3"], 400),
        ("expect", vec!["something"], 417),
        ("x-many", vec!["y"; 70], 431),
    ] {
        let mut refused = request("GET", target.clone(), b"");
        for value in values {
            refused.headers_mut().append(name, value.parse().unwrap());
        }
        assert_eq!(sender.send_request(refused).await.unwrap().status(), status, "{name}");
    }
    let mut giant = request("GET", target, b"");
    giant
        .headers_mut()
        .insert("x-large", "a".repeat(40_000).parse().unwrap());
    // The library answers by itself, or ends the stream.
    let answer = sender.send_request(giant).await;
    assert!(answer.is_err() || answer.unwrap().status() == 431);
}

/// A connection that never finishes its preface, or never asks anything, is not kept.
#[test]
fn silent_http2_connections_are_closed() {
    let node = Node::start(&[
        "--http-header-timeout-ms",
        "300",
        "--http-idle-timeout-ms",
        "300",
        "--http-stall-timeout-ms",
        "300",
    ]);
    let mut half = node.client();
    half.raw(b"PRI * HTTP/2.0\r\n\r\nSM");
    let mut idle = Frames::open(&node);
    half.drain();
    assert_eq!(idle.goodbye(), Some(0));
}

/// A drain waits for answers that are still buffered for a slow reader of HTTP/2.
#[tokio::test]
async fn a_drain_waits_for_streamed_answers() {
    let mut node = Node::start(&[]);
    let body = vec![9; 12 << 20];
    assert_eq!(
        node.send("PUT", "/api/cache/gradle/large?tenant_id=a", &body).status,
        201
    );
    let stream = TcpStream::connect(node.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(65_535)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{}/api/cache/gradle/large?tenant_id=a", node.address);
    let got = sender.send_request(request("GET", uri, b"")).await.unwrap();
    assert_eq!(got.status(), 200);
    node.signal("TERM");
    until("the node drains", || {
        (node.send("GET", "/ready", b"").status == 503).then_some(())
    });
    assert_eq!(got.into_body().collect().await.unwrap().to_bytes().len(), body.len());
    assert!(node.wait().success());
}
