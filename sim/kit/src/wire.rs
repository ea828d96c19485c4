//! The wire: HTTP/1.1 on loopback, and the ways it can break.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use std::net::SocketAddr;
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

/// What is answered, without the wire.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: Vec<(&'static str, String)>,
    /// None sends no body at all. A string is sent as it is where a header says another type than JSON.
    pub body: Option<Value>,
}

impl Reply {
    pub fn json(status: StatusCode, body: Value) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Some(body),
        }
    }

    /// 200 with a body.
    pub fn ok(body: Value) -> Self {
        Self::json(StatusCode::OK, body)
    }

    /// 204.
    pub fn no_content() -> Self {
        Self {
            status: StatusCode::NO_CONTENT,
            headers: Vec::new(),
            body: None,
        }
    }

    /// Something else than JSON, as gateways send it.
    pub fn text(status: u16, kind: &str, text: impl Into<String>) -> Self {
        Self {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            headers: vec![("content-type", kind.to_owned())],
            body: Some(Value::String(text.into())),
        }
    }

    /// The answer; its JSON is of this type.
    pub fn render(self, json: &'static str) -> Answer {
        let plain = self.headers.iter().any(|(name, _)| *name == "content-type");
        let body = match self.body {
            None => Bytes::new(),
            Some(Value::String(text)) if plain => Bytes::from(text),
            Some(value) => Bytes::from(value.to_string()),
        };
        let mut answer = Response::new(Full::new(body));
        *answer.status_mut() = self.status;
        let all = answer.headers_mut();
        all.insert(CONTENT_TYPE, HeaderValue::from_static(json));
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                all.insert(HeaderName::from_static(name), value);
            }
        }
        answer
    }
}

/// What the wire does with a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Reply(Reply),
    /// The connection ends without an answer.
    Cut,
    /// No answer comes until the client gives up.
    Hang,
}

impl Outcome {
    /// Does it.
    pub async fn carried_out(self, json: &'static str, stop: &CancellationToken) -> Result<Answer, Cut> {
        match self {
            Self::Reply(reply) => return Ok(reply.render(json)),
            Self::Cut => {}
            Self::Hang => stop.cancelled().await,
        }
        Err(Cut)
    }
}

/// The address cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("could not listen on {address}; is something else there? Port 0 takes a free one")]
pub struct Taken {
    pub address: SocketAddr,
    pub source: std::io::Error,
}

/// Listens there, and says where that is, for example `http://127.0.0.1:40123`.
pub async fn bind(address: SocketAddr) -> Result<(TcpListener, String), Taken> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let url = format!("http://{}", listener.local_addr()?);
        Ok((listener, url))
    };
    bound.await.map_err(|source| Taken { address, source })
}

/// Who answers.
pub trait Emulator: Send + Sync + 'static {
    /// How large the body of a request may be.
    fn limit(&self, _path: &str) -> usize {
        1 << 20
    }

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

/// Answers what comes over one connection until it ends, or the stop.
pub async fn connection<E: Emulator>(stream: TcpStream, emulator: Arc<E>, stop: CancellationToken) {
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
