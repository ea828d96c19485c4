//! The wire: HTTP/1.1 on loopback, and the ways it can break.

use crate::call::{Call, Reply};
use crate::control;
use crate::core::{Core, Outcome};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const MAX_BODY: usize = 1 << 20;
/// A snapshot of a large fleet is larger than any request of the API.
const MAX_CONTROL_BODY: usize = 256 << 20;
/// How long answers under way may take after the stop.
const DRAIN: Duration = Duration::from_secs(2);

/// The connection is ended on purpose.
#[derive(Debug, thiserror::Error)]
#[error("the connection is cut")]
struct Cut;

/// Accepts until the stop, then waits for what is under way.
pub(crate) async fn run(listener: TcpListener, core: Arc<Core>, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&core), stop.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(DRAIN, connections.wait()).await.is_err() {
        tracing::warn!("some answers were still under way");
    }
}

async fn connection(stream: TcpStream, core: Arc<Core>, stop: CancellationToken) {
    // Small answers shall not wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let ending = stop.clone();
    let service = service_fn(move |request| handle(request, Arc::clone(&core), stop.clone()));
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = ending.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn handle(
    request: Request<Incoming>,
    core: Arc<Core>,
    stop: CancellationToken,
) -> Result<Response<Full<Bytes>>, Cut> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let ours = path.starts_with(control::PREFIX);
    let limit = if ours { MAX_CONTROL_BODY } else { MAX_BODY };
    let Ok(body) = Limited::new(body, limit).collect().await else {
        return Ok(text(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is too large or broke off",
        ));
    };
    let token = head.headers.get("x-auth-token").and_then(|token| token.to_str().ok());
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let content_type = content_type.and_then(|kind| kind.split(';').next());
    let call = Call {
        method: head.method,
        path,
        query: head.uri.query().unwrap_or_default().to_owned(),
        token: token.map(str::to_owned),
        content_type: content_type.map(|kind| kind.trim().to_ascii_lowercase()),
        body: body.to_bytes().to_vec(),
    };
    if ours {
        return Ok(render(control::answer(&core, &call, &stop).await));
    }
    match core.serve(&call) {
        Outcome::Reply(reply) => Ok(render(reply)),
        Outcome::Cut => Err(Cut),
        Outcome::Hang => {
            stop.cancelled().await;
            Err(Cut)
        }
    }
}

fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

fn render(reply: Reply) -> Response<Full<Bytes>> {
    let plain = reply.headers.iter().any(|(name, _)| *name == "content-type");
    let body = match reply.body {
        None => Bytes::new(),
        Some(Value::String(text)) if plain => Bytes::from(text),
        Some(value) => Bytes::from(value.to_string()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in reply.headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response
}
