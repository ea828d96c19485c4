//! A gRPC client on one thread: many calls at a time over a few connections, every answer checked.

use super::super::loader::Load;
use super::super::system::System;
use super::content::Blob;
use super::reapi;
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use russet_reapi::client::tonic::Request;
use russet_reapi::client::tonic::metadata::{Ascii, MetadataValue};
use russet_reapi::client::tonic::transport::{Channel, Endpoint};
use russet_reapi::client::{ActionCacheClient, ByteStreamClient, ContentAddressableStorageClient};
use russet_reapi::digest::Digest;
use russet_reapi::name::{self, Encoding, Sink, Source};
use russet_reapi::proto::bytestream::{ReadRequest, WriteRequest};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Data of one message, as Bazel sends it.
const PIECE: usize = 256 * 1024;

/// How much to do.
#[derive(Debug, Clone, Copy)]
pub(super) enum Amount {
    /// Nothing is called after this time; what is under way is waited for.
    Time(Duration),
    Count(u64),
}

/// What a call moved, in bytes of content.
#[derive(Debug, Clone, Copy)]
pub(super) enum Moved {
    Read(usize),
    Written(usize),
}

/// Calls with numbers from 0, so many at a time, until it is enough. The first failure ends it.
pub(super) async fn repeat<F>(workers: usize, amount: Amount, call: F) -> Result<Load>
where
    F: AsyncFn(usize, u64) -> Result<Moved>,
{
    let (next, load) = (Cell::new(0_u64), RefCell::new(Load::default()));
    let began = Instant::now();
    let work = (0..workers).map(async |worker| {
        loop {
            let (number, start) = (next.get(), Instant::now());
            let enough = match amount {
                Amount::Time(time) => start.duration_since(began) >= time,
                Amount::Count(count) => number >= count,
            };
            if enough {
                return Ok::<_, anyhow::Error>(());
            }
            next.set(number + 1);
            let moved = call(worker, number).await?;
            let micros = u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX);
            let mut load = load.borrow_mut();
            load.requests += 1;
            match moved {
                Moved::Read(bytes) => {
                    load.bytes += bytes as u64;
                    load.reads.push(micros);
                }
                Moved::Written(bytes) => {
                    load.bytes += bytes as u64;
                    load.writes.push(micros);
                }
            }
        }
    });
    futures::future::try_join_all(work).await?;
    let mut load = load.into_inner();
    load.wall = began.elapsed();
    Ok(load)
}

/// A digest as messages have it.
pub(super) fn wire(digest: &Digest) -> reapi::Digest {
    reapi::Digest {
        hash: digest.hex(),
        size_bytes: i64::try_from(digest.size).unwrap_or(i64::MAX),
    }
}

/// Connections to a server, and the right to one instance of it.
#[derive(Debug)]
pub(super) struct Client {
    channels: Vec<Channel>,
    instance: String,
    token: Option<MetadataValue<Ascii>>,
}

impl Client {
    pub(super) async fn connect(system: &System, instance: &str, connections: usize) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{}", system.address))?
            .tcp_nodelay(true)
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20);
        let mut channels = Vec::new();
        for _ in 0..connections {
            let channel = endpoint.connect().await;
            channels.push(channel.with_context(|| format!("failed to connect to {}", system.address))?);
        }
        let token = system.token.map(|token| format!("Bearer {}", token(instance)).parse());
        Ok(Self {
            channels,
            instance: instance.to_owned(),
            token: token.transpose()?,
        })
    }

    fn channel(&self, worker: usize) -> Result<Channel> {
        let channel = self.channels.get(worker % self.channels.len().max(1));
        channel.cloned().context("there is no connection")
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request
    }

    fn cas(&self, worker: usize) -> Result<ContentAddressableStorageClient<Channel>> {
        Ok(ContentAddressableStorageClient::new(self.channel(worker)?))
    }

    /// How many are missing.
    pub(super) async fn find_missing(&self, worker: usize, digests: &[reapi::Digest]) -> Result<usize> {
        let request = self.request(reapi::FindMissingBlobsRequest {
            instance_name: self.instance.clone(),
            blob_digests: digests.to_vec(),
            ..Default::default()
        });
        let answer = self.cas(worker)?.find_missing_blobs(request).await?;
        Ok(answer.into_inner().missing_blob_digests.len())
    }

    /// Bytes of content; all must be there.
    pub(super) async fn batch_read(&self, worker: usize, digests: &[reapi::Digest]) -> Result<usize> {
        let request = self.request(reapi::BatchReadBlobsRequest {
            instance_name: self.instance.clone(),
            digests: digests.to_vec(),
            ..Default::default()
        });
        let answer = self.cas(worker)?.batch_read_blobs(request).await?.into_inner();
        let mut bytes = 0;
        for one in answer.responses {
            let code = one.status.map_or(0, |status| status.code);
            ensure!(code == 0, "a blob of a batch was answered with status {code}");
            bytes += one.data.len();
        }
        Ok(bytes)
    }

    /// Bytes of content; all must be stored.
    pub(super) async fn batch_update(&self, worker: usize, blobs: Vec<Blob>) -> Result<usize> {
        let sent = blobs.iter().flat_map(|blob| &blob.parts).map(Bytes::len).sum();
        let count = blobs.len();
        let requests = blobs
            .into_iter()
            .map(|blob| reapi::batch_update_blobs_request::Request {
                digest: Some(wire(&blob.digest)),
                data: blob.parts.concat().into(),
                compressor: 0,
            });
        let request = self.request(reapi::BatchUpdateBlobsRequest {
            instance_name: self.instance.clone(),
            requests: requests.collect(),
            ..Default::default()
        });
        let answer = self.cas(worker)?.batch_update_blobs(request).await?.into_inner();
        let stored = answer
            .responses
            .iter()
            .filter(|one| one.status.as_ref().is_none_or(|status| status.code == 0));
        let stored = stored.count();
        ensure!(stored == count, "{stored} of {count} blobs of a batch were stored");
        Ok(sent)
    }

    /// Bytes that came, in the encoding that was asked for.
    pub(super) async fn read(&self, worker: usize, digest: &Digest, encoding: Encoding) -> Result<usize> {
        let source = Source {
            instance: &self.instance,
            digest: *digest,
            encoding,
        };
        let request = self.request(ReadRequest {
            resource_name: name::of_source(&source),
            ..Default::default()
        });
        let mut stream = ByteStreamClient::new(self.channel(worker)?)
            .read(request)
            .await?
            .into_inner();
        let mut bytes = 0;
        while let Some(message) = stream.message().await? {
            bytes += message.data.len();
        }
        Ok(bytes)
    }

    /// Sends content, or its compressed form, under a name of its own.
    pub(super) async fn write(
        &self,
        worker: usize,
        digest: &Digest,
        parts: &[Bytes],
        encoding: Encoding,
    ) -> Result<()> {
        let sink = Sink {
            instance: &self.instance,
            upload: &digest.hex(),
            digest: *digest,
            encoding,
        };
        let messages = messages(&name::of_sink(&sink), parts);
        let sent: usize = parts.iter().map(Bytes::len).sum();
        let answer = ByteStreamClient::new(self.channel(worker)?)
            .write(self.request(futures::stream::iter(messages)))
            .await?;
        let committed = answer.into_inner().committed_size;
        let whole = usize::try_from(committed) == Ok(sent);
        ensure!(whole, "{committed} of {sent} bytes were said to be stored");
        Ok(())
    }

    pub(super) async fn update_action(&self, action: &Digest, result: reapi::ActionResult) -> Result<()> {
        let request = self.request(reapi::UpdateActionResultRequest {
            instance_name: self.instance.clone(),
            action_digest: Some(wire(action)),
            action_result: Some(result),
            ..Default::default()
        });
        let mut client = ActionCacheClient::new(self.channel(0)?);
        client.update_action_result(request).await?;
        Ok(())
    }

    /// How many files the result has.
    pub(super) async fn get_action(&self, worker: usize, action: &reapi::Digest) -> Result<usize> {
        let request = self.request(reapi::GetActionResultRequest {
            instance_name: self.instance.clone(),
            action_digest: Some(action.clone()),
            ..Default::default()
        });
        let mut client = ActionCacheClient::new(self.channel(worker)?);
        Ok(client.get_action_result(request).await?.into_inner().output_files.len())
    }
}

/// An upload as messages. Only the first has the name, as clients do it.
fn messages(resource: &str, parts: &[Bytes]) -> Vec<WriteRequest> {
    let pieces = parts.iter().flat_map(|part| {
        (0..part.len())
            .step_by(PIECE)
            .map(|start| part.slice(start..part.len().min(start + PIECE)))
    });
    let mut offset = 0;
    let mut messages: Vec<WriteRequest> = pieces
        .map(|data| {
            let message = WriteRequest {
                write_offset: offset,
                data,
                ..Default::default()
            };
            offset += i64::try_from(message.data.len()).unwrap_or(0);
            message
        })
        .collect();
    if let Some(first) = messages.first_mut() {
        resource.clone_into(&mut first.resource_name);
    }
    if let Some(last) = messages.last_mut() {
        last.finish_write = true;
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_cut_into_messages_that_follow_each_other() {
        let parts = [Bytes::from(vec![1; 8]), Bytes::from(vec![2; PIECE + 1])];
        let messages = messages("name", &parts);
        let seen: Vec<_> = messages
            .iter()
            .map(|one| {
                (
                    one.resource_name.as_str(),
                    one.write_offset,
                    one.data.len(),
                    one.finish_write,
                )
            })
            .collect();
        let piece = i64::try_from(PIECE).unwrap();
        assert_eq!(
            seen,
            [("name", 0, 8, false), ("", 8, PIECE, false), ("", 8 + piece, 1, true)]
        );
    }

    #[tokio::test]
    async fn calls_are_numbered_and_the_first_failure_ends_them() {
        let seen = RefCell::new(Vec::new());
        let load = repeat(3, Amount::Count(10), async |_, number| {
            tokio::task::yield_now().await;
            seen.borrow_mut().push(number);
            Ok(Moved::Written(2))
        })
        .await
        .unwrap();
        seen.borrow_mut().sort_unstable();
        assert_eq!(*seen.borrow(), (0..10).collect::<Vec<_>>());
        assert_eq!((load.requests, load.bytes, load.writes.len()), (10, 20, 10));
        let failed = repeat(3, Amount::Time(Duration::MAX), async |_, number| {
            ensure!(number < 5, "enough");
            tokio::task::yield_now().await;
            Ok(Moved::Read(1))
        })
        .await;
        assert_eq!(failed.unwrap_err().to_string(), "enough");
    }
}
