//! gRPC calls with bodies of one's own making: for what no stub would send, and for services without stubs.

use anyhow::{Context, Result};
use bytes::{Buf as _, BufMut as _, Bytes};
use futures::stream;
use russet_reapi::client::tonic::client::Grpc;
use russet_reapi::client::tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use russet_reapi::client::tonic::codegen::http::uri::PathAndQuery;
use russet_reapi::client::tonic::{Code, Status};

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
    let mut client = Grpc::new(target.channel.clone()).max_decoding_message_size(usize::MAX);
    client
        .ready()
        .await
        .map_err(|error| Status::new(Code::Unavailable, error.to_string()))?;
    let request = target.request(stream::iter([message.into()]));
    let answer = client
        .streaming(request, PathAndQuery::from_static(path), Plain)
        .await?;
    Ok(answer.into_inner().message().await?.unwrap_or_default())
}

/// The code of a call that must fail.
pub(super) async fn refused(target: &Target, path: &'static str, message: impl Into<Bytes>) -> Result<Code> {
    call(target, path, message)
        .await
        .err()
        .map(|status| status.code())
        .with_context(|| format!("{path} was answered"))
}
