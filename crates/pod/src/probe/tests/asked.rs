//! Probes against real servers.

use crate::probe::grpc::{CheckRequest, CheckResponse};
use crate::probe::{Answer, Direct, Inside, NothingInside, Target, Word, ask, run_hook};
use crate::testing::pod_of;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Probe};
use prost::Message as _;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Long enough for the slowest machine; what has to be late waits for ever instead.
const PATIENCE: Duration = Duration::from_mins(1);
const IMPATIENCE: Duration = Duration::from_millis(200);

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Answers every request with what `answer` makes of its head, until the test ends. Returns the port.
async fn server(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> u16 {
    let (listener, port) = listen().await;
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            talk(stream, &answer).await;
        }
    });
    port
}

async fn talk<S>(mut stream: S, answer: &(impl Fn(&str) -> String + Sync))
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let answer = answer(&String::from_utf8_lossy(&head));
    // The asker may have left.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

fn reply(code: u16, more: &str) -> String {
    format!("HTTP/1.1 {code} X\r\ncontent-length: 0\r\nconnection: close\r\n{more}\r\n")
}

fn target<'a>(container: &'a Container, inside: &'a dyn Inside) -> Target<'a> {
    Target {
        container,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        dial: &Direct,
        inside,
    }
}

async fn asked(probe: Value, timeout: Duration) -> Answer {
    asked_of(json!({"name": "a"}), probe, timeout, &NothingInside).await
}

async fn asked_of(container: Value, probe: Value, timeout: Duration, inside: &dyn Inside) -> Answer {
    let (_, container) = pod_of(container);
    let probe: Probe = serde_json::from_value(probe).unwrap();
    ask(&probe, timeout, target(&container, inside)).await
}

/// What a probe of an open server finds wrong.
async fn complaint(probe: Value, timeout: Duration) -> String {
    match asked(probe, timeout).await {
        Answer::Bad(words) => words,
        other => panic!("{other:?}"),
    }
}

fn bad(words: &str) -> Answer {
    Answer::Bad(words.to_owned())
}

fn unknown(words: &str) -> Answer {
    Answer::Unknown(words.to_owned())
}

async fn http(port: u16, path: &str) -> Answer {
    asked(json!({"httpGet": {"port": port, "path": path}}), PATIENCE).await
}

#[tokio::test]
async fn a_server_that_answers_well_is_well_and_any_other_is_not() {
    let port = server(|head| reply(head.split('/').nth(1).unwrap()[..3].parse().unwrap(), "")).await;
    for code in [200, 204, 304, 399] {
        assert_eq!(http(port, &format!("/{code}")).await, Answer::Good, "{code}");
    }
    for code in [400, 404, 500] {
        let words = format!("HTTP probe failed with statuscode: {code}");
        assert_eq!(http(port, &format!("{code}")).await, Answer::Bad(words));
    }
}

#[tokio::test]
async fn a_probe_says_who_it_is_and_what_it_was_told_to_say() {
    let port = server(|head| {
        let head = head.to_lowercase();
        let said = [
            "get /x?y=1 http/1.1",
            "host: example.test\r\n",
            "x-a: 1\r\n",
            "x-a: 2\r\n",
            "user-agent: kube-probe/1.35\r\n",
        ];
        let good = said.iter().all(|line| head.contains(line)) && !head.contains("accept:");
        reply(if good { 200 } else { 500 }, "")
    })
    .await;
    let headers = json!([
        {"name": "Host", "value": "example.test"}, {"name": "X-A", "value": "1"}, {"name": "X-A", "value": "2"},
        {"name": "Accept", "value": ""},
    ]);
    let probe = json!({"httpGet": {"port": port, "path": "/x?y=1", "httpHeaders": headers}});
    assert_eq!(asked(probe, PATIENCE).await, Answer::Good);
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only() {
    let port = server(|head| match head.split(' ').nth(1).unwrap() {
        "/start" => reply(302, "location: /bad\r\n"),
        "/loop" => reply(302, "location: /loop\r\n"),
        "/away" => reply(302, "location: http://elsewhere.test/\r\n"),
        "/deep/relative" => reply(301, "location: other\r\n"),
        "/deep/other" => reply(200, ""),
        _ => reply(500, ""),
    })
    .await;
    let found = http(port, "/start").await;
    assert_eq!(found, bad("HTTP probe failed with statuscode: 500"));
    let away = http(port, "/away").await;
    assert_eq!(away, Answer::Good, "an answer that leads elsewhere is an answer");
    assert_eq!(http(port, "/deep/relative").await, Answer::Good);
    let words = complaint(json!({"httpGet": {"port": port, "path": "/loop"}}), PATIENCE).await;
    assert!(words.ends_with("stopped after 10 redirects"), "{words}");
}

#[tokio::test]
async fn a_certificate_of_nobody_is_good_enough() {
    let key = rcgen::generate_simple_self_signed(vec!["nobody.test".to_owned()]).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, port) = listen().await;
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        talk(acceptor.accept(stream).await.unwrap(), &|_: &str| reply(200, "")).await;
    });
    let probe = json!({"httpGet": {"port": port, "scheme": "HTTPS"}});
    assert_eq!(asked(probe, PATIENCE).await, Answer::Good);
}

#[tokio::test]
async fn a_server_that_does_not_answer_in_time_is_not_well() {
    // The system accepts for a listener that never does.
    let (_listener, port) = listen().await;
    let words = complaint(json!({"httpGet": {"port": port}}), IMPATIENCE).await;
    let expected = format!("Get \"http://127.0.0.1:{port}/\": context deadline exceeded (no answer within 200ms)");
    assert_eq!(words, expected);
}

/// A port that refuses connections: bound, so that no other test gets it, and never listening.
fn closed_port() -> (tokio::net::TcpSocket, u16) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

#[tokio::test]
async fn a_port_that_is_open_is_well() {
    let (_listener, port) = listen().await;
    let numbered = asked(json!({"tcpSocket": {"port": port}}), PATIENCE).await;
    let container = json!({"name": "a", "ports": [{"name": "web", "containerPort": port}]});
    let probe = json!({"tcpSocket": {"port": "web"}});
    let named = asked_of(container, probe, PATIENCE, &NothingInside).await;
    assert_eq!([numbered, named], [Answer::Good, Answer::Good]);
}

#[tokio::test]
async fn a_port_that_is_closed_is_not() {
    let (_socket, port) = closed_port();
    for probe in [
        json!({"tcpSocket": {"port": port}}),
        json!({"httpGet": {"port": port}}),
        json!({"grpc": {"port": port}}),
    ] {
        let words = complaint(probe, PATIENCE).await;
        let refused = words.to_lowercase().contains("refused");
        assert!(refused && words.contains(&format!("127.0.0.1:{port}")), "{words}");
    }
}

#[tokio::test]
async fn a_port_that_has_no_such_name_says_nothing_about_the_container() {
    let answer = asked(json!({"tcpSocket": {"port": "web"}}), PATIENCE).await;
    assert_eq!(answer, unknown("couldn't find port: String(\"web\") in container a"));
}

struct Shell;

impl Inside for Shell {
    fn run<'a>(&'a self, command: &'a [String]) -> BoxFuture<'a, Result<Word, String>> {
        Box::pin(async move {
            match command.first().map(String::as_str) {
                Some("good") => Ok(Word::default()),
                Some("hang") => std::future::pending().await,
                Some("gone") => Err("the guest does not answer".to_owned()),
                _ => Ok(Word {
                    code: 2,
                    output: "no such file".to_owned(),
                }),
            }
        })
    }
}

#[tokio::test]
async fn a_program_in_the_container_says_how_it_is() {
    let run = async |word: &str, timeout| run_inside(word, timeout, &Shell).await;
    assert_eq!(run("good", PATIENCE).await, Answer::Good);
    assert_eq!(run("bad", PATIENCE).await, bad("no such file"));
    assert_eq!(run("gone", PATIENCE).await, unknown("the guest does not answer"));
    let words = "command timed out: [\"hang\"] timed out after 200ms";
    assert_eq!(run("hang", IMPATIENCE).await, bad(words));
}

async fn run_inside(word: &str, timeout: Duration, inside: &dyn Inside) -> Answer {
    let probe = json!({"exec": {"command": [word]}});
    asked_of(json!({"name": "a"}), probe, timeout, inside).await
}

/// A way into a container that fails as often as it says.
struct Shaky(AtomicUsize);

impl Inside for Shaky {
    fn run<'a>(&'a self, _: &'a [String]) -> BoxFuture<'a, Result<Word, String>> {
        let left = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        Box::pin(async move { left.map_or(Ok(Word::default()), |_| Err("the line broke".to_owned())) })
    }
}

#[tokio::test]
async fn a_program_that_could_not_be_run_is_tried_three_times() {
    let run = async |failures| {
        let inside = Shaky(AtomicUsize::new(failures));
        run_inside("x", PATIENCE, &inside).await
    };
    assert_eq!(run(2).await, Answer::Good);
    assert_eq!(run(3).await, unknown("the line broke"));
}

#[tokio::test]
async fn hooks_run_and_fail_in_words() {
    let (_, container) = pod_of(json!({"name": "a"}));
    let port = server(|_| reply(500, "")).await;
    let run = async |hook: Value| {
        let hook: LifecycleHandler = serde_json::from_value(hook).unwrap();
        run_hook(&hook, target(&container, &Shell)).await
    };
    assert_eq!(run(json!({"exec": {"command": ["good"]}})).await, Ok(()));
    assert_eq!(run(json!({"sleep": {"seconds": 0}})).await, Ok(()));
    let asked = run(json!({"httpGet": {"port": port}})).await;
    assert_eq!(asked, Ok(()), "any answer will do");
    let failed = run(json!({"exec": {"command": ["bad"]}})).await.unwrap_err();
    assert_eq!(failed, "command [\"bad\"] exited with 2: no such file");
    let invalid = run(json!({"tcpSocket": {"port": 1}})).await.unwrap_err();
    assert!(invalid.starts_with("invalid handler"), "{invalid}");
}

/// A health service: SERVING for no name, NOT_SERVING for `down`, an error for others, and silence for `slow`.
async fn health() -> u16 {
    let (listener, port) = listen().await;
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let serve = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service_fn(check));
            tokio::spawn(serve);
        }
    });
    port
}

async fn check(
    request: Request<Incoming>,
) -> Result<Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>, Infallible> {
    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
    assert_eq!(request.headers()["content-type"], "application/grpc");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let service = CheckRequest::decode(&body[5..]).unwrap().service;
    let (status, code) = match service.as_str() {
        "" => (1, 0),
        "down" => (2, 0),
        "slow" => std::future::pending().await,
        "none" => (0, 12),
        _ => (0, 5),
    };
    let response = Response::builder().header("content-type", "application/grpc");
    if code != 0 {
        let refused = response
            .header("grpc-status", code)
            .header("grpc-message", "unknown service");
        return Ok(refused.body(Full::new(Bytes::new()).boxed()).unwrap());
    }
    let message = CheckResponse { status }.encode_to_vec();
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(&message);
    let mut trailers = hyper::HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let frames = [Ok(Frame::data(frame.freeze())), Ok(Frame::trailers(trailers))];
    let body = http_body_util::StreamBody::new(futures::stream::iter(frames));
    Ok(response.body(BodyExt::boxed(body)).unwrap())
}

#[tokio::test]
async fn a_health_service_says_how_it_is() {
    let port = health().await;
    let probe = |service: &str| json!({"grpc": {"port": port, "service": service}});
    assert_eq!(asked(probe(""), PATIENCE).await, Answer::Good);
    let none = complaint(probe("none"), PATIENCE).await;
    assert!(
        none.starts_with("error: this server does not implement the grpc health protocol"),
        "{none}"
    );
    for (service, timeout, words) in [
        ("down", PATIENCE, "service unhealthy (responded with \"NOT_SERVING\")"),
        (
            "other",
            PATIENCE,
            "error: health rpc probe failed: code 5: unknown service",
        ),
        ("slow", IMPATIENCE, "timeout: health rpc did not complete within 200ms"),
    ] {
        assert_eq!(complaint(probe(service), timeout).await, words, "{service}");
    }
}
