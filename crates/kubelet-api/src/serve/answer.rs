//! Answers that are not streams.

use std::io;
use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::{Stream, StreamExt as _};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};

use crate::backend::Page;
use crate::refusal::Refusal;

pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

const PLAIN: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn with_type(status: StatusCode, kind: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

pub(super) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    with_type(status, PLAIN, text)
}

pub(super) fn refused(refusal: &Refusal) -> Response<Body> {
    plain(refusal.status(), refusal.to_string())
}

pub(super) fn json(value: &impl serde::Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(bytes) => with_type(StatusCode::OK, "application/json", bytes),
        Err(error) => refused(&Refusal::Failed(format!(
            "the answer could not be written as JSON: {error}"
        ))),
    }
}

/// Text as it comes. Without a type, as from a stock kubelet: the apiserver gives it one.
pub(super) fn streamed(text: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Response<Body> {
    Response::new(StreamBody::new(text.map(|piece| piece.map(Frame::data))).boxed_unsync())
}

/// A metrics page, compressed for those who can read it.
pub(super) fn metrics(page: Page, headers: &HeaderMap) -> Response<Body> {
    let (kind, page) = match page {
        Page::Text(page) => (PROMETHEUS, page),
        Page::OpenMetrics(page) => (OPEN_METRICS, page),
    };
    let accepts = headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| {
            coding
                .split(';')
                .next()
                .is_some_and(|name| name.trim().eq_ignore_ascii_case("gzip"))
        });
    if accepts {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        if let Ok(packed) = packed.write_all(page.as_bytes()).and_then(|()| packed.finish()) {
            let mut response = with_type(StatusCode::OK, kind, packed);
            response
                .headers_mut()
                .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            return response;
        }
    }
    with_type(StatusCode::OK, kind, page)
}
