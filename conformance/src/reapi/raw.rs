//! gRPC calls with bodies of one's own making: for what no stub would send, and for services without stubs.

use anyhow::{Context, Result, ensure};
use bytes::{Buf as _, BufMut as _, Bytes};
use futures::stream;
use http_body_util::{BodyExt as _, Full};
use russet_reapi::client::tonic::body::Body;
use russet_reapi::client::tonic::client::Grpc;
use russet_reapi::client::tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use russet_reapi::client::tonic::codegen::http::uri::PathAndQuery;
use russet_reapi::client::tonic::transport::Channel;
use russet_reapi::client::tonic::{Code, Status, Streaming};
use tokio::sync::mpsc;

use super::Target;

#[derive(Debug, Default, Clone, Copy)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Sends one message to `/service/Method` and returns the first one that comes back. An answer without a message is empty.
pub(super) async fn call(target: &Target, path: &'static str, message: impl Into<Bytes>) -> Result<Bytes, Status> {
    call_with(target, path, [message.into()]).await
}

/// A client that is ready, for whatever bytes.
async fn client(target: &Target) -> Result<Grpc<Channel>, Status> {
    let mut client = Grpc::new(target.channel.clone()).max_decoding_message_size(usize::MAX);
    let ready = client.ready().await;
    ready.map_err(|error| Status::new(Code::Unavailable, error.to_string()))?;
    Ok(client)
}

/// A call in both directions.
pub(super) struct Exchange {
    send: mpsc::Sender<Bytes>,
    answers: Streaming<Bytes>,
}

impl Exchange {
    /// Begins with a first message: some servers answer nothing before they have it.
    pub(super) async fn begin(target: &Target, path: &'static str, first: impl Into<Bytes>) -> Result<Self, Status> {
        let (send, mut receive) = mpsc::channel(1);
        let begun = send.send(first.into()).await;
        begun.map_err(|error| Status::new(Code::Unavailable, error.to_string()))?;
        let messages = target.request(stream::poll_fn(move |cx| receive.poll_recv(cx)));
        let path = PathAndQuery::from_static(path);
        let answer = client(target).await?.streaming(messages, path, Plain).await?;
        let answers = answer.into_inner();
        Ok(Self { send, answers })
    }

    pub(super) async fn send(&self, message: impl Into<Bytes>) -> Result<()> {
        let sent = self.send.send(message.into()).await;
        sent.context("the server ended the exchange")
    }

    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        self.answers.message().await
    }
}

/// Sends these messages to `/service/Method`, and nothing more; the first that comes back.
pub(super) async fn call_with(
    target: &Target,
    path: &'static str,
    messages: impl IntoIterator<Item = Bytes, IntoIter: Send + 'static>,
) -> Result<Bytes, Status> {
    let (request, path) = (target.request(stream::iter(messages)), PathAndQuery::from_static(path));
    let answer = client(target).await?.streaming(request, path, Plain).await?;
    Ok(answer.into_inner().message().await?.unwrap_or_default())
}

/// The code of a call whose body is exactly these bytes, framing included.
pub(super) async fn framed(target: &Target, path: &str, body: impl Into<Bytes>, coding: Option<&str>) -> Result<i32> {
    let mut request = http::Request::post(path)
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers");
    if let Some(token) = &target.writer {
        request = request.header("authorization", format!("Bearer {}", token.expose()));
    }
    if let Some(coding) = coding {
        request = request.header("grpc-encoding", coding);
    }
    let mut channel = target.channel.clone();
    let channel = tower::ServiceExt::<http::Request<Body>>::ready(&mut channel).await?;
    let request = request.body(Body::new(Full::new(body.into())))?;
    let answer = tower::Service::call(channel, request).await?;
    ensure!(answer.status() == 200, "{} for a call", answer.status());
    let (head, body) = answer.into_parts();
    let trailers = body.collect().await?.trailers().cloned().unwrap_or_default();
    let status = head.headers.get("grpc-status").or(trailers.get("grpc-status"));
    Ok(status.context("no status")?.to_str()?.parse()?)
}

/// A message as it travels.
pub(super) fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// The code of a call that must fail.
pub(super) async fn refused(target: &Target, path: &'static str, message: impl Into<Bytes>) -> Result<Code> {
    let refused = call(target, path, message).await.err();
    let code = refused.map(|status| status.code());
    code.with_context(|| format!("{path} was answered"))
}
