//! What is true of every call: it ends when its client stops waiting, it is counted while it lasts, and it is told of afterwards.

use super::{World, code, connect, noise};
use crate::node::{CLIENT_SECRET, DEADLINE, Node, Options, reports_usage, until, words};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use russet_conformance::reapi::target::pieces;
use russet_reapi::Function;
use russet_reapi::client::CapabilitiesClient;
use russet_reapi::client::tonic::{Code, Request};
use russet_reapi::proto::bytestream::{QueryWriteStatusRequest, ReadRequest, WriteRequest};
use russet_reapi::proto::reapi;
use std::convert::Infallible;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

const WRITE: &str = "google.bytestream.ByteStream/Write";
const WATCH: &str = "grpc.health.v1.Health/Watch";
const FIND: &str = "build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs";

/// The status of a call by a client that does not look at the clock itself, as the library's would.
async fn status(world: &World, method: &str, timeout: &str, body: BoxBody<Bytes, Infallible>) -> String {
    let stream = TcpStream::connect(world.node.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{}/{method}", world.node.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", timeout)
        .body(body)
        .unwrap();
    let answer = async {
        let response = sender.send_request(request).await.unwrap();
        if let Some(status) = response.headers().get("grpc-status") {
            return status.clone();
        }
        let collected = response.into_body().collect().await.unwrap();
        collected.trailers().unwrap()["grpc-status"].clone()
    };
    let answer = tokio::time::timeout(DEADLINE, answer).await.unwrap();
    answer.to_str().unwrap().to_owned()
}

fn framed(message: &impl prost::Message) -> Bytes {
    let message = message.encode_to_vec();
    let mut bytes = vec![0];
    bytes.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(&message);
    bytes.into()
}

fn whole(bytes: Bytes) -> BoxBody<Bytes, Infallible> {
    Full::new(bytes).boxed()
}

/// Nobody looked at `grpc-timeout`: a call lasted until its client was gone or the stall timeout, a minute later.
#[tokio::test]
async fn a_call_ends_when_its_client_stops_waiting() {
    let world = World::start(&[]);
    let content = noise(1, 400_000);
    let digest = Function::Sha256.digest(&content);
    let name = format!("uploads/u/blobs/{digest}");
    let first = framed(&pieces(&name, &content.slice(..1000), 0, false)[0]);
    // Sends one message and then nothing, for ever.
    let silent = futures::StreamExt::chain(
        futures::stream::iter([Ok::<_, Infallible>(Frame::data(first))]),
        futures::stream::pending(),
    );
    let silent = StreamBody::new(silent).boxed();
    assert_eq!(status(&world, WRITE, "300m", silent).await, "4");
    let query = QueryWriteStatusRequest {
        resource_name: name.clone(),
    };
    let kept = world.bytes().query_write_status(query).await.unwrap().into_inner();
    let resumable = (kept.committed_size, kept.complete);
    assert_eq!(resumable, (1000, false), "what was sent can be resumed");
    // An answer that has begun ends too.
    let watch = framed(&russet_reapi::proto::health::HealthCheckRequest::default());
    assert_eq!(status(&world, WATCH, "200000u", whole(watch)).await, "4");
    let find = framed(&reapi::FindMissingBlobsRequest::default());
    assert_eq!(status(&world, FIND, "1H", whole(find.clone())).await, "0");
    assert_eq!(status(&world, FIND, "0n", whole(find.clone())).await, "4");
    for nonsense in ["1", "S", "1s", "-1S", "123456789S", "1 S"] {
        let answer = status(&world, FIND, nonsense, whole(find.clone())).await;
        assert_eq!(answer, "3", "{nonsense}");
    }
    let inflight = || world.node.ready("grpc_inflight_requests");
    until("the calls are over", || (inflight() == 0).then_some(()));
}

/// `/ready` said 0 whatever was under way, and counted calls as HTTP requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_are_told_apart_and_waited_for() {
    let mut world = World::start(&[]);
    let content = noise(2, 400_000);
    let digest = Function::Sha256.digest(&content);
    let name = format!("uploads/u/blobs/{digest}");
    let mut pieces = pieces(&name, &content, 0, true);
    let (send, mut receive) = mpsc::channel::<WriteRequest>(8);
    send.send(pieces.remove(0)).await.unwrap();
    let mut bytes = world.bytes();
    let stream = futures::stream::poll_fn(move |cx| receive.poll_recv(cx));
    let writing = tokio::spawn(async move { bytes.write(stream).await });
    let node = &world.node;
    let counts = || {
        (
            node.ready("grpc_inflight_requests"),
            node.ready("http_inflight_requests"),
        )
    };
    tokio::task::block_in_place(|| {
        until("the call is counted", || (counts() == (1, 0)).then_some(()));
        let rollout = node.send("GET", "/status/rollout", b"").json().unwrap();
        assert_eq!(rollout["grpc_inflight_requests"], 1);
        node.drain("TERM");
        assert_eq!(counts(), (1, 0), "a call that has begun goes on");
    });
    for piece in pieces {
        send.send(piece).await.unwrap();
    }
    let answer = tokio::time::timeout(DEADLINE, writing).await.unwrap().unwrap();
    assert_eq!(answer.unwrap().into_inner().committed_size, 400_000);
    tokio::task::spawn_blocking(move || world.node.wait()).await.unwrap();
}

#[tokio::test]
async fn usage_says_how_clients_spoke() {
    let dir = tempfile::tempdir().unwrap();
    let plane = crate::sink::Sink::start(|_| 202);
    let flags = format!("{} --usage-flush-interval-ms 20", reports_usage(&plane.url()));
    let options = Options {
        args: &words(&flags),
        env: &[CLIENT_SECRET],
    };
    let world = World::with(Node::start_in(dir.path(), &options));
    let content = noise(3, 300_000);
    let digest = world.store(&content).await;
    assert!(world.read(&format!("blobs/{digest}"), 0, 0).await.unwrap() == content);
    let over_http = world.node.send("GET", &format!("/cas/{}", digest.hex()), b"");
    assert!(over_http.body == content);
    let expected = ["download grpc 300000", "download http 300000", "upload grpc 300000"];
    until("the window is flushed", || {
        let text = std::fs::read_to_string(dir.path().join("usage-window.jsonl")).ok()?;
        let events = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let ours = events.filter(|event| event["artifact_kind"] == "reapi");
        let text_of = |event: &serde_json::Value, name: &str| event[name].as_str().unwrap().to_owned();
        let told = ours.map(|event| {
            let (operation, protocol) = (text_of(&event, "operation"), text_of(&event, "protocol"));
            format!("{operation} {protocol} {}", event["bytes"])
        });
        let mut told: Vec<_> = told.collect();
        told.sort();
        (told == expected).then_some(())
    });
}

/// Takes the first message and goes away; its length.
async fn read_a_little(world: &World, name: &str) -> u64 {
    let request = ReadRequest {
        resource_name: name.to_owned(),
        ..Default::default()
    };
    let mut cut = world.bytes().read(request).await.unwrap().into_inner();
    cut.message().await.unwrap().unwrap().data.len() as u64
}

/// A hit counted the bytes that were asked for, however few of them left, and of compressed ones those nobody sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_count_when_they_are_sent() {
    let world = World::start(&[]);
    let sent = || {
        let line = "kura_tool_bytes_total{tool=\"reapi\",project=\"default\",direction=\"sent\"}";
        world.node.counter(line)
    };
    // Far more than windows and buffers of both sides hold.
    let content = noise(4, 64 << 20);
    let digest = world.store(&content).await;
    let name = format!("blobs/{digest}");
    let first = read_a_little(&world, &name).await;
    let counted = tokio::task::block_in_place(|| until("the reader is gone", || Some(sent()).filter(|sent| *sent > 0)));
    assert!((first..60 << 20).contains(&counted), "{counted}");
    let zeros = vec![0; 3_000_000];
    let digest = world.store(&zeros).await;
    let before = sent();
    let compressed = world.read(&format!("compressed-blobs/zstd/{digest}"), 0, 0).await;
    assert_eq!(sent() - before, compressed.unwrap().len() as u64);
    let before = sent();
    let part = world.read(&format!("blobs/{digest}"), 10, 500).await;
    assert_eq!(part.unwrap().len(), 500);
    assert_eq!(sent() - before, 500);
}

/// A call whose client went away was counted as a success.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_cancelled_is_no_success() {
    let world = World::start(&[]);
    let content = noise(5, 64 << 20);
    let digest = world.store(&content).await;
    read_a_little(&world, &format!("blobs/{digest}")).await;
    let count = |code: u8| {
        let line = format!("kura_grpc_requests_total_total{{method=\"ByteStream.Read\",code=\"{code}\"}}");
        world.node.counter(&line)
    };
    tokio::task::block_in_place(|| until("it is counted", || (count(1) == 1).then_some(())));
    assert_eq!(count(0), 0);
}

#[tokio::test]
async fn a_draining_node_takes_no_new_calls() {
    let world = World::start(&[]);
    let mut watch = world
        .health()
        .watch(russet_reapi::proto::health::HealthCheckRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    world.node.signal("USR1");
    assert_eq!(watch.message().await.unwrap().unwrap().status, 2);
    let messages = pieces("uploads/u/blobs/aa/1", &Bytes::from_static(b"x"), 0, true);
    let answer = connect(&world.node).write_pieces(messages).await;
    assert_eq!(code(answer), Code::Unavailable);
}

#[tokio::test]
async fn capabilities_say_what_the_server_does() {
    let world = World::start(&[]);
    let ask = async |request: Request<reapi::GetCapabilitiesRequest>| {
        let mut client = CapabilitiesClient::new(world.channel.clone());
        let answer = client.get_capabilities(request).await.unwrap();
        answer.into_inner().cache_capabilities.unwrap()
    };
    let cache = ask(Request::new(reapi::GetCapabilitiesRequest::default())).await;
    assert_eq!(cache.digest_functions, [1, 9]);
    assert_eq!(cache.supported_compressors, [1]);
    assert_eq!(cache.supported_batch_update_compressors, [1]);
    assert!(cache.action_cache_update_capabilities.unwrap().update_enabled);
    assert!(!cache.split_blob_support && !cache.splice_blob_support);
    assert_eq!(cache.max_cas_blob_size_bytes, 2 << 30, "half of the capacity");
    let mut request = Request::new(reapi::GetCapabilitiesRequest::default());
    let fields = request.metadata_mut();
    fields.insert("x-tuist-account-handle", "default".parse().unwrap());
    assert_eq!(ask(request).await.max_batch_total_size_bytes, 32 << 20);
}
