//! A server in front of the server, which misbehaves on demand. It speaks HTTP/1.1 and HTTP/2 like the one behind it; gRPC passes
//! through frame by frame, trailers and all.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::stream;
use http::{HeaderName, Request, Response, StatusCode, Version, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use russet_clients::Tool;
use russet_testkit::wait::{self, Look};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::expected;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// 503, or UNAVAILABLE, where the table says so.
    Unavailable(Tool),
    /// The process behind is killed when this request arrives, and nobody answers any more.
    KillAt(u32, i32),
    /// Bodies of hits arrive with a bit flipped.
    Garble,
    /// Bodies of hits end half way.
    Cut,
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

#[derive(Debug)]
struct State {
    upstream: SocketAddr,
    fault: Fault,
    requests: AtomicU32,
    uploads: Mutex<Vec<Bytes>>,
    log: Mutex<Vec<String>>,
    dead: CancellationToken,
}

/// Listens until dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    /// `at` an address where an earlier proxy listened, or anywhere: for some tools the URL of the cache is an input of the build.
    pub(crate) async fn start(at: Option<SocketAddr>, upstream: SocketAddr, fault: Fault) -> Result<Self> {
        let wanted = at.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        let listener = wait::until("the proxy to listen", wait::PATIENCE, || async {
            Ok(Look::Done(TcpListener::bind(wanted).await?))
        })
        .await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            upstream,
            fault,
            requests: AtomicU32::new(0),
            uploads: Mutex::default(),
            log: Mutex::default(),
            dead: CancellationToken::new(),
        });
        tokio::spawn(accept(listener, Arc::clone(&state)));
        Ok(Self { address, state })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Bodies of HTTP/1.1 uploads, as they came.
    pub(crate) fn uploads(&self) -> Vec<Bytes> {
        self.state.uploads.lock().unwrap().clone()
    }

    /// One line per request and its answer.
    pub(crate) fn log(&self) -> Vec<String> {
        self.state.log.lock().unwrap().clone()
    }

    pub(crate) fn requests(&self) -> u32 {
        self.state.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.dead.cancel();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => return,
            },
            () = state.dead.cancelled() => return,
        };
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            // Whatever a client does, it is its business; the test looks at the outcome.
            let _ = stream.set_nodelay(true);
            let serving = Arc::clone(&state);
            let service = service_fn(move |request| answer(Arc::clone(&serving), request));
            let builder = auto::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                _ = connection => {}
                () = state.dead.cancelled() => {}
            }
        });
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let number = state.requests.fetch_add(1, Ordering::SeqCst) + 1;
    let line = format!("{} {}", request.method(), request.uri().path());
    if let Fault::KillAt(at, pid) = state.fault
        && number >= at
    {
        if let Some(pid) = Pid::from_raw(pid) {
            // Gone already is what was wanted.
            let _ = kill_process(pid, Signal::KILL);
        }
        state.log.lock().unwrap().push(format!("{line} -> killed"));
        state.dead.cancel();
        std::future::pending::<()>().await;
    }
    let response = match state.fault {
        Fault::Unavailable(tool) if expected::unavailable(tool, request.method().as_str(), request.uri().path()) => {
            unavailable(request).await
        }
        _ if request.version() == Version::HTTP_2 => forward_h2(&state, request)
            .await
            .unwrap_or_else(|error| bad_gateway(&error)),
        _ => forward_h1(&state, request)
            .await
            .unwrap_or_else(|error| bad_gateway(&error)),
    };
    state
        .log
        .lock()
        .unwrap()
        .push(format!("{line} -> {}", response.status()));
    Ok(response)
}

fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Visible in the log of the proxy, should a test fail for it.
fn bad_gateway(error: &anyhow::Error) -> Response<Body> {
    let mut response = Response::new(whole(format!("{error:#}")));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

async fn unavailable(request: Request<Incoming>) -> Response<Body> {
    let grpc = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if grpc {
        let mut response = Response::new(whole(Bytes::new()));
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, "application/grpc".parse().unwrap());
        fields.insert(HeaderName::from_static("grpc-status"), "14".parse().unwrap());
        fields.insert(HeaderName::from_static("grpc-message"), "unavailable".parse().unwrap());
        return response;
    }
    // The body is read first: a client that is still sending would see a reset instead of the answer.
    let _ = request.into_body().collect().await;
    let mut response = Response::new(whole("unavailable"));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

async fn forward_h1(state: &State, request: Request<Incoming>) -> Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    if parts.method == http::Method::PUT {
        state.uploads.lock().unwrap().push(body.clone());
    }
    for hop in [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::EXPECT,
        header::CONTENT_LENGTH,
    ] {
        parts.headers.remove(hop);
    }
    let path = parts.uri.path_and_query().context("a request without a path")?.clone();
    parts.uri = path.into();
    let read = parts.method == http::Method::GET && !expected::is_a_start_check(parts.uri.path());
    let stream = TcpStream::connect(state.upstream).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let response = sender.send_request(Request::from_parts(parts, Full::new(body))).await?;
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    driver.abort();
    parts.headers.remove(header::CONNECTION);
    parts.headers.remove(header::TRANSFER_ENCODING);
    let hit = read && parts.status == StatusCode::OK && !body.is_empty();
    let body = match state.fault {
        Fault::Garble if hit => whole(garbled(&body)),
        Fault::Cut if hit => cut(&body),
        _ => whole(body),
    };
    Ok(Response::from_parts(parts, body))
}

fn garbled(body: &Bytes) -> Vec<u8> {
    let mut bytes = body.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    bytes
}

fn cut(body: &Bytes) -> Body {
    let half = body.slice(..body.len() / 2);
    let frames = [Ok(Frame::data(half)), Err(std::io::Error::other("cut"))];
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

async fn forward_h2(state: &State, request: Request<Incoming>) -> Result<Response<Body>> {
    let stream = TcpStream::connect(state.upstream).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    Ok(response.map(|body| body.map_err(std::io::Error::other).boxed_unsync()))
}
