//! The server without a cluster, and a caller that speaks to it by hand.

use std::sync::Arc;

use bytes::BytesMut;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use russet_kubelet_api::auth::{ReviewError, Reviewer, User};
use russet_kubelet_api::spdy::{Decoder, Encoder, Frame, Headers};
use russet_kubelet_api::{Limits, Options, Server, Serving};
use rustls::client::WantsClientCert;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::local::Local;
use crate::stage::PATIENCE;

/// Which tokens are known, and who may do what.
pub(crate) struct Rights {
    knows_tokens: bool,
    may: fn(&User, &str) -> bool,
}

/// Lets everybody with a certificate do everything.
const TRUSTING: Rights = Rights {
    knows_tokens: false,
    may: |_, _| true,
};

/// Lets everybody with a certificate look, and no more.
pub(crate) const LOOKING: Rights = Rights {
    knows_tokens: false,
    may: |_, verb| verb == "get",
};

/// Knows every token, and lets nobody but the apiserver do anything.
pub(crate) const KNOWING: Rights = Rights {
    knows_tokens: true,
    may: |user, _| user.name == "apiserver",
};

impl Reviewer for Rights {
    async fn token(&self, _: &str) -> Result<Option<User>, ReviewError> {
        let name = "system:serviceaccount:default:default".to_owned();
        Ok(self.knows_tokens.then(|| User {
            name,
            ..User::default()
        }))
    }

    async fn access(&self, user: &User, verb: &str, _: &str, _: &str) -> Result<bool, ReviewError> {
        Ok((self.may)(user, verb))
    }
}

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

pub(crate) fn issue(authority: &Authority, name: &str) -> (rcgen::Certificate, KeyPair) {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, authority).unwrap(), key)
}

pub(crate) struct Alone {
    pub(crate) authority: Authority,
    pub(crate) serving: Serving,
    pub(crate) address: std::net::SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) running: JoinHandle<()>,
}

impl Alone {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Limits)) -> Self {
        Self::with_reviewer(change, TRUSTING).await
    }

    pub(crate) async fn with_reviewer(change: impl FnOnce(&mut Limits), reviewer: Rights) -> Self {
        let mut limits = Limits::default();
        change(&mut limits);
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
        let server = Server::new(options, backend, reviewer).unwrap();
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

    pub(crate) fn renew(&self) {
        let (certificate, key) = issue(&self.authority, "mac1");
        self.serving.replace(&certificate.pem(), &key.serialize_pem()).unwrap();
    }

    pub(crate) async fn connect_with(&self, issuer: &Authority) -> std::io::Result<TlsStream<TcpStream>> {
        let (certificate, key) = issue(issuer, "apiserver");
        let chain = vec![certificate.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let shown = self.trusting().with_client_auth_cert(chain, key);
        self.shake(shown.unwrap()).await
    }

    /// Without a certificate.
    pub(crate) async fn connect_as_nobody(&self) -> TlsStream<TcpStream> {
        self.shake(self.trusting().with_no_client_auth()).await.unwrap()
    }

    fn trusting(&self) -> ConfigBuilder<ClientConfig, WantsClientCert> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
    }

    async fn shake(&self, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    }

    pub(crate) async fn connect(&self) -> TlsStream<TcpStream> {
        self.connect_with(&self.authority).await.unwrap()
    }

    pub(crate) async fn certificate(&self) -> CertificateDer<'static> {
        let socket = self.connect().await;
        let shown = socket.get_ref().1.peer_certificates().unwrap();
        shown[0].clone()
    }

    pub(crate) async fn exec(&self, protocol: &str, query: &str) -> Caller {
        self.upgrade(&format!("exec/default/p/c?{query}"), protocol).await
    }

    pub(crate) async fn upgrade(&self, path: &str, protocol: &str) -> Caller {
        let mut socket = self.connect().await;
        let request = format!(
            "POST /{path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
             X-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut input = BytesMut::new();
        let head = head(&mut socket, &mut input).await;
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        let version = format!("x-stream-protocol-version: {protocol}\r\n");
        assert!(head.contains(&version), "{head}");
        let (encoder, decoder) = (Encoder::new(), Decoder::new());
        Caller {
            socket,
            input,
            encoder,
            decoder,
        }
    }
}

/// The head of an answer in lower case; what follows it stays in `input`.
pub(crate) async fn head(socket: &mut TlsStream<TcpStream>, input: &mut BytesMut) -> String {
    loop {
        if let Some(end) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = input.split_to(end + 4);
            return String::from_utf8(head.to_vec()).unwrap().to_lowercase();
        }
        assert_ne!(socket.read_buf(input).await.unwrap(), 0);
    }
}

/// The status of the answer to a WebSocket handshake.
pub(crate) async fn handshake(socket: &mut TlsStream<TcpStream>, path: &str) -> u16 {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = BytesMut::new();
    while !answer.windows(2).any(|bytes| bytes == b"\r\n") {
        let read = timeout(PATIENCE, socket.read_buf(&mut answer)).await;
        assert_ne!(read.expect("an answer").unwrap(), 0);
    }
    std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap()
}

/// Asks whether the server is well, on a connection that stays open.
pub(crate) async fn greet(socket: &mut TlsStream<TcpStream>) {
    let question = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    socket.write_all(question).await.unwrap();
    let mut answer = BytesMut::new();
    while !answer.ends_with(b"\r\n\r\nok") {
        let read = timeout(PATIENCE, socket.read_buf(&mut answer)).await;
        assert_ne!(read.expect("an answer").unwrap(), 0, "{answer:?}");
    }
}

/// One of the two streams of a forwarded connection.
pub(crate) fn half(kind: &str, port: u16, request: &str) -> Headers {
    let port = port.to_string();
    Headers::new([("streamtype", kind), ("port", &port), ("requestid", request)])
}

pub(crate) fn syn(id: u32, headers: Headers) -> Frame {
    let fin = false;
    Frame::SynStream { id, fin, headers }
}

pub(crate) struct Caller {
    pub(crate) socket: TlsStream<TcpStream>,
    pub(crate) input: BytesMut,
    pub(crate) encoder: Encoder,
    pub(crate) decoder: Decoder,
}

impl Caller {
    pub(crate) async fn send(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        self.encoder.encode(&frame, &mut bytes).unwrap();
        self.socket.write_all(&bytes).await.unwrap();
        self.socket.flush().await.unwrap();
    }

    pub(crate) async fn open(&mut self, id: u32, kind: &str) {
        self.open_with(id, Headers::new([("streamtype", kind)])).await;
    }

    pub(crate) async fn open_with(&mut self, id: u32, headers: Headers) {
        self.send(syn(id, headers)).await;
        self.replied(id).await;
    }

    /// Opens both halves of a forwarded connection, the second with the next id.
    pub(crate) async fn open_pair(&mut self, id: u32, port: u16, request: &str) {
        self.open_with(id, half("error", port, request)).await;
        self.open_with(id + 2, half("data", port, request)).await;
    }

    pub(crate) async fn replied(&mut self, id: u32) {
        let reply = self.next().await;
        let fits = matches!(reply, Some(Frame::SynReply { id: replied, .. }) if replied == id);
        assert!(fits, "{reply:?}");
    }

    /// None when the server has closed. Its questions whether we are there come when they come.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
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
    pub(crate) async fn rest(&mut self, wanted: u32) -> String {
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
