//! Clients that do not mean well, or cannot write protobuf.

use super::{World, code, messages, noise, tokio_stream, wire};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use russet_reapi::client::tonic::Code;
use russet_reapi::proto::bytestream::ReadRequest;
use russet_reapi::proto::reapi;
use russet_reapi::{Function, pack};
use tokio::net::TcpStream;

type Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn raw(world: &World) -> Sender {
    let stream = TcpStream::connect(world.node.address).await.unwrap();
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

/// The status of a call whose body is exactly these bytes.
async fn send(sender: &mut Sender, world: &World, method: &str, body: Vec<u8>, headers: &[(&str, &str)]) -> String {
    let mut request = http::Request::post(format!("http://{}/{method}", world.node.address))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender
        .send_request(request.body(Full::new(body.into())).unwrap())
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    if let Some(status) = response.headers().get("grpc-status") {
        return status.to_str().unwrap().to_owned();
    }
    let collected = response.into_body().collect().await.unwrap();
    collected.trailers().unwrap()["grpc-status"]
        .to_str()
        .unwrap()
        .to_owned()
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(message);
    bytes
}

const FIND: &str = "build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs";
const WRITE: &str = "google.bytestream.ByteStream/Write";

#[tokio::test]
async fn bytes_that_are_no_messages_get_the_right_code() {
    let world = World::start(&[]).await;
    let mut sender = raw(&world).await;
    for (method, body, status) in [
        (FIND, vec![], "3"),
        (FIND, vec![0, 0, 0], "3"),
        (FIND, vec![0, 0, 0, 0, 9, 1], "3"),
        (FIND, framed(&[0xff; 20]), "3"),
        (FIND, [framed(&[]), framed(&[])].concat(), "3"),
        (FIND, vec![1, 0, 0, 0, 0], "12"),
        (FIND, vec![9, 0, 0, 0, 0], "3"),
        (FIND, vec![0, 0xff, 0xff, 0xff, 0xff], "8"),
        (WRITE, vec![], "3"),
        (WRITE, vec![0, 0, 0], "3"),
        (WRITE, framed(&[]), "3"),
        (WRITE, framed(&[0xff; 20]), "3"),
        (WRITE, vec![1, 0, 0, 0, 0], "12"),
        (WRITE, vec![0, 0xff, 0xff, 0xff, 0xff, 0x52, 0xff], "3"),
        (
            "build.bazel.remote.execution.v2.ContentAddressableStorage/SplitBlob",
            framed(&[]),
            "12",
        ),
        ("build.bazel.remote.execution.v2.Execution/Execute", framed(&[]), "12"),
        ("nobody.knows.This/Call", framed(&[]), "12"),
        (FIND, framed(&[]), "0"),
    ] {
        let got = send(&mut sender, &world, method, body.clone(), &[]).await;
        assert_eq!(got, status, "{method} {:?}", body.get(..12.min(body.len())));
    }
    let compressed = send(&mut sender, &world, FIND, framed(&[]), &[("grpc-encoding", "gzip")]).await;
    assert_eq!(compressed, "12");
    assert_eq!(
        send(&mut sender, &world, FIND, framed(&[]), &[("grpc-encoding", "identity")]).await,
        "0"
    );
}

#[tokio::test]
async fn wrong_names_and_numbers_get_the_right_code() {
    let world = World::start(&[]).await;
    let digest = world.store(b"content").await;
    let read = |name: String, offset: i64, limit: i64| ReadRequest {
        resource_name: name,
        read_offset: offset,
        read_limit: limit,
    };
    let blob = format!("blobs/{digest}");
    for (request, expected) in [
        (read(String::new(), 0, 0), Code::InvalidArgument),
        (read("blobs/xyz/7".to_owned(), 0, 0), Code::NotFound),
        (read(format!("blobs/{}/x", digest.hex()), 0, 0), Code::InvalidArgument),
        (
            read(format!("compressed-blobs/lzma/{digest}"), 0, 0),
            Code::InvalidArgument,
        ),
        (read(format!("blobs/sha512/{digest}"), 0, 0), Code::InvalidArgument),
        (read(blob.clone(), -1, 0), Code::OutOfRange),
        (read(blob.clone(), i64::MIN, i64::MAX), Code::OutOfRange),
        (read(blob.clone(), i64::MAX, i64::MAX), Code::OutOfRange),
        (read(blob.clone(), 0, -1), Code::InvalidArgument),
        (
            read(format!("compressed-blobs/zstd/{digest}"), 0, 1),
            Code::InvalidArgument,
        ),
        (read("a".repeat(5000), 0, 0), Code::InvalidArgument),
    ] {
        assert_eq!(code(world.bytes().read(request.clone()).await), expected, "{request:?}");
    }
    let absent = Function::Sha256.digest(b"absent");
    for name in [
        String::new(),
        format!("blobs/{absent}"),
        format!("uploads/u/blobs/{}/-1", absent.hex()),
        "uploads/u/blobs/xyz/1".to_owned(),
        format!("../x/uploads/u/blobs/{absent}"),
    ] {
        assert_eq!(
            code(world.write(&name, b"absent", 10).await),
            Code::InvalidArgument,
            "{name}"
        );
    }
    let good = format!("uploads/u/blobs/{absent}");
    let mut negative = messages(&good, b"absent", 10, 0, true);
    negative[0].write_offset = -1;
    assert_eq!(
        code(world.bytes().write(tokio_stream(negative)).await),
        Code::InvalidArgument
    );
    let mut gap = messages(&good, b"absent", 3, 0, true);
    gap[1].write_offset = 4;
    assert_eq!(
        code(world.bytes().write(tokio_stream(gap)).await),
        Code::InvalidArgument
    );
    let mut renamed = messages(&good, b"absent", 3, 0, true);
    renamed[1].resource_name = format!("uploads/other/blobs/{absent}");
    assert_eq!(
        code(world.bytes().write(tokio_stream(renamed)).await),
        Code::InvalidArgument
    );
    let huge = format!("uploads/u/blobs/{}/{}", absent.hex(), i64::MAX);
    assert_eq!(code(world.write(&huge, b"absent", 10).await), Code::ResourceExhausted);
    assert_eq!(world.missing(&[absent]).await, [absent]);
    for (hash, size) in [
        ("", 0),
        ("zz", 1),
        (&*absent.hex().to_uppercase(), 6),
        (&*absent.hex(), -5),
    ] {
        let request = reapi::FindMissingBlobsRequest {
            blob_digests: vec![reapi::Digest {
                hash: hash.to_owned(),
                size_bytes: size,
            }],
            ..Default::default()
        };
        assert_eq!(
            code(world.cas().find_missing_blobs(request).await),
            Code::InvalidArgument,
            "{hash} {size}"
        );
    }
    let sha1 = reapi::FindMissingBlobsRequest {
        blob_digests: vec![wire(&absent)],
        digest_function: 2,
        ..Default::default()
    };
    assert_eq!(code(world.cas().find_missing_blobs(sha1).await), Code::InvalidArgument);
}

#[tokio::test]
async fn bombs_and_broken_frames_store_nothing() {
    let world = World::start(&[]).await;
    let zeros = vec![0; 64 << 20];
    let digest = Function::Sha256.digest(&zeros[..1000]);
    let bomb = pack::deflate(&zeros, 3).unwrap();
    let name = |hash: &russet_reapi::Digest| format!("uploads/u/compressed-blobs/zstd/{hash}");
    assert_eq!(
        code(world.write(&name(&digest), &bomb, 4096).await),
        Code::InvalidArgument
    );
    let content = noise(1, 300_000);
    let wanted = Function::Sha256.digest(&content);
    let packed = pack::deflate(&content, 3).unwrap();
    for (what, bytes) in [
        ("cut", &packed[..packed.len() - 3]),
        ("plain", &content[..]),
        ("nothing", &[][..]),
    ] {
        assert_eq!(
            code(world.write(&name(&wanted), bytes, 50_000).await),
            Code::InvalidArgument,
            "{what}"
        );
    }
    let other = pack::deflate(&noise(2, 300_000), 3).unwrap();
    assert_eq!(
        code(world.write(&name(&wanted), &other, 50_000).await),
        Code::InvalidArgument
    );
    assert_eq!(world.missing(&[digest, wanted]).await, [digest, wanted]);
    assert!(world.write(&name(&wanted), &packed, 50_000).await.is_ok());
}

/// Thousands of streams that begin an upload and go away hold neither memory nor uploads.
#[tokio::test]
async fn thousands_of_abandoned_streams_do_no_harm() {
    let world = World::start(&["--memory-hard-limit-bytes", "134217728"]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..2000_u64 {
        let mut client = world.bytes();
        tasks.spawn(async move {
            let digest = russet_reapi::Digest {
                size: 10_000_000,
                ..Function::Sha256.digest(&number.to_le_bytes())
            };
            let first = messages(&format!("uploads/{number}/blobs/{digest}"), &[1; 1000], 1000, 0, false);
            let _ = client.write(tokio_stream(first)).await;
        });
        if number % 64 == 0 {
            while tasks.try_join_next().is_some() {}
        }
    }
    while tasks.join_next().await.is_some() {}
    let digest = world.store(b"still here").await;
    assert_eq!(
        world.read(&format!("blobs/{digest}"), 0, 0).await.unwrap(),
        b"still here"
    );
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.node.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").trim().parse().unwrap();
    assert!(kib < 400 << 10, "{kib} KiB resident");
}
