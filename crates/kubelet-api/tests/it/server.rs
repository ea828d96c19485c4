//! The server on its own, with a caller that is nothing but TLS and frames: what kubectl never does, or not on request.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{SinkExt as _, StreamExt as _};
use russet_kubelet_api::spdy::{Decoder, Encoder, Frame, Headers, rst};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::alone::{Alone, Caller, KNOWING, LOOKING, authority, greet, half, handshake, head, syn};
use crate::commands::runs;
use crate::stage::{PATIENCE, eventually, read};

static ZEROS: [u8; 32 * 1024] = [0; 32 * 1024];

fn data(id: u32, bytes: &'static [u8], fin: bool) -> Frame {
    let bytes = Bytes::from_static(bytes);
    Frame::Data { id, fin, bytes }
}

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

type WebSocket = WebSocketStream<TlsStream<TcpStream>>;

/// A command that is run over channels.
async fn websocket(alone: &Alone, protocol: &str, query: &str) -> WebSocket {
    let url = format!("wss://{}/exec/default/p/c?{query}", alone.address);
    let mut request = url.into_client_request().unwrap();
    let protocol = protocol.parse().unwrap();
    request.headers_mut().insert("Sec-WebSocket-Protocol", protocol);
    let connected = tokio_tungstenite::client_async(request, alone.connect().await).await;
    connected.unwrap().0
}

/// What comes on each channel until the end.
async fn channels(socket: &mut WebSocket) -> BTreeMap<u8, Vec<u8>> {
    let mut channels = BTreeMap::<u8, Vec<u8>>::new();
    while let Some(message) = timeout(PATIENCE, socket.next()).await.expect("a message or the end") {
        match message.unwrap() {
            Message::Binary(bytes) => channels.entry(bytes[0]).or_default().extend_from_slice(&bytes[1..]),
            Message::Close(_) => break,
            _ => {}
        }
    }
    channels
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_the_next_caller() {
    let alone = Alone::start().await;
    let first = alone.certificate().await;
    assert_eq!(alone.certificate().await, first);
    alone.renew();
    assert_ne!(alone.certificate().await, first);
}

#[tokio::test]
async fn a_certificate_of_another_authority_opens_nothing() {
    let alone = Alone::start().await;
    let stranger = alone.connect_with(&authority()).await;
    // In TLS 1.3 the client learns of the refusal only when it reads.
    if let Ok(mut socket) = stranger {
        let _ = socket.write_all(b"GET /pods HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap_err();
        assert!(answer.is_empty());
    }
}

/// Rights were read from the path as it was sent and the route from the path decoded, so whoever was allowed to look at the node could
/// spell `exec` in another way and run commands on it.
#[tokio::test]
async fn no_spelling_of_a_path_turns_looking_into_running() {
    let alone = Alone::with_reviewer(|_| {}, LOOKING).await;
    for (path, status) in [
        ("/exec/default/p/c?command=sh&output=1", 403),
        ("/%65xec/default/p/c?command=sh&output=1", 403),
        ("/ex%65%63/default/%70/c?command=sh&output=1", 403),
        ("/%61ttach/default/p/c?output=1", 403),
        ("/%70ortForward/default/p?port=1", 403),
        // Also where the method is wrong, and where nothing is.
        ("/%72un/default/p/c?cmd=true", 403),
        ("/%65xec/default", 403),
        // Decoded once: these lead nowhere.
        ("/%2565xec/default/p/c?command=sh&output=1", 404),
        ("/exec%2Fdefault%2Fp%2Fc?command=sh&output=1", 404),
        ("/p%6fds", 200),
        ("/containerLogs/default/p/%63", 200),
    ] {
        let mut socket = alone.connect().await;
        assert_eq!(handshake(&mut socket, path).await, status, "{path}");
    }
}

/// Every connection took a seat before anybody knew whose it was: with as many idle ones as there are seats, from anywhere, the
/// apiserver had to wait outside.
#[tokio::test]
async fn idle_strangers_do_not_keep_the_apiserver_out() {
    let alone = Alone::with(|limits| {
        limits.connections = 4;
        limits.strangers = 2;
    })
    .await;
    let mut known = alone.connect().await;
    greet(&mut known).await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(TcpStream::connect(alone.address).await.unwrap());
    }
    // Sooner than any of them would have to go for taking too long.
    let welcome = async { greet(&mut alone.connect().await).await };
    let came = timeout(Duration::from_secs(8), welcome).await;
    came.expect("the apiserver gets in");
    // The first has made room. A reset is as good an end as any.
    let left = timeout(PATIENCE, idle[0].read(&mut [0; 1])).await.expect("an end");
    assert_eq!(left.unwrap_or(0), 0);
    greet(&mut known).await;
}

/// Whoever had a token that was good for nothing kept a seat with it for ever, and every Pod has one.
#[tokio::test]
async fn a_caller_without_rights_keeps_no_seat() {
    let alone = Alone::with_reviewer(
        |limits| {
            limits.connections = 4;
            limits.strangers = 2;
        },
        KNOWING,
    )
    .await;
    for _ in 0..20 {
        let mut socket = alone.connect_as_nobody().await;
        let request = "GET /pods HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer powerless\r\n\r\n";
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        // To the end, which comes without our asking for it.
        let read = timeout(Duration::from_secs(8), socket.read_to_string(&mut answer));
        read.await.expect("an end").unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
    greet(&mut alone.connect().await).await;
}

/// A command that leaves its pid in `file` and stays.
fn sleeper(file: &Path) -> String {
    let file = file.display();
    let script = format!("echo%20$$%20%3E%20{file}.new%3B%20mv%20{file}.new%20{file}%3B%20exec%20sleep%201000");
    format!("output=1&command=sh&command=-c&command={script}")
}

#[tokio::test]
async fn a_stop_ends_sessions_and_the_commands_they_run() {
    let alone = Alone::with(|limits| limits.drain = Duration::from_millis(50)).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut caller = alone.exec("v4.channel.k8s.io", &sleeper(&file)).await;
    caller.open(1, "error").await;
    caller.open(3, "stdout").await;
    eventually("the command runs", async || file.exists()).await;
    let pid = read(&file).trim().to_owned();
    alone.stop.cancel();
    timeout(PATIENCE, alone.running).await.unwrap().unwrap();
    while caller.next().await.is_some() {}
    eventually("the command ends", async || !runs(&pid)).await;
}

/// Sessions ended without a last word when the agent stopped, and a client that hears none takes the end of the connection for exit
/// code 0: a build that an upgrade of the agent had cut off was reported as done.
#[tokio::test]
async fn a_command_that_a_stop_cuts_off_has_failed() {
    let alone = Alone::with(|limits| limits.drain = Duration::from_secs(6)).await;
    let query = "output=1&command=sleep&command=1000";
    let mut caller = alone.exec("v4.channel.k8s.io", query).await;
    caller.open(1, "error").await;
    caller.open(3, "stdout").await;
    let mut socket = websocket(&alone, "v4.channel.k8s.io", query).await;

    alone.stop.cancel();
    let over_spdy = caller.rest(1).await;
    let over_websocket = channels(&mut socket).await;
    for status in [over_spdy.as_bytes(), &over_websocket[&3]] {
        let status: serde_json::Value = serde_json::from_slice(status).unwrap();
        assert_eq!(status["status"], "Failure");
        let words = "Internal error occurred: error executing command in container: the agent of this node stops";
        assert_eq!(status["message"], words);
    }
    drop((caller, socket));
    timeout(PATIENCE, alone.running).await.unwrap().unwrap();
}

/// Input that nobody reads stops the reader, and then the end of the connection waits behind it unread: only a question that gets
/// no answer tells that the caller is gone.
#[tokio::test]
async fn a_caller_that_leaves_while_its_input_is_stuck_is_noticed() {
    let alone = Alone::with(|limits| limits.ping = Duration::from_millis(100)).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let query = format!("input=1&{}", sleeper(&file));
    let mut caller = alone.exec("v4.channel.k8s.io", &query).await;
    caller.open(1, "error").await;
    caller.open(3, "stdin").await;
    caller.open(5, "stdout").await;
    eventually("the command runs", async || file.exists()).await;
    // More than queue and pipe hold, less than the kernel holds besides.
    for _ in 0..30 {
        let stuck = caller.send(data(3, &ZEROS, false));
        timeout(PATIENCE, stuck).await.unwrap();
    }
    let pid = read(&file).trim().to_owned();
    assert!(runs(&pid));
    drop(caller);
    eventually("the command ends", async || !runs(&pid)).await;
}

#[tokio::test]
async fn a_caller_that_does_not_open_its_streams_is_sent_away() {
    let alone = Alone::with(|limits| limits.stream_creation = Duration::from_millis(50)).await;
    let mut caller = alone.exec("v4.channel.k8s.io", "output=1&command=true").await;
    caller.open(1, "error").await;
    assert_eq!(caller.next().await, Some(Frame::GoAway { last: 1, status: 0 }));
    assert_eq!(caller.next().await, None);
}

#[tokio::test]
async fn a_session_in_which_nothing_moves_ends_and_says_so() {
    let alone = Alone::with(|limits| {
        limits.stream_idle = Duration::from_secs(1);
        limits.ping = Duration::from_millis(100);
    })
    .await;
    let query = "output=1&command=sleep&command=1000";
    let mut caller = alone.exec("v4.channel.k8s.io", query).await;
    caller.open(1, "error").await;
    caller.open(3, "stdout").await;
    let status = caller.rest(1).await;
    assert!(status.contains("nothing was sent or received for 1 s"), "{status}");
}

#[tokio::test]
async fn a_request_that_never_ends_is_ended() {
    let alone = Alone::with(|limits| limits.request_life = Duration::from_millis(300)).await;
    let mut socket = alone.connect().await;
    let request = "GET /containerLogs/default/p/c?follow=true HTTP/1.1\r\nHost: x\r\n\r\n";
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Cut off in the middle, so TLS may complain about the missing goodbye.
    let end = timeout(PATIENCE, socket.read_to_end(&mut answer)).await;
    let _ = end.expect("the server gives up");
}

#[tokio::test]
async fn callers_of_the_first_version_get_words_instead_of_objects() {
    let alone = Alone::start().await;
    let query = "output=1&command=sh&command=-c&command=exit%203";
    let mut caller = alone.exec("channel.k8s.io", query).await;
    caller.open(1, "error").await;
    caller.open(3, "stdout").await;
    let words = caller.rest(1).await;
    assert_eq!(words, "command terminated with non-zero exit code: exit status 3");
}

/// Bytes that follow the request at once sit in the HTTP reader when the session takes over.
#[tokio::test]
async fn frames_that_come_with_the_request_are_not_lost() {
    let alone = Alone::start().await;
    let mut socket = alone.connect().await;
    let mut bytes = BytesMut::from(
        &b"POST /exec/default/p/c?output=1&input=1&command=cat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
           X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n"[..],
    );
    let mut encoder = Encoder::new();
    for (id, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
        let headers = Headers::new([("streamtype", kind)]);
        encoder.encode(&syn(id, headers), &mut bytes).unwrap();
    }
    encoder.encode(&data(3, b"early", true), &mut bytes).unwrap();
    socket.write_all(&bytes).await.unwrap();
    let mut input = BytesMut::new();
    head(&mut socket, &mut input).await;
    let decoder = Decoder::new();
    let mut caller = Caller {
        socket,
        input,
        encoder,
        decoder,
    };
    assert_eq!(caller.rest(5).await, "early");
}

#[tokio::test]
async fn half_a_pair_that_stays_alone_is_reset_and_whole_ones_go_on() {
    let alone = Alone::with(|limits| limits.stream_creation = Duration::from_secs(1)).await;
    let (target, port) = listen().await;
    let mut caller = alone.upgrade("portForward/default/p", "portforward.k8s.io").await;
    // Either half may come first; both are sent at once, so that no deadline can fall between them.
    let mut bytes = BytesMut::new();
    for (id, kind) in [(1, "data"), (3, "error")] {
        let frame = syn(id, half(kind, port, "0"));
        caller.encoder.encode(&frame, &mut bytes).unwrap();
    }
    caller.socket.write_all(&bytes).await.unwrap();
    for id in [1, 3] {
        caller.replied(id).await;
    }
    caller.open_with(5, half("error", port, "1")).await;
    let (mut socket, _) = timeout(PATIENCE, target.accept()).await.unwrap().unwrap();
    let status = rst::CANCEL;
    assert_eq!(caller.next().await, Some(Frame::RstStream { id: 5, status }));
    socket.write_all(b"still here").await.unwrap();
    drop(socket);
    let mut said = Vec::new();
    while let Some(Frame::Data {
        id: 1,
        fin: false,
        bytes,
    }) = caller.next().await
    {
        said.extend_from_slice(&bytes);
    }
    assert_eq!(said, b"still here");
}

#[tokio::test]
async fn more_connections_than_allowed_are_refused_one_by_one() {
    let alone = Alone::with(|limits| limits.forward_streams = 4).await;
    let (target, port) = listen().await;
    let mut caller = alone.upgrade("portForward/default/p", "portforward.k8s.io").await;
    let mut held = Vec::new();
    for (error, request) in [(1, "0"), (5, "1")] {
        caller.open_with(error, half("error", port, request)).await;
        caller.send(data(error, &[], true)).await;
        caller.open_with(error + 2, half("data", port, request)).await;
        held.push(timeout(PATIENCE, target.accept()).await.unwrap().unwrap());
        // Ended by the caller, but the target keeps its side open.
        caller.send(data(error + 2, &[], true)).await;
    }
    caller.open_pair(9, port, "2").await;
    let status = rst::REFUSED_STREAM;
    assert_eq!(caller.next().await, Some(Frame::RstStream { id: 9, status }));
    assert_eq!(caller.next().await, Some(Frame::RstStream { id: 11, status }));
}

/// A forwarded connection that was reset went on for as long as its target did not read, and with it the memory it held: the session had
/// none for anybody else.
#[tokio::test]
async fn a_forward_that_nobody_reads_is_ended_and_gives_its_memory_to_others() {
    const PIECE: usize = ZEROS.len();
    let alone = Alone::with(|limits| {
        limits.forward_stall = Duration::from_millis(200);
        limits.session_memory = 2 * PIECE;
    })
    .await;
    let mut caller = alone.upgrade("portForward/default/p", "portforward.k8s.io").await;
    let data = |id, fin| data(id, &ZEROS, fin);
    let (deaf, port) = listen().await;
    rustix::net::sockopt::set_socket_recv_buffer_size(&deaf, 4096).unwrap();
    caller.open_pair(1, port, "0").await;
    let _held = timeout(PATIENCE, deaf.accept()).await.unwrap().unwrap();
    // More than the kernel holds for a target.
    for _ in 0..384 {
        timeout(PATIENCE, caller.send(data(3, false))).await.unwrap();
    }
    let (mut reset, mut ended) = (false, false);
    while !(reset && ended) {
        match caller.next().await {
            Some(Frame::RstStream { id: 3, .. }) => reset = true,
            Some(Frame::Data { id: 1, fin: true, .. }) => ended = true,
            other => panic!("{other:?}"),
        }
    }

    let (keen, port) = listen().await;
    let reading = tokio::spawn(async move {
        let (mut socket, _) = keen.accept().await.unwrap();
        let mut all = Vec::new();
        socket.read_to_end(&mut all).await.unwrap();
        all.len()
    });
    caller.open_pair(5, port, "1").await;
    for fin in [false, false, false, true] {
        timeout(PATIENCE, caller.send(data(7, fin))).await.unwrap();
    }
    assert_eq!(timeout(PATIENCE, reading).await.unwrap().unwrap(), 4 * PIECE);
}

/// What apiservers will speak to nodes that say so, from 1.36 on: a channel can be closed, and so input can end.
#[tokio::test]
async fn the_fifth_version_ends_input_by_closing_its_channel() {
    let alone = Alone::start().await;
    let mut socket = websocket(&alone, "v5.channel.k8s.io", "input=1&output=1&command=cat").await;
    for message in [b"\0all of it".as_slice(), b"\xff\0"] {
        socket.send(Message::binary(message)).await.unwrap();
    }
    let said = channels(&mut socket).await;
    assert_eq!(said[&1], b"all of it");
    assert_eq!(said[&3], br#"{"metadata":{},"status":"Success"}"#);
}
