//! HTTP/2, by `hyper`, with the same handlers.
//!
//! Every connection begins in the hand-written engine, with TLS and without. It sees the preface and hands the socket over
//! together with the bytes it has read ([`Replay`]). Requests that speak
//! gRPC go to [`crate::reapi`].

mod replay;

pub use replay::Replay;

use super::body;
use super::egress::Receipt;
use super::head::{Fields, Head, Method};
use super::reply::{Payload, Reply, Slice};
use super::route::Route;
use super::service::{Plan, Planned, Service};
use super::span::Traced;
use crate::blob::Reader;
use crate::http1::parser::{MAX_FIELDS, MAX_HEAD, Refusal};
use crate::http1::wait::Patience;
use crate::metrics::Path;
use crate::reapi;
use crate::usage::Protocol;
use bytes::{Buf as _, Bytes};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use russet_identity::{Clock as _, SystemClock};
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};

/// What one frame of a blob carries.
const FRAME: u64 = 64 * 1024;
/// Streams a client may open and reset before we have looked at them. A client that does this on purpose costs a connection,
/// not a core ("rapid reset").
const PENDING_RESETS: usize = 20;
/// Streams we may have to reset for their errors before the connection goes.
const ERROR_RESETS: usize = 64;
/// A connection this old is told to end, so that clients find new nodes and old ones empty.
const LIFE: Duration = Duration::from_mins(5);
/// How long such a connection may take to finish what it has begun.
const LAST_WORDS: Duration = Duration::from_mins(15);
/// How long a connection without requests may stay silent once it was told to end. Its peer may be frozen, and never say
/// that it heard.
const FAREWELL: Duration = Duration::from_secs(5);
/// Fewer bytes than this in a whole period are no progress: the answers to our own pings would be that many.
const PROGRESS: u64 = 512;

/// Serves a connection until it ends or the node drains.
pub async fn serve<I>(io: Replay<I>, service: Service, patience: Patience)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(4 * 1024 * 1024)
        .initial_connection_window_size(16 * 1024 * 1024)
        .max_frame_size(64 * 1024)
        .max_concurrent_streams(128)
        .max_send_buf_size(128 * 1024)
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(ERROR_RESETS)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let shared = Arc::clone(&service.shared);
    let draining = shared.lifecycle.draining();
    let mut watch = Watch::new(io.moved());
    // One more holder for each request under way.
    let requests = Arc::new(());
    let held = Arc::clone(&requests);
    let handler = hyper::service::service_fn(move |request| {
        let protocol = if is_grpc(&request) {
            Protocol::Grpc
        } else {
            Protocol::Http
        };
        let underway = Underway::new(&service, Arc::clone(&held), protocol);
        let service = service.clone();
        async move { Ok::<_, Infallible>(respond(request, &service, patience, underway).await) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), handler));
    let _unfinished = shared.lifecycle.converse();
    tokio::select! {
        // What ends a connection is of no interest here: answers were counted, and the peer knows best.
        _ = connection.as_mut() => return,
        () = draining.cancelled() => {}
        () = tokio::time::sleep(LIFE) => {}
        () = watch.silence(patience.header, patience.idle) => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = tokio::time::sleep(LAST_WORDS) => {}
        () = watch.silence_after(|| if Arc::strong_count(&requests) > 2 { patience.stall } else { FAREWELL.min(patience.stall) }) => {}
    }
}

/// Looks whether bytes still move. One look per period: what it does not see it does not cost.
struct Watch {
    moved: Arc<AtomicU64>,
    seen: u64,
}

impl Watch {
    fn new(moved: Arc<AtomicU64>) -> Self {
        Self { moved, seen: 0 }
    }

    /// Ends when a whole period went by without progress. The first period is as long as `first`.
    async fn silence(&mut self, first: Duration, then: Duration) {
        let mut first = Some(first);
        self.silence_after(|| first.take().unwrap_or(then)).await;
    }

    /// The same with a period that is asked for each time.
    async fn silence_after(&mut self, mut period: impl FnMut() -> Duration) {
        loop {
            tokio::time::sleep(period()).await;
            let moved = self.moved.load(Ordering::Relaxed);
            if moved < self.seen + PROGRESS {
                return;
            }
            self.seen = moved;
        }
    }
}

async fn respond(
    request: http::Request<Incoming>,
    service: &Service,
    patience: Patience,
    mut underway: Underway,
) -> http::Response<Answer> {
    let (parts, incoming) = request.into_parts();
    if underway.protocol == Protocol::Grpc {
        let response = reapi::respond(parts, incoming, service, patience.stall).await;
        return response.map(|body| Answer::Grpc {
            body,
            _underway: underway,
        });
    }
    let planned = match head_of(&parts) {
        Ok(head) => {
            underway.traced = service.trace(&head, "2");
            let now = SystemClock.now();
            let mut planned = service.plan(&head, now, None);
            if let Plan::Ask(question) = planned.plan {
                let decision = service.ask(question).await;
                planned = service.plan(&head, now, Some(decision));
            }
            planned
        }
        Err(refusal) => Planned {
            route: Route::Unknown,
            plan: Plan::Reply(match parts.method {
                http::Method::HEAD => Reply::message(refusal.status(), &refusal.to_string()).described(),
                _ => Reply::message(refusal.status(), &refusal.to_string()),
            }),
            whose: None,
            digest: None,
        },
    };
    if let Some(traced) = &mut underway.traced {
        traced.planned(&planned);
    }
    let mut body = Received::new(incoming, patience.stall);
    let mut reply = service.perform(planned.plan, planned.digest, &mut body).await;
    underway.answer = Some((planned.route, reply.status));
    underway.egress = reply.egress();
    if underway.egress.is_some() {
        service.shard.path(Path::Streaming);
    }
    translate(reply, underway).map(Answer::Plain)
}

/// A request from its head to the last byte of its answer; counted when it is dropped, however that comes about.
#[derive(Debug)]
struct Underway {
    service: Service,
    protocol: Protocol,
    /// The connection counts these.
    _held: Arc<()>,
    started: Instant,
    answer: Option<(Route, u16)>,
    egress: Option<(Receipt, u64)>,
    sent: u64,
    traced: Option<Traced>,
}

impl Underway {
    fn new(service: &Service, held: Arc<()>, protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http => service.shared.lifecycle.begin(),
            Protocol::Grpc => service.shared.lifecycle.begin_call(),
        }
        Self {
            service: service.clone(),
            protocol,
            _held: held,
            started: Instant::now(),
            answer: None,
            egress: None,
            sent: 0,
            traced: None,
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        if let Some((route, status)) = self.answer {
            self.service.shard.request(route, status, took);
            if let Some(traced) = &mut self.traced {
                traced.answered(status, self.sent);
            }
        }
        if let Some((receipt, wanted)) = self.egress.take() {
            self.service.sent(receipt, self.sent, wanted, took);
        }
        match self.protocol {
            Protocol::Http => self.service.shared.lifecycle.end(),
            Protocol::Grpc => self.service.shared.lifecycle.end_call(),
        }
    }
}

/// The same rule as that of [`Head::is_grpc`], before there is a head.
fn is_grpc(request: &http::Request<Incoming>) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    request.version() == http::Version::HTTP_2
        && content_type
            .and_then(|value| value.get(..16))
            .is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
}

/// The body of an answer, of either kind.
#[derive(Debug)]
enum Answer {
    Plain(Outgoing),
    Grpc {
        body: reapi::Answer,
        /// Until the last byte is sent.
        _underway: Underway,
    },
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Plain(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Grpc { body, .. } => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Plain(body) => body.is_end_stream(),
            Self::Grpc { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Plain(body) => body.size_hint(),
            Self::Grpc { body, .. } => body.size_hint(),
        }
    }
}

fn head_of(parts: &http::request::Parts) -> Result<Head<'_>, Refusal> {
    let single = |name: HeaderName| one(&parts.headers, &name);
    if parts.headers.len() > MAX_FIELDS {
        return Err(Refusal::TooManyFields);
    }
    // The same refusals as in HTTP/1.1: what one engine takes the other takes.
    single(header::CONTENT_LENGTH).map_err(|_| Refusal::ContentLength)?;
    single(header::HOST).map_err(|_| Refusal::Host)?;
    if single(header::EXPECT)?.is_some_and(|value| !value.eq_ignore_ascii_case(b"100-continue")) {
        return Err(Refusal::Expectation);
    }
    Ok(Head {
        method: Method::of(parts.method.as_str().as_bytes()),
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or(""),
        fields: Fields {
            authorization: single(header::AUTHORIZATION)?,
            content_type: single(header::CONTENT_TYPE)?,
            range: single(header::RANGE)?,
            if_none_match: single(header::IF_NONE_MATCH)?,
            if_range: single(header::IF_RANGE)?,
            content_digest: single(HeaderName::from_static("content-digest"))?,
            traceparent: parts.headers.get("traceparent").map(HeaderValue::as_bytes),
            want_content_digest: single(HeaderName::from_static("want-content-digest"))?,
            accept: parts.headers.get(header::ACCEPT).map(HeaderValue::as_bytes),
            artifact_tag: single(HeaderName::from_static("x-artifact-tag"))?,
            artifact_duration: single(HeaderName::from_static("x-artifact-duration"))?,
            output_id: single(HeaderName::from_static("x-kura-output-id"))?,
        },
    })
}

fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(HeaderValue::as_bytes);
    if values.next().is_some() {
        Err(Refusal::Repeated)
    } else {
        Ok(first)
    }
}

fn translate(reply: Reply, underway: Underway) -> http::Response<Outgoing> {
    let mut headers = HeaderMap::new();
    let mut put = |name: HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    };
    let body = match reply.payload {
        Payload::Empty => Content::whole(Bytes::new()),
        Payload::Document { content_type, body } => {
            put(header::CONTENT_TYPE, content_type);
            Content::whole(body)
        }
        Payload::Described { content_type, length } => {
            put(header::CONTENT_TYPE, content_type);
            put(header::CONTENT_LENGTH, &length.to_string());
            Content::whole(Bytes::new())
        }
        Payload::Tag(tag) => {
            put(header::ETAG, tag.as_str());
            Content::whole(Bytes::new())
        }
        Payload::Beyond(total) => {
            put(header::CONTENT_RANGE, &format!("bytes */{total}"));
            Content::whole(Bytes::new())
        }
        Payload::Grpc(message) => {
            put(header::CONTENT_TYPE, "application/grpc");
            put(HeaderName::from_static("grpc-status"), "12");
            put(HeaderName::from_static("grpc-message"), message);
            Content::whole(Bytes::new())
        }
        Payload::Blob(slice) => {
            put(header::CONTENT_TYPE, slice.content_type);
            put(header::CONTENT_LENGTH, &slice.length.to_string());
            put(header::ACCEPT_RANGES, "bytes");
            put(header::ETAG, slice.hit.tag().as_str());
            if reply.status == 206 {
                let last = slice.start + slice.length.saturating_sub(1);
                put(
                    header::CONTENT_RANGE,
                    &format!("bytes {}-{last}/{}", slice.start, slice.hit.length()),
                );
            }
            if slice.described_only {
                Content::whole(Bytes::new())
            } else {
                let Slice { hit, start, length, .. } = slice;
                Content::Slice {
                    reader: Box::new(Reader::new(&underway.service.shared.blobs, hit)),
                    start,
                    length,
                }
            }
        }
    };
    if let Some(digest) = &reply.digest {
        put(HeaderName::from_static("content-digest"), digest);
    }
    if let Some((name, value)) = reply.extra {
        put(HeaderName::from_static(name), value);
    }
    for (name, value) in &reply.more {
        put(HeaderName::from_static(name), value);
    }
    let mut response = http::Response::new(Outgoing {
        content: body,
        underway,
    });
    *response.status_mut() =
        http::StatusCode::from_u16(reply.status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

/// An answer's body, in frames. The request is under way as long as this lives.
#[derive(Debug)]
struct Outgoing {
    content: Content,
    underway: Underway,
}

#[derive(Debug)]
enum Content {
    Whole(Option<Bytes>),
    Slice {
        reader: Box<Reader<Vec<u8>>>,
        start: u64,
        length: u64,
    },
}

impl Content {
    fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = crate::blob::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Self { content, underway } = self.get_mut();
        match content {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Slice { reader, start, length } => {
                let count = (*length - underway.sent).min(FRAME);
                if count == 0 {
                    return Poll::Ready(None);
                }
                let room = usize::try_from(count).unwrap_or_default();
                let read = ready!(reader.poll_read(cx, *start + underway.sent, room, Vec::new));
                underway.sent += count;
                Poll::Ready(Some(read.map(|bytes| Frame::data(bytes.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_none(),
            Content::Slice { length, .. } => self.underway.sent == *length,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match &self.content {
            Content::Whole(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Content::Slice { length, .. } => length - self.underway.sent,
        })
    }
}

/// A request's body, as the library hands it over.
#[derive(Debug)]
struct Received {
    incoming: Incoming,
    current: Bytes,
    left: Option<u64>,
    stall: Duration,
    ended: bool,
}

impl Received {
    fn new(incoming: Incoming, stall: Duration) -> Self {
        let left = http_body::Body::size_hint(&incoming).exact();
        Self {
            incoming,
            current: Bytes::new(),
            left,
            stall,
            ended: false,
        }
    }
}

impl body::Body for Received {
    fn remaining(&self) -> Option<u64> {
        self.left
    }

    async fn chunk(&mut self) -> Result<&[u8], body::Error> {
        while self.current.is_empty() && !self.ended {
            let frame = tokio::time::timeout(self.stall, self.incoming.frame())
                .await
                .map_err(|_| body::Error::Stalled)?;
            match frame {
                None => self.ended = true,
                Some(Ok(frame)) => self.current = frame.into_data().unwrap_or_default(),
                Some(Err(error)) if error.is_parse() => return Err(body::Error::Broken),
                Some(Err(_)) => return Err(body::Error::Gone),
            }
        }
        Ok(&self.current)
    }

    fn consume(&mut self, count: usize) {
        let count = count.min(self.current.len());
        self.current.advance(count);
        self.left = self.left.map(|left| left.saturating_sub(count as u64));
    }
}
