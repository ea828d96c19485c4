//! Bodies of answers.

use super::deadline::exceeded;
use super::egress::Egress;
use super::read::Outgoing;
use super::status::Status;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;
use tokio::time::Sleep;

/// What an answer consists of.
#[derive(Debug)]
pub enum Body {
    /// Nothing: the status was in the header.
    Empty,
    /// One message, in pieces that are at hand.
    #[expect(private_interfaces, reason = "made and read in this module only")]
    Message(std::vec::IntoIter<Bytes>, Option<Box<Egress>>),
    /// A blob.
    #[expect(private_interfaces, reason = "made and read in this module only")]
    Blob(Box<Outgoing>),
    /// Messages that are still being made.
    #[expect(private_interfaces, reason = "made and read in this module only")]
    Stream(mpsc::Receiver<Result<Bytes, Status>>),
    /// An answer of a generated server.
    Generated(tonic::body::Body),
    /// An answer that ends when its client stops waiting.
    Until(Box<Body>, Pin<Box<Sleep>>),
}

impl Body {
    /// A message with its prefix.
    pub(super) fn message(bytes: Bytes) -> Self {
        Self::pieces(vec![bytes], None)
    }

    /// A message in pieces, the first of which has the prefix, and what is counted when they have left.
    pub(super) fn pieces(pieces: Vec<Bytes>, egress: Option<Egress>) -> Self {
        Self::Message(pieces.into_iter(), egress.map(Box::new))
    }

    /// The header of an answer that has begun well.
    pub(super) fn into_response(self) -> http::Response<Self> {
        let mut response = http::Response::new(self);
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response
    }
}

fn fine() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
    trailers
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let frame = match this {
            Self::Empty => return Poll::Ready(None),
            Self::Message(pieces, egress) => {
                let piece = pieces.next();
                if let (None, Some(egress)) = (&piece, egress) {
                    egress.end();
                }
                piece.map(|piece| Ok(Frame::data(piece)))
            }
            Self::Until(body, end) => {
                if end.as_mut().poll(cx).is_pending() {
                    return Pin::new(&mut **body).poll_frame(cx);
                }
                Some(Err(exceeded()))
            }
            Self::Blob(outgoing) => match ready!(outgoing.poll_next(cx)) {
                Some(Ok(piece)) => Some(Ok(Frame::data(piece))),
                Some(Err(status)) => Some(Err(status)),
                None => None,
            },
            Self::Stream(messages) => match ready!(messages.poll_recv(cx)) {
                Some(Ok(message)) => Some(Ok(Frame::data(message))),
                Some(Err(status)) => Some(Err(status)),
                None => None,
            },
            Self::Generated(body) => return Pin::new(body).poll_frame(cx),
        };
        let trailers = match frame {
            Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
            Some(Err(status)) => status.trailers(),
            None => fine(),
        };
        *this = Self::Empty;
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Generated(body) => body.is_end_stream(),
            Self::Until(body, _) => body.is_end_stream(),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
