//! HTTP/2 on the plain port, and TLS.

use crate::node::{Node, until};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
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

/// Writes a fresh self-signed certificate; its DER.
fn certify(dir: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(dir.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(dir.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

async fn secure(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    alpn: &[u8],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config))
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
