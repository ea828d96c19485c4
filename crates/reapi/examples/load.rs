//! Calls a server and says what each call cost it: `load ADDRESS PID [CALL...]`.
//!
//! The cost is processor time of the server's process, which waiting and other processes do not change.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a tool for one machine; it fails by panicking"
)]

use futures::future::BoxFuture;
use russet_reapi::client::tonic::transport::{Channel, Endpoint};
use russet_reapi::client::{ActionCacheClient, ByteStreamClient, ContentAddressableStorageClient};
use russet_reapi::proto::bytestream::{ReadRequest, WriteRequest};
use russet_reapi::proto::reapi;
use russet_reapi::{Digest, Function};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const CONNECTIONS: usize = 4;
const WORKERS: usize = 16;

fn noise(seed: u64, length: usize) -> Vec<u8> {
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

fn wire(digest: &Digest) -> reapi::Digest {
    reapi::Digest {
        hash: digest.hex(),
        size_bytes: i64::try_from(digest.size).unwrap(),
    }
}

/// Processor microseconds of a process, user and system.
fn cpu(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) * 10_000.0
}

type Call = Arc<dyn Fn(Channel, u64) -> BoxFuture<'static, ()> + Send + Sync>;

/// The server, and what to ask it.
struct Bench {
    pid: u32,
    channels: Vec<Channel>,
    wanted: Vec<String>,
    many: Vec<(Digest, Vec<u8>)>,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|wanted| wanted == name)
    }

    fn first(&self) -> Channel {
        self.channels[0].clone()
    }

    async fn measure(&self, name: &str, count: u64, call: Call) {
        if self.wants(name) {
            measure(name, self.pid, &self.channels, count, call).await;
        }
    }
}

async fn measure(name: &str, pid: u32, channels: &[Channel], count: u64, call: Call) {
    for (number, channel) in channels.iter().enumerate() {
        call(channel.clone(), u64::MAX - number as u64).await;
    }
    let next = Arc::new(AtomicU64::new(0));
    let (before, started) = (cpu(pid), Instant::now());
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (next, call, channel) = (
                Arc::clone(&next),
                Arc::clone(&call),
                channels[worker % channels.len()].clone(),
            );
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    call(channel.clone(), number).await;
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    let (used, took) = (cpu(pid) - before, started.elapsed().as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "a number for people")]
    let calls = count as f64;
    println!(
        "{name:28} {count:7} calls {:10.1} us/call {:9.0} calls/s",
        used / calls,
        calls / took
    );
}

fn update(blobs: &[(Digest, Vec<u8>)]) -> reapi::BatchUpdateBlobsRequest {
    reapi::BatchUpdateBlobsRequest {
        requests: blobs
            .iter()
            .map(|(digest, content)| reapi::batch_update_blobs_request::Request {
                digest: Some(wire(digest)),
                data: content.clone().into(),
                compressor: 0,
            })
            .collect(),
        ..Default::default()
    }
}

fn blobs(seed: u64, count: u64, size: usize) -> Vec<(Digest, Vec<u8>)> {
    (0..count)
        .map(|number| {
            let content = noise(seed * 1_000_003 + number + 1, size);
            (Function::Sha256.digest(&content), content)
        })
        .collect()
}

async fn write(channel: Channel, digest: Digest, content: Arc<Vec<u8>>, number: u64) {
    let messages: Vec<_> = content
        .chunks(256 * 1024)
        .enumerate()
        .map(|(index, chunk)| WriteRequest {
            resource_name: format!("uploads/{number}/blobs/{digest}"),
            write_offset: i64::try_from(index * 256 * 1024).unwrap(),
            finish_write: (index + 1) * 256 * 1024 >= content.len(),
            data: chunk.to_vec().into(),
        })
        .collect();
    let answer = ByteStreamClient::new(channel)
        .write(futures::stream::iter(messages))
        .await
        .unwrap();
    assert_eq!(
        answer.into_inner().committed_size,
        i64::try_from(content.len()).unwrap()
    );
}

async fn find(bench: &Bench) {
    for (name, absent) in [("find-present", 0_usize), ("find-half", 500), ("find-absent", 1000)] {
        let digests = bench.many.iter().enumerate().map(|(index, (digest, _))| {
            wire(&if index < absent {
                Function::Sha256.digest(&index.to_le_bytes())
            } else {
                *digest
            })
        });
        let request = Arc::new(reapi::FindMissingBlobsRequest {
            blob_digests: digests.collect(),
            ..Default::default()
        });
        let call: Call = Arc::new(move |channel, _| {
            let request = Arc::clone(&request);
            Box::pin(async move {
                let answer = ContentAddressableStorageClient::new(channel)
                    .find_missing_blobs((*request).clone())
                    .await;
                assert_eq!(answer.unwrap().into_inner().missing_blob_digests.len(), absent);
            })
        });
        bench.measure(name, 3000, call).await;
    }
}

async fn batches(bench: &Bench) {
    let digests: Vec<_> = bench.many[..100].iter().map(|(digest, _)| wire(digest)).collect();
    let request = Arc::new(reapi::BatchReadBlobsRequest {
        digests,
        ..Default::default()
    });
    let call: Call = Arc::new(move |channel, _| {
        let request = Arc::clone(&request);
        Box::pin(async move {
            let answer = ContentAddressableStorageClient::new(channel)
                .batch_read_blobs((*request).clone())
                .await;
            assert!(
                answer
                    .unwrap()
                    .into_inner()
                    .responses
                    .iter()
                    .all(|one| one.data.len() == 4096)
            );
        })
    });
    bench.measure("batch-read", 2000, call).await;
    let salt = u64::from(std::process::id());
    let call: Call = Arc::new(move |channel, number| {
        let request = update(&blobs(number.wrapping_add(salt << 20) & 0xffff_ffff, 100, 4096));
        Box::pin(async move {
            let answer = ContentAddressableStorageClient::new(channel)
                .batch_update_blobs(request)
                .await;
            let responses = answer.unwrap().into_inner().responses;
            assert!(
                responses
                    .iter()
                    .all(|one| one.status.as_ref().is_none_or(|status| status.code == 0))
            );
        })
    });
    bench.measure("batch-update", 500, call).await;
}

async fn streams(bench: &Bench) {
    let content = Arc::new(noise(7, 16 << 20));
    let digest = Function::Sha256.digest(&content);
    write(bench.first(), digest, Arc::clone(&content), 0).await;
    let call: Call = Arc::new(move |channel, _| {
        Box::pin(async move {
            let request = ReadRequest {
                resource_name: format!("blobs/{digest}"),
                ..Default::default()
            };
            let mut stream = ByteStreamClient::new(channel).read(request).await.unwrap().into_inner();
            let mut length = 0;
            while let Some(message) = stream.message().await.unwrap() {
                length += message.data.len();
            }
            assert_eq!(length, 16 << 20);
        })
    });
    bench.measure("read-16m", 150, call).await;
    let salt = u64::from(std::process::id()) << 24;
    let call: Call = Arc::new(move |channel, number| {
        let content = Arc::new(noise((number ^ salt) & 0xffff_ffff_ffff, 16 << 20));
        let digest = Function::Sha256.digest(&content);
        Box::pin(write(channel, digest, content, number))
    });
    bench.measure("write-16m", 50, call).await;
}

async fn actions(bench: &Bench) {
    let outputs = bench.many[..3].iter().map(|(digest, _)| reapi::OutputFile {
        path: format!("bazel-out/k8-fastbuild/bin/{}", digest.hex()),
        digest: Some(wire(digest)),
        ..Default::default()
    });
    let result = reapi::ActionResult {
        output_files: outputs.collect(),
        stdout_digest: Some(wire(&bench.many[3].0)),
        ..Default::default()
    };
    let action = Function::Sha256.digest(b"action");
    let request = reapi::UpdateActionResultRequest {
        action_digest: Some(wire(&action)),
        action_result: Some(result),
        ..Default::default()
    };
    ActionCacheClient::new(bench.first())
        .update_action_result(request)
        .await
        .unwrap();
    for (name, digest) in [("action", action), ("action-miss", Function::Sha256.digest(b"nothing"))] {
        let request = reapi::GetActionResultRequest {
            action_digest: Some(wire(&digest)),
            ..Default::default()
        };
        let hit = name == "action";
        let call: Call = Arc::new(move |channel, _| {
            let request = request.clone();
            Box::pin(async move {
                let answer = ActionCacheClient::new(channel).get_action_result(request).await;
                assert_eq!(answer.is_ok(), hit);
            })
        });
        bench.measure(name, 60_000, call).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        let endpoint = Endpoint::from_shared(format!("http://{}", args[0])).unwrap();
        let endpoint = endpoint
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20);
        channels.push(endpoint.connect().await.unwrap());
    }
    let bench = Bench {
        pid: args[1].parse().unwrap(),
        channels,
        wanted: args[2..].to_vec(),
        many: blobs(1, 1000, 4096),
    };
    let mut cas = ContentAddressableStorageClient::new(bench.first());
    for share in bench.many.chunks(500) {
        cas.batch_update_blobs(update(share)).await.unwrap();
    }
    find(&bench).await;
    batches(&bench).await;
    streams(&bench).await;
    actions(&bench).await;
}
