//! The server on its own, with a caller that is nothing but TLS and frames: what kubectl never does, or not on request.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{SinkExt as _, StreamExt as _};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use russet_kubelet_api::auth::{ReviewError, Reviewer, User};
use russet_kubelet_api::spdy::{Decoder, Encoder, Frame, Headers, rst};
use russet_kubelet_api::{Limits, Options, Server, Serving};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_util::sync::CancellationToken;

use crate::commands::runs;
use crate::local::Local;
use crate::stage::{PATIENCE, eventually, read};

/// Lets everybody with a certificate do everything.
struct Trusting;

impl Reviewer for Trusting {
    async fn token(&self, _: &str) -> Result<Option<User>, ReviewError> {
        Ok(None)
    }

    async fn access(&self, _: &User, _: &str, _: &str, _: &str) -> Result<bool, ReviewError> {
        Ok(true)
    }
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn issue(authority: &Authority, name: &str) -> (rcgen::Certificate, KeyPair) {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, authority).unwrap(), key)
}

struct Alone {
    authority: Authority,
    serving: Serving,
    address: std::net::SocketAddr,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Alone {
    async fn start(limits: Limits) -> Self {
        let authority = authority();
        let serving = Serving::empty();
        let options = Options {
            node: "mac1".to_owned(),
            client_ca: authority.pem(),
            serving: serving.clone(),
            limits,
        };
        let backend = Local::new();
        backend.add("p", 1);
        let server = Server::new(options, backend, Trusting).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run(listener, stop.clone()));
        let alone = Self {
            authority,
            serving,
            address,
            stop,
            running,
        };
        alone.renew();
        alone
    }

    fn renew(&self) {
        let (certificate, key) = issue(&self.authority, "mac1");
        self.serving.replace(&certificate.pem(), &key.serialize_pem()).unwrap();
    }

    async fn connect_with(&self, issuer: &Authority) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let (certificate, key) = issue(issuer, "apiserver");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let tcp = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        self.connect_with(&self.authority).await.unwrap()
    }

    async fn certificate(&self) -> CertificateDer<'static> {
        let socket = self.connect().await;
        let shown = socket.get_ref().1.peer_certificates().unwrap();
        shown[0].clone()
    }

    async fn exec(&self, protocol: &str, query: &str) -> Caller {
        self.upgrade(&format!("exec/default/p/c?{query}"), protocol).await
    }

    async fn upgrade(&self, path: &str, protocol: &str) -> Caller {
        let mut socket = self.connect().await;
        let request = format!(
            "POST /{path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
             X-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut input = BytesMut::new();
        let head = loop {
            if let Some(end) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break input.split_to(end + 4);
            }
            assert_ne!(socket.read_buf(&mut input).await.unwrap(), 0);
        };
        let head = String::from_utf8(head.to_vec()).unwrap().to_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        assert!(
            head.contains(&format!("x-stream-protocol-version: {protocol}\r\n")),
            "{head}"
        );
        Caller {
            socket,
            input,
            encoder: Encoder::new(),
            decoder: Decoder::new(),
        }
    }
}

/// One of the two streams of a forwarded connection.
fn half(kind: &str, port: u16, request: &str) -> Headers {
    Headers::new([
        ("streamtype", kind),
        ("port", &port.to_string()),
        ("requestid", request),
    ])
}

struct Caller {
    socket: TlsStream<TcpStream>,
    input: BytesMut,
    encoder: Encoder,
    decoder: Decoder,
}

impl Caller {
    async fn send(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        self.encoder.encode(&frame, &mut bytes).unwrap();
        self.socket.write_all(&bytes).await.unwrap();
        self.socket.flush().await.unwrap();
    }

    async fn open(&mut self, id: u32, kind: &str) {
        self.open_with(id, Headers::new([("streamtype", kind)])).await;
    }

    async fn open_with(&mut self, id: u32, headers: Headers) {
        self.send(Frame::SynStream {
            id,
            fin: false,
            headers,
        })
        .await;
        let reply = self.next().await;
        assert!(
            matches!(reply, Some(Frame::SynReply { id: replied, .. }) if replied == id),
            "{reply:?}"
        );
    }

    /// None when the server has closed. Its questions whether we are there come when they come.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            match self.decoder.decode(&mut self.input).unwrap() {
                Some(Frame::Ping { .. }) => continue,
                Some(frame) => return Some(frame),
                None => {}
            }
            // Room for all there is: what is read in two goes comes as two pieces.
            self.input.reserve(64 * 1024);
            let read = self.socket.read_buf(&mut self.input);
            // A server that is stopped in the middle may not say goodbye as TLS wants it.
            if timeout(PATIENCE, read).await.expect("a frame or the end").unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Everything that is sent on one stream until the connection ends.
    async fn rest(&mut self, wanted: u32) -> String {
        let mut all = Vec::new();
        while let Some(frame) = self.next().await {
            if let Frame::Data { id, bytes, .. } = frame
                && id == wanted
            {
                all.extend_from_slice(&bytes);
            }
        }
        String::from_utf8(all).unwrap()
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_the_next_caller() {
    let alone = Alone::start(Limits::default()).await;
    let first = alone.certificate().await;
    assert_eq!(alone.certificate().await, first);
    alone.renew();
    assert_ne!(alone.certificate().await, first);
}

#[tokio::test]
async fn a_certificate_of_another_authority_opens_nothing() {
    let alone = Alone::start(Limits::default()).await;
    let stranger = alone.connect_with(&authority()).await;
    // In TLS 1.3 the client learns of the refusal only when it reads.
    if let Ok(mut socket) = stranger {
        let _ = socket.write_all(b"GET /pods HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap_err();
        assert!(answer.is_empty());
    }
}

/// A command that leaves its pid in `file` and stays.
fn sleeper(file: &Path) -> String {
    let file = file.display();
    let script = format!("echo%20$$%20%3E%20{file}.new%3B%20mv%20{file}.new%20{file}%3B%20exec%20sleep%201000");
    format!("output=1&command=sh&command=-c&command={script}")
}

#[tokio::test]
async fn a_stop_ends_sessions_and_the_commands_they_run() {
    let limits = Limits {
        drain: Duration::from_millis(50),
        ..Limits::default()
    };
    let alone = Alone::start(limits).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut caller = alone.exec("v4.channel.k8s.io", &sleeper(&file)).await;
    caller.open(1, "error").await;
    caller.open(3, "stdout").await;
    eventually("the command runs", async || file.exists()).await;
    let pid = read(&file).trim().to_owned();
    alone.stop.cancel();
    timeout(PATIENCE, alone.running).await.unwrap().unwrap();
    while caller.next().await.is_some() {}
    eventually("the command ends", async || !runs(&pid)).await;
}

/// Input that nobody reads stops the reader, and then the end of the connection waits behind it unread: only a question that gets
/// no answer tells that the caller is gone.
#[tokio::test]
async fn a_caller_that_leaves_while_its_input_is_stuck_is_noticed() {
    let limits = Limits {
        ping: Duration::from_millis(100),
        ..Limits::default()
    };
    let alone = Alone::start(limits).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut caller = alone
        .exec("v4.channel.k8s.io", &format!("input=1&{}", sleeper(&file)))
        .await;
    caller.open(1, "error").await;
    caller.open(3, "stdin").await;
    caller.open(5, "stdout").await;
    eventually("the command runs", async || file.exists()).await;
    // More than queue and pipe hold, less than the kernel holds besides.
    for _ in 0..30 {
        let bytes = vec![0; 32 * 1024].into();
        let stuck = caller.send(Frame::Data {
            id: 3,
            fin: false,
            bytes,
        });
        timeout(PATIENCE, stuck).await.unwrap();
    }
    let pid = read(&file).trim().to_owned();
    assert!(runs(&pid));
    drop(caller);
    eventually("the command ends", async || !runs(&pid)).await;
}

#[tokio::test]
async fn a_caller_that_does_not_open_its_streams_is_sent_away() {
    let limits = Limits {
        stream_creation: Duration::from_millis(50),
        ..Limits::default()
    };
    let alone = Alone::start(limits).await;
    let mut caller = alone.exec("v4.channel.k8s.io", "output=1&command=true").await;
    caller.open(1, "error").await;
    assert_eq!(caller.next().await, Some(Frame::GoAway { last: 1, status: 0 }));
    assert_eq!(caller.next().await, None);
}

#[tokio::test]
async fn a_session_in_which_nothing_moves_ends_and_says_so() {
    let limits = Limits {
        stream_idle: Duration::from_secs(1),
        ping: Duration::from_millis(100),
        ..Limits::default()
    };
    let alone = Alone::start(limits).await;
    let mut caller = alone
        .exec("v4.channel.k8s.io", "output=1&command=sleep&command=1000")
        .await;
    caller.open(1, "error").await;
    caller.open(3, "stdout").await;
    let status = caller.rest(1).await;
    assert!(status.contains("nothing was sent or received for 1 s"), "{status}");
}

#[tokio::test]
async fn a_request_that_never_ends_is_ended() {
    let limits = Limits {
        request_life: Duration::from_millis(300),
        ..Limits::default()
    };
    let alone = Alone::start(limits).await;
    let mut socket = alone.connect().await;
    let request = "GET /containerLogs/default/p/c?follow=true HTTP/1.1\r\nHost: x\r\n\r\n";
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Cut off in the middle, so TLS may complain about the missing goodbye.
    let _ = timeout(PATIENCE, socket.read_to_end(&mut answer))
        .await
        .expect("the server gives up");
}

#[tokio::test]
async fn callers_of_the_first_version_get_words_instead_of_objects() {
    let alone = Alone::start(Limits::default()).await;
    let mut caller = alone
        .exec("channel.k8s.io", "output=1&command=sh&command=-c&command=exit%203")
        .await;
    caller.open(1, "error").await;
    caller.open(3, "stdout").await;
    assert_eq!(
        caller.rest(1).await,
        "command terminated with non-zero exit code: exit status 3"
    );
}

/// Bytes that follow the request at once sit in the HTTP reader when the session takes over.
#[tokio::test]
async fn frames_that_come_with_the_request_are_not_lost() {
    let alone = Alone::start(Limits::default()).await;
    let mut socket = alone.connect().await;
    let mut bytes = BytesMut::from(
        &b"POST /exec/default/p/c?output=1&input=1&command=cat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
           X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n"[..],
    );
    let mut encoder = Encoder::new();
    for (id, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
        let headers = Headers::new([("streamtype", kind)]);
        encoder
            .encode(
                &Frame::SynStream {
                    id,
                    fin: false,
                    headers,
                },
                &mut bytes,
            )
            .unwrap();
    }
    let early = Bytes::from_static(b"early");
    encoder
        .encode(
            &Frame::Data {
                id: 3,
                fin: true,
                bytes: early,
            },
            &mut bytes,
        )
        .unwrap();
    socket.write_all(&bytes).await.unwrap();
    let mut input = BytesMut::new();
    while !input.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        assert_ne!(socket.read_buf(&mut input).await.unwrap(), 0);
    }
    let end = input.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let input = input.split_off(end + 4);
    let mut caller = Caller {
        socket,
        input,
        encoder,
        decoder: Decoder::new(),
    };
    assert_eq!(caller.rest(5).await, "early");
}

#[tokio::test]
async fn half_a_pair_that_stays_alone_is_reset_and_whole_ones_go_on() {
    let limits = Limits {
        stream_creation: Duration::from_secs(5),
        ..Limits::default()
    };
    let alone = Alone::start(limits).await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = target.local_addr().unwrap().port();
    let mut caller = alone.upgrade("portForward/default/p", "portforward.k8s.io").await;
    // Either half may come first; both are sent at once, so that no deadline can fall between them.
    let mut bytes = BytesMut::new();
    for (id, kind) in [(1, "data"), (3, "error")] {
        let headers = half(kind, port, "0");
        let frame = Frame::SynStream {
            id,
            fin: false,
            headers,
        };
        caller.encoder.encode(&frame, &mut bytes).unwrap();
    }
    caller.socket.write_all(&bytes).await.unwrap();
    for id in [1, 3] {
        let reply = caller.next().await;
        assert!(
            matches!(reply, Some(Frame::SynReply { id: replied, .. }) if replied == id),
            "{reply:?}"
        );
    }
    caller.open_with(5, half("error", port, "1")).await;
    let (mut socket, _) = timeout(PATIENCE, target.accept()).await.unwrap().unwrap();
    let status = rst::CANCEL;
    assert_eq!(caller.next().await, Some(Frame::RstStream { id: 5, status }));
    socket.write_all(b"still here").await.unwrap();
    drop(socket);
    let mut said = Vec::new();
    while let Some(Frame::Data {
        id: 1,
        fin: false,
        bytes,
    }) = caller.next().await
    {
        said.extend_from_slice(&bytes);
    }
    assert_eq!(said, b"still here");
}

#[tokio::test]
async fn more_connections_than_allowed_are_refused_one_by_one() {
    let limits = Limits {
        forward_streams: 4,
        ..Limits::default()
    };
    let alone = Alone::start(limits).await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = target.local_addr().unwrap().port();
    let mut caller = alone.upgrade("portForward/default/p", "portforward.k8s.io").await;
    let mut held = Vec::new();
    for (error, request) in [(1, "0"), (5, "1")] {
        caller.open_with(error, half("error", port, request)).await;
        caller
            .send(Frame::Data {
                id: error,
                fin: true,
                bytes: Bytes::new(),
            })
            .await;
        caller.open_with(error + 2, half("data", port, request)).await;
        held.push(timeout(PATIENCE, target.accept()).await.unwrap().unwrap());
        // Ended by the caller, but the target keeps its side open.
        caller
            .send(Frame::Data {
                id: error + 2,
                fin: true,
                bytes: Bytes::new(),
            })
            .await;
    }
    caller.open_with(9, half("error", port, "2")).await;
    caller.open_with(11, half("data", port, "2")).await;
    let status = rst::REFUSED_STREAM;
    assert_eq!(caller.next().await, Some(Frame::RstStream { id: 9, status }));
    assert_eq!(caller.next().await, Some(Frame::RstStream { id: 11, status }));
}

/// What apiservers will speak to nodes that say so, from 1.36 on: a channel can be closed, and so input can end.
#[tokio::test]
async fn the_fifth_version_ends_input_by_closing_its_channel() {
    let alone = Alone::start(Limits::default()).await;
    let url = format!("wss://{}/exec/default/p/c?input=1&output=1&command=cat", alone.address);
    let mut request = url.into_client_request().unwrap();
    let protocol = "v5.channel.k8s.io".parse().unwrap();
    request.headers_mut().insert("Sec-WebSocket-Protocol", protocol);
    let (mut socket, _) = tokio_tungstenite::client_async(request, alone.connect().await)
        .await
        .unwrap();
    for message in [b"\0all of it".as_slice(), b"\xff\0"] {
        socket.send(Message::binary(message)).await.unwrap();
    }
    let (mut output, mut status) = (Vec::new(), Vec::new());
    while let Some(message) = timeout(PATIENCE, socket.next()).await.expect("a message or the end") {
        match message.unwrap() {
            Message::Binary(bytes) if bytes[0] == 1 => output.extend_from_slice(&bytes[1..]),
            Message::Binary(bytes) if bytes[0] == 3 => status.extend_from_slice(&bytes[1..]),
            Message::Close(_) => break,
            _ => {}
        }
    }
    assert_eq!(output, b"all of it");
    assert_eq!(status, br#"{"metadata":{},"status":"Success"}"#);
}
