//! The Remote Execution API, by a client of its own library.

mod actions;
mod blobs;
mod calls;
mod hostile;
mod snapshots;
mod streams;
mod trust;

use crate::node::{Node, Options};
use russet_reapi::client::tonic;
use russet_reapi::client::tonic::transport::{Channel, Endpoint};
use russet_reapi::client::{
    ActionCacheClient, ByteStreamClient, CapabilitiesClient, ContentAddressableStorageClient, HealthClient,
};
use russet_reapi::proto::bytestream::{ReadRequest, WriteRequest};
use russet_reapi::proto::reapi;
use russet_reapi::{Digest, Function};
use tonic::{Code, Status};

/// A node and a connection to it.
pub(crate) struct World {
    pub(crate) node: Node,
    pub(crate) channel: Channel,
}

pub(crate) async fn connect(node: &Node) -> Channel {
    Endpoint::from_shared(format!("http://{}", node.address))
        .unwrap()
        .initial_stream_window_size(4 * 1024 * 1024)
        .initial_connection_window_size(16 * 1024 * 1024)
        .connect()
        .await
        .unwrap()
}

impl World {
    pub(crate) async fn start(args: &[&str]) -> Self {
        Self::with(Node::start_with(&Options { args, env: &[] })).await
    }

    pub(crate) async fn with(node: Node) -> Self {
        let channel = connect(&node).await;
        Self { node, channel }
    }

    pub(crate) fn cas(&self) -> ContentAddressableStorageClient<Channel> {
        ContentAddressableStorageClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    pub(crate) fn bytes(&self) -> ByteStreamClient<Channel> {
        ByteStreamClient::new(self.channel.clone())
    }

    pub(crate) fn actions(&self) -> ActionCacheClient<Channel> {
        ActionCacheClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    pub(crate) fn capabilities(&self) -> CapabilitiesClient<Channel> {
        CapabilitiesClient::new(self.channel.clone())
    }

    pub(crate) fn health(&self) -> HealthClient<Channel> {
        HealthClient::new(self.channel.clone())
    }

    /// Stores blobs in one batch; the code of each.
    pub(crate) async fn put(&self, blobs: &[(Digest, &[u8])]) -> Vec<i32> {
        let answer = self.cas().batch_update_blobs(batch(blobs)).await.unwrap().into_inner();
        answer
            .responses
            .into_iter()
            .map(|one| one.status.unwrap_or_default().code)
            .collect()
    }

    pub(crate) async fn store(&self, content: &[u8]) -> Digest {
        let digest = Function::Sha256.digest(content);
        if content.len() < 1 << 20 {
            assert_eq!(self.put(&[(digest, content)]).await, [0]);
        } else {
            let name = format!("uploads/u/blobs/{digest}");
            assert_eq!(
                self.write(&name, content, 100_000).await.unwrap(),
                i64::try_from(content.len()).unwrap()
            );
        }
        digest
    }

    pub(crate) async fn missing(&self, digests: &[Digest]) -> Vec<Digest> {
        let request = reapi::FindMissingBlobsRequest {
            blob_digests: digests.iter().map(wire).collect(),
            digest_function: digests.first().map_or(0, |digest| digest.function.value()),
            ..Default::default()
        };
        let answer = self.cas().find_missing_blobs(request).await.unwrap().into_inner();
        let function = digests.first().map_or(Function::Sha256, |digest| digest.function);
        answer
            .missing_blob_digests
            .iter()
            .map(|digest| unwire(digest, function))
            .collect()
    }

    /// Reads a resource whole.
    pub(crate) async fn read(&self, name: &str, offset: i64, limit: i64) -> Result<Vec<u8>, Status> {
        let request = ReadRequest {
            resource_name: name.to_owned(),
            read_offset: offset,
            read_limit: limit,
        };
        let mut stream = self.bytes().read(request).await?.into_inner();
        let mut content = Vec::new();
        while let Some(message) = stream.message().await? {
            content.extend_from_slice(&message.data);
        }
        Ok(content)
    }

    /// Writes a resource in messages of that size.
    pub(crate) async fn write(&self, name: &str, content: &[u8], step: usize) -> Result<i64, Status> {
        let messages = messages(name, content, step, 0, true);
        let answer = self.bytes().write(tokio_stream(messages)).await?;
        Ok(answer.into_inner().committed_size)
    }
}

pub(crate) fn batch(blobs: &[(Digest, &[u8])]) -> reapi::BatchUpdateBlobsRequest {
    reapi::BatchUpdateBlobsRequest {
        requests: blobs
            .iter()
            .map(|(digest, content)| reapi::batch_update_blobs_request::Request {
                digest: Some(wire(digest)),
                data: content.to_vec().into(),
                compressor: 0,
            })
            .collect(),
        digest_function: blobs.first().map_or(0, |(digest, _)| digest.function.value()),
        ..Default::default()
    }
}

pub(crate) fn messages(name: &str, content: &[u8], step: usize, start: usize, finish: bool) -> Vec<WriteRequest> {
    let mut offset = start;
    let mut messages: Vec<_> = content
        .chunks(step)
        .map(|chunk| {
            let message = WriteRequest {
                resource_name: if offset == start {
                    name.to_owned()
                } else {
                    String::new()
                },
                write_offset: i64::try_from(offset).unwrap(),
                finish_write: false,
                data: chunk.to_vec().into(),
            };
            offset += chunk.len();
            message
        })
        .collect();
    if messages.is_empty() {
        messages.push(WriteRequest {
            resource_name: name.to_owned(),
            ..Default::default()
        });
    }
    if let Some(last) = messages.last_mut() {
        last.finish_write = finish;
    }
    messages
}

/// A stream of messages that ends.
pub(crate) fn tokio_stream<T: Send + 'static>(messages: Vec<T>) -> impl futures::Stream<Item = T> + Send + 'static {
    futures::stream::iter(messages)
}

pub(crate) fn wire(digest: &Digest) -> reapi::Digest {
    reapi::Digest {
        hash: digest.hex(),
        size_bytes: i64::try_from(digest.size).unwrap(),
    }
}

pub(crate) fn unwire(digest: &reapi::Digest, function: Function) -> Digest {
    Digest {
        function,
        hash: russet_reapi::digest::hash_of_hex(digest.hash.as_bytes()).unwrap(),
        size: u64::try_from(digest.size_bytes).unwrap(),
    }
}

pub(crate) fn code<T: std::fmt::Debug>(answer: Result<T, Status>) -> Code {
    answer.unwrap_err().code()
}

/// Bytes that do not compress and are different for every seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
