//! The wire: HTTP/1.1 on loopback, and the ways it can break.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long answers under way may take after the stop.
const DRAIN: Duration = Duration::from_secs(2);

/// An answer.
pub type Answer = Response<Full<Bytes>>;

/// The connection is ended on purpose.
#[derive(Debug, thiserror::Error)]
#[error("the connection is cut")]
pub struct Cut;

/// An answer of this kind, unless its own headers say another.
pub fn render(status: StatusCode, kind: &'static str, headers: Vec<(&'static str, String)>, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let all = answer.headers_mut();
    all.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            all.insert(HeaderName::from_static(name), value);
        }
    }
    answer
}

/// Who answers.
pub trait Emulator: Send + Sync + 'static {
    /// How large the body of a request may be.
    fn limit(&self, path: &str) -> usize;

    /// Answers a call, or ends the connection under it.
    fn answer(
        &self,
        head: Parts,
        body: Bytes,
        stop: &CancellationToken,
    ) -> impl Future<Output = Result<Answer, Cut>> + Send;
}

/// Accepts until the stop, then waits for what is under way.
pub async fn run<E: Emulator>(listener: TcpListener, emulator: Arc<E>, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&emulator), stop.clone()));
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

async fn connection<E: Emulator>(stream: TcpStream, emulator: Arc<E>, stop: CancellationToken) {
    // Small answers shall not wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let ending = stop.clone();
    let service = service_fn(move |request| handle(request, Arc::clone(&emulator), stop.clone()));
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

async fn handle<E: Emulator>(
    request: Request<Incoming>,
    emulator: Arc<E>,
    stop: CancellationToken,
) -> Result<Answer, Cut> {
    let (head, body) = request.into_parts();
    let limit = emulator.limit(head.uri.path());
    let Ok(body) = Limited::new(body, limit).collect().await else {
        let mut refusal = Response::new(Full::new(Bytes::from_static(b"the body is too large or broke off")));
        *refusal.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        return Ok(refusal);
    };
    emulator.answer(head, body.to_bytes(), &stop).await
}
