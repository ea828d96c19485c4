//! Clients that speak the old WebSocket protocols, as browsers and scripts do: the apiserver passes them on unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{SinkExt as _, StreamExt as _};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::stage::{PATIENCE, Stage, on_stage};

type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// To the apiserver, as its administrator.
async fn connect(stage: &Stage, path: &str, protocol: &str) -> Socket {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(stage.control_plane.ca_pem().as_bytes()).unwrap())
        .unwrap();
    let admin = &stage.control_plane.pki().admin;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_file(&admin.cert).unwrap()],
            PrivateKeyDer::from_pem_file(&admin.key).unwrap(),
        )
        .unwrap();
    let host = stage.control_plane.server().strip_prefix("https://").unwrap();
    let tcp = TcpStream::connect(host).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    let mut request = format!("wss://{host}/api/v1/namespaces/default/pods/{path}")
        .into_client_request()
        .unwrap();
    request
        .headers_mut()
        .insert("Sec-WebSocket-Protocol", protocol.parse().unwrap());
    let (socket, response) = tokio_tungstenite::client_async(request, tls).await.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], protocol);
    socket
}

/// The next message that carries anything for us, or none after the goodbye.
async fn next(socket: &mut Socket) -> Option<Message> {
    loop {
        match timeout(PATIENCE, socket.next()).await.expect("a message or the end") {
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(goodbye))) => {
                assert_eq!(u16::from(goodbye.unwrap().code), 1000);
                return None;
            }
            Some(Ok(message)) => return Some(message),
            other => panic!("{other:?}"),
        }
    }
}

const ASKING: &str = "exec?container=c&stdin=true&stdout=true&stderr=true&command=sh&command=-c&command=\
                      read%20line%3B%20echo%20%22got%20$line%22%3B%20echo%20bad%20%3E%262%3B%20exit%204";

fn check(channels: &BTreeMap<u8, Vec<u8>>) {
    assert_eq!(channels[&1], b"got hello\n");
    assert_eq!(channels[&2], b"bad\n");
    let status: serde_json::Value = serde_json::from_slice(&channels[&3]).unwrap();
    assert_eq!(status["details"]["causes"][0]["message"], "4");
}

#[test]
fn a_command_runs_over_channels() {
    on_stage(async |stage| {
        stage.backend.add("browser", 1);
        stage.announce("browser").await;
        let mut socket = connect(stage, &format!("browser/{ASKING}"), "v4.channel.k8s.io").await;
        // An empty first message says that the streams are open.
        assert_eq!(next(&mut socket).await, Some(Message::binary(b"\x01".as_slice())));
        socket.send(Message::binary(b"\0hello\n".as_slice())).await.unwrap();
        let mut channels = BTreeMap::<u8, Vec<u8>>::new();
        while let Some(message) = next(&mut socket).await {
            let data = message.into_data();
            channels.entry(data[0]).or_default().extend_from_slice(&data[1..]);
        }
        check(&channels);
    });
}

#[test]
fn a_command_runs_over_channels_of_text() {
    on_stage(async |stage| {
        stage.backend.add("texter", 1);
        stage.announce("texter").await;
        let mut socket = connect(stage, &format!("texter/{ASKING}"), "v4.base64.channel.k8s.io").await;
        assert_eq!(next(&mut socket).await, Some(Message::text("1")));
        socket
            .send(Message::text(format!("0{}", STANDARD.encode("hello\n"))))
            .await
            .unwrap();
        let mut channels = BTreeMap::<u8, Vec<u8>>::new();
        while let Some(message) = next(&mut socket).await {
            let text = message.into_text().unwrap();
            let (channel, content) = text.split_at(1);
            let channel = channels.entry(channel.parse().unwrap()).or_default();
            channel.extend(STANDARD.decode(content).unwrap());
        }
        check(&channels);
    });
}

#[test]
fn a_port_is_forwarded_over_channels() {
    on_stage(async |stage| {
        stage.backend.add("tunnel", 1);
        stage.announce("tunnel").await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut word = [0; 5];
            socket.read_exact(&mut word).await.unwrap();
            word.reverse();
            socket.write_all(&word).await.unwrap();
        });
        let mut socket = connect(stage, &format!("tunnel/portforward?ports={port}"), "v4.channel.k8s.io").await;
        let [low, high] = port.to_le_bytes();
        for channel in [0, 1] {
            assert_eq!(next(&mut socket).await, Some(Message::binary(vec![channel, low, high])));
        }
        socket.send(Message::binary(b"\0hello".as_slice())).await.unwrap();
        assert_eq!(next(&mut socket).await, Some(Message::binary(b"\0olleh".as_slice())));
        assert_eq!(next(&mut socket).await, None);
    });
}
