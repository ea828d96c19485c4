//! HTTP/2 on the plain port, and TLS.

use crate::node::{Client, Node, until, wait_for};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use russet_conformance::http::{Server, Transport};
use russet_conformance::ours::{certificate, certify};
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;

/// A node with its certificate, as a client that trusts another may see it.
fn server(node: &Node, transport: Transport, trusted: &CertificateDer<'static>) -> Server {
    let mut server = Server::new(&format!("http://{}", node.secure.unwrap())).unwrap();
    server.transport = transport;
    server.trust = vec![trusted.clone()];
    server
}

#[test]
fn tls_follows_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let first = certify(dir.path()).unwrap();
    let node = Node::start(&certificate(dir.path()).each_ref().map(String::as_str));
    let up = |transport, trusted: &CertificateDer<'static>| {
        let server = server(&node, transport, trusted);
        wait_for(server.anonymous().get("/up"))
    };
    for transport in [Transport::TlsHttp1, Transport::TlsHttp2] {
        up(transport, &first).unwrap().expect(200).unwrap();
    }
    let second = certify(dir.path()).unwrap();
    until("the new certificate is served", || {
        up(Transport::TlsHttp2, &second).ok()
    });
    assert!(up(Transport::TlsHttp2, &first).is_err());
    until("the reload is logged", || {
        node.log().contains("read again").then_some(())
    });
}

/// An HTTP/2 connection on the plain port, frame by frame.
struct Frames {
    client: Client,
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
        self.client.raw(&frame(kind, flags, stream, payload));
    }

    /// The error code of the GOAWAY frame with which the node ends the connection.
    fn goodbye(&mut self) -> Option<u32> {
        let bytes = self.client.rest();
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

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
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
    let opened_and_reset = |number: u32| {
        let stream = number * 2 + 1;
        let opened = frame(1, END_HEADERS_AND_STREAM, stream, GET_ROOT);
        [opened, frame(3, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    // In one write: a node that gets them one by one may answer each before its reset.
    let all: Vec<u8> = (0..2000).flat_map(opened_and_reset).collect();
    frames.client.raw(&all);
    assert_eq!(frames.goodbye(), Some(ENHANCE_YOUR_CALM));
    assert_eq!(node.status("GET", "/up", b""), 200);
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
    assert_eq!(node.status("GET", "/up", b""), 200);
}

/// A connection that never finishes its preface, or never asks anything, is not kept.
#[test]
fn silent_http2_connections_are_closed() {
    let limits = "--http-header-timeout-ms 300 --http-idle-timeout-ms 300 --http-stall-timeout-ms 300";
    let node = Node::told(limits, &[]);
    let mut half = node.client();
    half.raw(b"PRI * HTTP/2.0\r\n\r\nSM");
    let mut idle = Frames::open(&node);
    half.rest();
    assert_eq!(idle.goodbye(), Some(0));
}

/// A drain waits for answers that are still buffered for a slow reader of HTTP/2.
#[tokio::test]
async fn a_drain_waits_for_streamed_answers() {
    let mut node = Node::start(&[]);
    let body = vec![9; 12 << 20];
    assert_eq!(node.status("PUT", "/api/cache/gradle/large?tenant_id=a", &body), 201);
    let stream = TcpStream::connect(node.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(65_535)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{}/api/cache/gradle/large?tenant_id=a", node.address);
    let get = http::Request::get(uri).body(Full::new(Bytes::new())).unwrap();
    let got = sender.send_request(get).await.unwrap();
    assert_eq!(got.status(), 200);
    node.drain("TERM");
    assert_eq!(got.into_body().collect().await.unwrap().to_bytes().len(), body.len());
    node.wait();
}
