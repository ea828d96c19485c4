//! What streams leave in a node: partial uploads, damage on the disk, memory. And its health.

use super::{World, code, noise, wire};
use crate::node::{DEADLINE, Node, Options, damage};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use russet_conformance::reapi::target::pieces;
use russet_reapi::client::tonic::Code;
use russet_reapi::proto::health::HealthCheckRequest;
use russet_reapi::proto::reapi;
use russet_reapi::{Digest, Function};

/// A client that goes silent in the middle is told so, and what it sent is kept for its return.
#[tokio::test]
async fn a_stalled_upload_is_ended() {
    let world = World::start(&["--http-stall-timeout-ms", "500"]);
    let content = noise(4, 400_000);
    let name = format!("uploads/u/blobs/{}", Function::Sha256.digest(&content));
    let begun = stream::iter(pieces(&name, &content.slice(..1000), 0, false));
    let answer = tokio::time::timeout(DEADLINE, world.bytes().write(begun.chain(stream::pending()))).await;
    assert_eq!(code(answer.unwrap()), Code::DeadlineExceeded);
    world.write_pieces(pieces(&name, &content, 1000, true)).await.unwrap();
}

#[tokio::test]
async fn a_byte_flipped_on_disk_is_a_miss() {
    let dir = tempfile::tempdir().unwrap();
    let content = noise(5, 500_000);
    let world = World::with(Node::start_in(dir.path(), &Options::default()));
    let digest = world.store(&content).await;
    let World { mut node, target } = world;
    drop(target);
    // Waited for elsewhere: the connection has to be looked after until it is closed.
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    damage(dir.path(), &content[250_000..250_032]);
    let world = World::with(Node::start_in(dir.path(), &Options::default()));
    assert_eq!(code(world.read(&format!("blobs/{digest}"), 0, 0).await), Code::NotFound);
    assert_eq!(world.missing(vec![wire(&digest)]).await.unwrap(), [wire(&digest)]);
}

#[tokio::test]
async fn the_last_result_counts_and_survives_a_crash() {
    let mut world = World::start(&[]);
    let action = wire(&Function::Sha256.digest(b"again"));
    for exit_code in [1, 2, 2, 3] {
        let result = reapi::ActionResult {
            exit_code,
            ..Default::default()
        };
        world.record(&action, result).await.unwrap();
        assert_eq!(world.result(&action).await.unwrap().exit_code, exit_code);
    }
    let metrics = world.node.metrics();
    for line in [
        "kura_artifact_writes_total_total{producer=\"reapi_action\",result=\"created\"} 3",
        "kura_artifact_writes_total_total{producer=\"reapi_action\",result=\"exists\"} 1",
        "kura_grpc_requests_total_total{method=\"UpdateActionResult\",code=\"0\"} 4",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    world.node.kill();
    let again = World::with(Node::start_in(&world.node.data, &Options::default()));
    assert_eq!(again.result(&action).await.unwrap().exit_code, 3);
}

/// Thousands of streams that begin an upload and go away hold neither memory nor uploads.
#[tokio::test]
async fn thousands_of_abandoned_streams_do_no_harm() {
    let world = World::start(&["--memory-hard-limit-bytes", "134217728"]);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..2000_u64 {
        let mut client = world.bytes();
        tasks.spawn(async move {
            let digest = Digest {
                size: 10_000_000,
                ..Function::Sha256.digest(&number.to_le_bytes())
            };
            let name = format!("uploads/{number}/blobs/{digest}");
            let first = pieces(&name, &Bytes::from_static(&[1; 1000]), 0, false);
            let _ = client.write(stream::iter(first)).await;
        });
        if number % 64 == 0 {
            while tasks.try_join_next().is_some() {}
        }
    }
    while tasks.join_next().await.is_some() {}
    let digest = world.store(b"still here").await;
    let read = world.read(&format!("blobs/{digest}"), 0, 0).await;
    assert_eq!(read.unwrap(), b"still here");
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.node.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").trim().parse().unwrap();
    assert!(kib < 400 << 10, "{kib} KiB resident");
}

/// Pages of a file system that lives in memory cannot be dropped.
fn is_on_disk(path: &std::path::Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    rustix::fs::statfs(path).unwrap().f_type != TMPFS
}

/// A blob that has left the page cache was read by the thread that serves, and everybody else of that thread waited for the
/// disk too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_the_disk_has_is_read_by_another_thread() {
    let world = World::start(&[]);
    let content = noise(6, 3_000_000);
    let digest = world.store(&content).await;
    let name = format!("blobs/{digest}");
    assert!(world.read(&name, 0, 0).await.unwrap() == content);
    let moved = || world.node.metric("kura_store_moved_reads_total_total");
    let drop_pages = || {
        for file in std::fs::read_dir(world.node.data.join("store/segments")).unwrap() {
            let file = std::fs::File::open(file.unwrap().path()).unwrap();
            file.sync_data().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
    };
    for read in ["stream", "compressed stream", "batch"] {
        let before = tokio::task::block_in_place(moved);
        drop_pages();
        match read {
            "stream" => assert!(world.read(&name, 0, 0).await.unwrap() == content),
            "compressed stream" => {
                let name = format!("compressed-blobs/zstd/{digest}");
                let sent = world.read(&name, 0, 0).await.unwrap();
                assert!(russet_reapi::pack::inflate(&sent, digest.size).unwrap() == content);
            }
            _ => {
                let small = noise(7, 600_000);
                let digest = world.store(&small).await;
                drop_pages();
                let request = reapi::BatchReadBlobsRequest {
                    digests: vec![wire(&digest)],
                    ..Default::default()
                };
                let answer = world.cas().batch_read_blobs(request).await.unwrap().into_inner();
                assert!(answer.responses[0].data == small);
            }
        }
        let after = tokio::task::block_in_place(moved);
        assert!(after > before || !is_on_disk(&world.node.data), "{read}");
    }
}

#[tokio::test]
async fn health_follows_the_node() {
    let world = World::start(&[]);
    let ask = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };
    for service in ["", "google.bytestream.ByteStream"] {
        assert_eq!(world.health().check(ask(service)).await.unwrap().into_inner().status, 1);
    }
    assert_eq!(code(world.health().check(ask("nobody")).await), Code::NotFound);
    let mut watch = world.health().watch(ask("")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    let mut unknown = world.health().watch(ask("nobody")).await.unwrap().into_inner();
    assert_eq!(unknown.message().await.unwrap().unwrap().status, 3);
    drop(unknown);
    world.node.signal("USR1");
    assert_eq!(watch.message().await.unwrap().unwrap().status, 2);
    assert_eq!(watch.message().await.unwrap(), None);
}
