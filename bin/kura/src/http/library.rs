//! HTTP/2 and TLS, by `hyper`, with the same handlers.
//!
//! h2c arrives on the plain port: the hand-written engine sees the preface and hands the socket over together with the bytes
//! it has read ([`Replay`]). Requests that speak gRPC go to [`crate::reapi`].

use super::body;
use super::head::{Fields, Head, Method};
use super::reply::{Payload, Reply, Slice};
use super::service::{Plan, Planned, Service};
use crate::http1::parser::Refusal;
use crate::http1::wait::Patience;
use crate::metrics::Path;
use crate::reapi;
use bytes::{Buf as _, Bytes};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use russet_identity::{Clock as _, SystemClock};
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What one frame of a blob carries.
const FRAME: u64 = 64 * 1024;

/// Serves a connection until it ends or the node drains.
pub async fn serve<I>(io: I, service: Service, patience: Patience)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.header)
        .keep_alive(true)
        .max_buf_size(64 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(4 * 1024 * 1024)
        .initial_connection_window_size(16 * 1024 * 1024)
        .max_frame_size(64 * 1024)
        .max_concurrent_streams(128)
        .max_send_buf_size(512 * 1024)
        .max_header_list_size(32 * 1024)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    let draining = service.shared.lifecycle.draining();
    let handler = hyper::service::service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(respond(request, &service, patience).await) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), handler));
    tokio::select! {
        // What ends a connection is of no interest here: answers were counted, and the peer knows best.
        _ = connection.as_mut() => return,
        () = draining.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

async fn respond(request: http::Request<Incoming>, service: &Service, patience: Patience) -> http::Response<Answer> {
    let started = Instant::now();
    let _inflight = service.shared.lifecycle.enter();
    let (parts, incoming) = request.into_parts();
    if parts.version == http::Version::HTTP_2 && is_grpc(&parts) {
        let response = reapi::respond(parts, incoming, service, patience.stall).await;
        return response.map(Answer::Grpc);
    }
    let planned = match head_of(&parts) {
        Ok(head) => {
            let now = SystemClock.now();
            let mut planned = service.plan(&head, now, None);
            if let Plan::Ask(question) = planned.plan {
                let decision = service.ask(question).await;
                planned = service.plan(&head, now, Some(decision));
            }
            planned
        }
        Err(refusal) => Planned {
            route: super::route::Route::Unknown,
            plan: Plan::Reply(Reply::message(refusal.status(), &refusal.to_string())),
        },
    };
    let mut body = Received::new(incoming, patience.stall);
    let reply = service.perform(planned.plan, &mut body).await;
    service.shard.request(planned.route, reply.status, started.elapsed());
    if let Payload::Blob(slice) = &reply.payload
        && !slice.described_only
    {
        service.shard.path(Path::Streaming);
    }
    translate(reply, parts.version).map(Answer::Plain)
}

/// The same rule as that of [`Head::is_grpc`], before there is a head.
fn is_grpc(parts: &http::request::Parts) -> bool {
    let content_type = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    content_type
        .and_then(|value| value.get(..16))
        .is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
}

/// The body of an answer, of either kind.
#[derive(Debug)]
enum Answer {
    Plain(Outgoing),
    Grpc(reapi::Body),
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Plain(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Grpc(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Plain(body) => body.is_end_stream(),
            Self::Grpc(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Plain(body) => body.size_hint(),
            Self::Grpc(body) => body.size_hint(),
        }
    }
}

fn head_of(parts: &http::request::Parts) -> Result<Head<'_>, Refusal> {
    let single = |name: HeaderName| one(&parts.headers, &name);
    // The library accepts both framings and lets one win; we do not.
    if parts.headers.contains_key(header::TRANSFER_ENCODING) && parts.headers.contains_key(header::CONTENT_LENGTH) {
        return Err(Refusal::TwoFramings);
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

fn translate(reply: Reply, version: http::Version) -> http::Response<Outgoing> {
    let mut headers = HeaderMap::new();
    let mut put = |name: HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    };
    let body = match reply.payload {
        Payload::Empty => Outgoing::whole(Bytes::new()),
        Payload::Document { content_type, body } => {
            put(header::CONTENT_TYPE, content_type);
            Outgoing::whole(body)
        }
        Payload::Tag(tag) => {
            put(header::ETAG, tag.as_str());
            Outgoing::whole(Bytes::new())
        }
        Payload::Beyond(total) => {
            put(header::CONTENT_RANGE, &format!("bytes */{total}"));
            Outgoing::whole(Bytes::new())
        }
        Payload::Grpc(message) => {
            put(header::CONTENT_TYPE, "application/grpc");
            put(HeaderName::from_static("grpc-status"), "12");
            put(HeaderName::from_static("grpc-message"), message);
            Outgoing::whole(Bytes::new())
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
                Outgoing::whole(Bytes::new())
            } else {
                Outgoing::Slice {
                    slice: Arc::new(slice),
                    sent: 0,
                }
            }
        }
    };
    if let Some((name, value)) = reply.extra {
        put(HeaderName::from_static(name), value);
    }
    if reply.close && version < http::Version::HTTP_2 {
        put(header::CONNECTION, "close");
    }
    let mut response = http::Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(reply.status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

/// An answer's body, in frames.
#[derive(Debug)]
enum Outgoing {
    Whole(Option<Bytes>),
    Slice { slice: Arc<Slice>, sent: u64 },
}

impl Outgoing {
    fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = crate::blob::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Slice { slice, sent } => {
                let count = (slice.length - *sent).min(FRAME);
                if count == 0 {
                    return Poll::Ready(None);
                }
                let mut bytes = vec![0; usize::try_from(count).unwrap_or_default()];
                let read = slice.hit.read_at(slice.start + *sent, &mut bytes);
                *sent += count;
                Poll::Ready(Some(read.map(|()| Frame::data(bytes.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Slice { slice, sent } => *sent == slice.length,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Whole(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Self::Slice { slice, sent } => slice.length - sent,
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

/// A stream whose first bytes were read by somebody else.
#[derive(Debug)]
pub struct Replay<I> {
    read: Bytes,
    inner: I,
}

impl<I> Replay<I> {
    /// `read` comes first, then what `inner` has.
    pub fn new(read: Bytes, inner: I) -> Self {
        Self { read, inner }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Replay<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buffer);
        }
        let count = self.read.len().min(buffer.remaining());
        let first = self.read.split_to(count);
        buffer.put_slice(&first);
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Replay<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
