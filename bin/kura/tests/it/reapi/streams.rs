//! ByteStream: offsets, limits, early answers, resuming, health.

use super::{World, code, connect, messages, noise, tokio_stream, wire};
use crate::node::{DEADLINE, Node, Options};
use russet_reapi::Function;
use russet_reapi::client::tonic::{self, Code};
use russet_reapi::proto::bytestream::{QueryWriteStatusRequest, WriteRequest};
use russet_reapi::proto::health::HealthCheckRequest;
use russet_reapi::proto::reapi;
use tokio::sync::mpsc;

#[tokio::test]
async fn blobs_of_every_size_come_back_whole_and_in_parts() {
    let world = World::start(&[]).await;
    for size in [1_usize, 4096, 131_072, 131_073, 5_000_000] {
        let content = noise(size as u64, size);
        let digest = Function::Sha256.digest(&content);
        let name = format!("x/uploads/u/blobs/{digest}");
        assert_eq!(
            world.write(&name, &content, 70_000).await.unwrap(),
            i64::try_from(size).unwrap()
        );
        let name = format!("x/blobs/{digest}");
        assert_eq!(world.read(&name, 0, 0).await.unwrap(), content);
        let (start, length) = (size / 3, size / 2);
        let part = world
            .read(&name, i64::try_from(start).unwrap(), i64::try_from(length).unwrap())
            .await;
        let end = (start + length).min(size);
        let expected = if length == 0 {
            &content[start..]
        } else {
            &content[start..end]
        };
        assert_eq!(part.unwrap(), expected);
        let whole = i64::try_from(size).unwrap();
        assert_eq!(
            world.read(&name, whole, 0).await.unwrap(),
            b"",
            "at the end there is nothing"
        );
        assert_eq!(code(world.read(&name, whole + 1, 0).await), Code::OutOfRange);
        assert_eq!(
            world.read(&name, 0, i64::MAX).await.unwrap(),
            content,
            "a huge limit is no limit"
        );
    }
}

#[tokio::test]
async fn wrong_bytes_are_never_stored() {
    let world = World::start(&[]).await;
    for size in [1000_usize, 300_000] {
        let content = noise(size as u64, size);
        let digest = Function::Sha256.digest(&content);
        let name = format!("uploads/u/blobs/{digest}");
        let mut wrong = content.clone();
        wrong[size / 2] ^= 1;
        assert_eq!(code(world.write(&name, &wrong, 50_000).await), Code::InvalidArgument);
        assert_eq!(
            code(world.write(&name, &content[1..], 50_000).await),
            Code::InvalidArgument,
            "too short"
        );
        let long = [&content[..], b"x"].concat();
        assert_eq!(
            code(world.write(&name, &long, 50_000).await),
            Code::InvalidArgument,
            "too long"
        );
        assert_eq!(world.missing(&[digest]).await, [digest]);
        let status = world
            .bytes()
            .query_write_status(QueryWriteStatusRequest {
                resource_name: name.clone(),
            })
            .await;
        assert_eq!(code(status), Code::NotFound, "nothing to resume either");
        assert!(world.write(&name, &content, 50_000).await.is_ok());
    }
}

/// The first message is answered although the client would go on sending for ever.
#[tokio::test]
async fn what_is_there_is_not_sent_again() {
    let world = World::start(&[]).await;
    let content = noise(1, 1_000_000);
    let digest = world.store(&content[..900_000]).await;
    let (send, mut receive) = mpsc::channel::<WriteRequest>(1);
    send.send(messages(&format!("uploads/v/blobs/{digest}"), &content[..10], 10, 0, false).remove(0))
        .await
        .unwrap();
    let stream = futures::stream::poll_fn(move |cx| receive.poll_recv(cx));
    let answer = tokio::time::timeout(DEADLINE, world.bytes().write(stream))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(answer.into_inner().committed_size, 900_000);
    drop(send);
}

#[tokio::test]
async fn an_upload_survives_its_connection() {
    let world = World::start(&[]).await;
    let content = noise(2, 3_000_000);
    let digest = Function::Sha256.digest(&content);
    let name = format!("proj/uploads/u-1/blobs/{digest}");
    let query = || {
        let request = QueryWriteStatusRequest {
            resource_name: name.clone(),
        };
        async {
            world
                .bytes()
                .query_write_status(request)
                .await
                .map(tonic::Response::into_inner)
        }
    };
    assert_eq!(code(query().await), Code::NotFound);
    let channel = connect(&world.node).await;
    let (send, mut receive) = mpsc::channel::<WriteRequest>(8);
    for message in messages(&name, &content[..1_000_000], 250_000, 0, false) {
        send.send(message).await.unwrap();
    }
    let stream = futures::stream::poll_fn(move |cx| receive.poll_recv(cx));
    let mut client = russet_reapi::client::ByteStreamClient::new(channel);
    let upload = tokio::spawn(async move { client.write(stream).await });
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while query().await.map_or(0, |status| status.committed_size) < 1_000_000 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the upload does not get anywhere"
        );
    }
    upload.abort();
    let _ = upload.await;
    drop(send);
    let status = query().await.unwrap();
    assert_eq!((status.committed_size, status.complete), (1_000_000, false));
    let wrong = world
        .bytes()
        .write(tokio_stream(messages(&name, &content[5..], 1 << 20, 5, true)))
        .await;
    assert_eq!(code(wrong), Code::InvalidArgument, "not where it ended");
    let rest = messages(&name, &content[1_000_000..], 1 << 20, 1_000_000, true);
    let answer = world.bytes().write(tokio_stream(rest)).await.unwrap().into_inner();
    assert_eq!(answer.committed_size, 3_000_000);
    let status = query().await.unwrap();
    assert_eq!((status.committed_size, status.complete), (3_000_000, true));
    assert_eq!(
        world.read(&format!("proj/blobs/{digest}"), 0, 0).await.unwrap(),
        content
    );
}

#[tokio::test]
async fn an_upload_may_begin_again() {
    let world = World::start(&[]).await;
    let content = noise(3, 400_000);
    let digest = Function::Sha256.digest(&content);
    let name = format!("uploads/u/blobs/{digest}");
    let unfinished = messages(&name, &content[..200_000], 100_000, 0, false);
    assert_eq!(
        code(world.bytes().write(tokio_stream(unfinished)).await),
        Code::InvalidArgument
    );
    assert_eq!(world.write(&name, &content, 100_000).await.unwrap(), 400_000);
}

/// A client that goes silent in the middle is told so, and what it sent is kept for its return.
#[tokio::test]
async fn a_stalled_upload_is_ended() {
    let world = World::start(&["--http-stall-timeout-ms", "1000"]).await;
    let content = noise(4, 400_000);
    let digest = Function::Sha256.digest(&content);
    let name = format!("uploads/u/blobs/{digest}");
    let (send, mut receive) = mpsc::channel::<WriteRequest>(1);
    send.send(messages(&name, &content[..1000], 1000, 0, false).remove(0))
        .await
        .unwrap();
    let stream = futures::stream::poll_fn(move |cx| receive.poll_recv(cx));
    let answer = tokio::time::timeout(DEADLINE, world.bytes().write(stream))
        .await
        .unwrap();
    assert_eq!(code(answer), Code::DeadlineExceeded);
    let rest = messages(&name, &content[1000..], 1 << 20, 1000, true);
    assert!(world.bytes().write(tokio_stream(rest)).await.is_ok());
    drop(send);
}

#[tokio::test]
async fn a_byte_flipped_on_disk_is_a_miss() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let content = noise(5, 500_000);
    let world = World::with(Node::start_in(&data, &Options { args: &[], env: &[] })).await;
    let digest = world.store(&content).await;
    let World { mut node, channel } = world;
    drop(channel);
    // Waited for elsewhere: the connection has to be looked after until it is closed.
    tokio::task::spawn_blocking(move || {
        node.signal("TERM");
        node.wait()
    })
    .await
    .unwrap();
    for file in std::fs::read_dir(data.join("store/segments")).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes
            .windows(32)
            .position(|window| window == &content[250_000..250_032])
        {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let world = World::with(Node::start_in(&data, &Options { args: &[], env: &[] })).await;
    assert_eq!(code(world.read(&format!("blobs/{digest}"), 0, 0).await), Code::NotFound);
    assert_eq!(world.missing(&[digest]).await, [digest]);
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
    let world = World::start(&[]).await;
    let content = noise(6, 3_000_000);
    let digest = world.store(&content).await;
    let name = format!("blobs/{digest}");
    assert!(world.read(&name, 0, 0).await.unwrap() == content);
    let moved = || {
        let text = String::from_utf8(world.node.send("GET", "/metrics", b"").body).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("kura_store_moved_reads_total_total "));
        line.unwrap().parse::<f64>().unwrap()
    };
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
    let world = World::start(&[]).await;
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
