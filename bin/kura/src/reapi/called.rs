//! A call from its header to the last byte of its answer: how it ended is counted and traced.

use super::body::Body;
use super::method::Method;
use super::status::Code;
use crate::http::service::Service;
use crate::http::span::Labels;
use bytes::Bytes;
use http::header::HeaderMap;
use http_body::{Frame, SizeHint};
use russet_telemetry::trace::Span;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A call under way. One that is dropped before it has ended was cancelled by its client.
#[derive(Debug)]
pub(super) struct Called {
    service: Service,
    method: Method,
    span: Option<Box<Span>>,
    sent: u64,
    ended: bool,
}

impl Called {
    pub(super) fn new(service: &Service, method: Method, parts: &http::request::Parts) -> Self {
        let parent = parts.headers.get("traceparent").map(http::HeaderValue::as_bytes);
        let span = service.shared.traces.request(parent).map(|mut span| {
            describe(&mut span, method, parts.uri.path());
            span
        });
        Self {
            service: service.clone(),
            method,
            span,
            sent: 0,
            ended: false,
        }
    }

    /// Whose data it turned out to be about.
    pub(super) fn about(&mut self, whose: Option<Box<Labels>>) {
        if let (Some(span), Some(whose)) = (&mut self.span, whose) {
            whose.on(span);
        }
    }

    /// The answer, which ends the call when it ends.
    pub(super) fn answer(mut self, response: http::Response<Body>) -> http::Response<Answer> {
        // Where there is no body the header has the status.
        self.see(response.headers());
        response.map(|body| Answer { body, called: self })
    }

    fn see(&mut self, headers: &HeaderMap) {
        let status = headers.get("grpc-status").and_then(|status| status.to_str().ok());
        if let Some(code) = status.and_then(|status| status.parse().ok()) {
            self.end(code);
        }
    }

    fn end(&mut self, code: u8) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.service.shared.reapi.counters.count(self.method, code);
        if let Some(mut span) = self.span.take() {
            span.number("rpc.grpc.status_code", u64::from(code));
            span.number("http.response.body.size", self.sent);
            if is_our_fault(code) {
                span.failed();
            }
        }
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        self.end(Code::Cancelled.number());
    }
}

/// What conventions for servers call an error: the rest is the client's.
fn is_our_fault(code: u8) -> bool {
    // Unknown, deadline exceeded, unimplemented, internal, unavailable, data loss.
    matches!(code, 2 | 4 | 12..=15)
}

/// Names are ours: what a stranger writes into a path says nothing.
fn describe(span: &mut Span, method: Method, path: &str) {
    let known = match method {
        Method::Unknown => None,
        Method::Reflection => Some(("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo")),
        _ => path.strip_prefix('/').and_then(|path| path.split_once('/')),
    };
    span.text("rpc.system", "grpc");
    span.text("network.protocol.version", "2");
    let Some((service, name)) = known else {
        span.text("rpc.method", "_OTHER");
        span.name("grpc".to_owned());
        return;
    };
    span.name(format!("{service}/{name}"));
    span.text("rpc.service", service);
    span.text("rpc.method", name);
}

/// The body of an answer, and the call it answers.
#[derive(Debug)]
pub struct Answer {
    body: Body,
    called: Called,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Self { body, called } = self.get_mut();
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            if let Some(data) = frame.data_ref() {
                called.sent += data.len() as u64;
            } else if let Some(trailers) = frame.trailers_ref() {
                called.see(trailers);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
