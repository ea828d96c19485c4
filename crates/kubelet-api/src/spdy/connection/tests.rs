//! The server's side against a client that is nothing but frames.

use tokio::io::{AsyncWriteExt as _, DuplexStream};

use super::super::frame::Encoder;
use super::*;

const RULES: Rules = Rules {
    streams: 4,
    memory: 1024 * 1024,
    stall: None,
    ping: Duration::from_hours(1),
};

/// Long enough for a busy machine; nothing waits for it when all is well.
const PATIENCE: Duration = Duration::from_mins(1);

static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

fn data(id: u32, bytes: &'static [u8], fin: bool) -> Frame {
    let bytes = Bytes::from_static(bytes);
    Frame::Data { id, fin, bytes }
}

fn syn(id: u32, headers: Headers) -> Frame {
    let fin = false;
    Frame::SynStream { id, fin, headers }
}

struct Client {
    socket: DuplexStream,
    encoder: Encoder,
    decoder: Decoder,
    input: BytesMut,
}

impl Client {
    fn connect(rules: Rules) -> (Self, Connection) {
        let (socket, server) = tokio::io::duplex(64 * 1024);
        let admit = |headers: &Headers| headers.get("streamtype") != Some("unwanted");
        let client = Self {
            socket,
            encoder: Encoder::new(),
            decoder: Decoder::new(),
            input: BytesMut::new(),
        };
        (client, Connection::start(server, rules, admit))
    }

    fn bytes(&mut self, frame: &Frame) -> BytesMut {
        let mut bytes = BytesMut::new();
        self.encoder.encode(frame, &mut bytes).unwrap();
        bytes
    }

    async fn send(&mut self, frame: Frame) {
        let bytes = self.bytes(&frame);
        timeout(PATIENCE, self.socket.write_all(&bytes)).await.unwrap().unwrap();
    }

    async fn open(&mut self, id: u32, kind: &str) {
        self.send(syn(id, Headers::new([("streamtype", kind.to_owned())])))
            .await;
    }

    async fn data(&mut self, id: u32, bytes: &'static [u8], fin: bool) {
        self.send(data(id, bytes, fin)).await;
    }

    /// None when the server has closed.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.input).unwrap() {
                return Some(frame);
            }
            // Room for all there is: what is read in two goes comes as two pieces.
            self.input.reserve(READ_BUFFER);
            let read = self.socket.read_buf(&mut self.input);
            if timeout(PATIENCE, read)
                .await
                .expect("the server says something")
                .unwrap()
                == 0
            {
                return None;
            }
        }
    }

    async fn opened(&mut self, connection: &mut Connection, id: u32) -> Incoming {
        self.open(id, "data").await;
        let reply = self.next().await;
        assert!(
            matches!(reply, Some(Frame::SynReply { id: replied, .. }) if replied == id),
            "{reply:?}"
        );
        timeout(PATIENCE, connection.incoming.recv()).await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn a_stream_is_accepted_before_its_first_bytes_and_either_side_may_end_first() {
    let (mut client, mut connection) = Client::connect(RULES);
    client.open(1, "stdin").await;
    let mut stream = connection.incoming.recv().await.unwrap();
    stream.writer.write_all(b"hello").await.unwrap();
    assert!(matches!(client.next().await, Some(Frame::SynReply { id: 1, .. })));
    assert_eq!(client.next().await, Some(data(1, b"hello", false)));

    client.data(1, b"all", true).await;
    let mut text = String::new();
    stream.reader.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "all");
    // The peer has said everything; we have not.
    stream.writer.write_all(b"more").await.unwrap();
    stream.writer.shutdown().await.unwrap();
    assert_eq!(client.next().await, Some(data(1, b"more", false)));
    assert_eq!(client.next().await, Some(data(1, &[], true)));
}

#[tokio::test]
async fn pings_of_the_peer_are_echoed_and_ours_are_even() {
    let ping = Duration::from_millis(5);
    let (mut client, _connection) = Client::connect(Rules { ping, ..RULES });
    assert_eq!(client.next().await, Some(Frame::Ping { id: 2 }));
    client.send(Frame::Ping { id: 2 }).await;
    client.send(Frame::Ping { id: 7 }).await;
    while client.next().await != Some(Frame::Ping { id: 7 }) {}
}

#[tokio::test]
async fn unwanted_and_surplus_streams_are_refused_and_the_others_go_on() {
    let (mut client, mut connection) = Client::connect(RULES);
    client.open(1, "unwanted").await;
    let refused = |id| {
        Some(Frame::RstStream {
            id,
            status: rst::REFUSED_STREAM,
        })
    };
    assert_eq!(client.next().await, refused(1));
    let mut held = Vec::new();
    for id in [3, 5, 7, 9] {
        held.push(client.opened(&mut connection, id).await);
    }
    client.open(11, "data").await;
    assert_eq!(client.next().await, refused(11));
    // A user that lost interest makes room.
    held.pop();
    client.opened(&mut connection, 13).await;
}

#[tokio::test]
async fn bytes_for_a_stream_that_never_was_are_answered_with_a_reset() {
    let (mut client, mut connection) = Client::connect(RULES);
    client.data(5, b"x", false).await;
    let status = rst::INVALID_STREAM;
    assert_eq!(client.next().await, Some(Frame::RstStream { id: 5, status }));
    client.opened(&mut connection, 7).await;
}

#[tokio::test]
async fn a_reset_of_the_peer_is_an_error_on_both_ends() {
    let (mut client, mut connection) = Client::connect(RULES);
    let mut stream = client.opened(&mut connection, 1).await;
    client.data(1, b"half", false).await;
    client
        .send(Frame::RstStream {
            id: 1,
            status: rst::CANCEL,
        })
        .await;
    let mut text = String::new();
    let error = stream.reader.read_to_string(&mut text).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let found = stream.writer.write(b"x").await.unwrap_err().kind();
    assert_eq!(found, io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn a_peer_that_goes_is_noticed_and_its_input_does_not_look_complete() {
    let (mut client, mut connection) = Client::connect(RULES);
    let mut stream = client.opened(&mut connection, 1).await;
    client.data(1, b"half", false).await;
    drop(client);
    timeout(PATIENCE, connection.gone().cancelled()).await.unwrap();
    let mut text = String::new();
    assert!(stream.reader.read_to_string(&mut text).await.is_err());
}

#[tokio::test]
async fn a_peer_that_breaks_the_protocol_is_told_and_left() {
    for wrong in [2, 1].map(|id| syn(id, Headers::default())) {
        let (mut client, mut connection) = Client::connect(RULES);
        client.opened(&mut connection, 1).await;
        client.send(wrong).await;
        let status = rst::PROTOCOL_ERROR;
        assert_eq!(client.next().await, Some(Frame::GoAway { last: 1, status }));
        assert_eq!(client.next().await, None);
        timeout(PATIENCE, connection.gone().cancelled()).await.unwrap();
    }
}

#[tokio::test]
async fn the_last_words_arrive_in_order_before_the_connection_closes() {
    let (mut client, mut connection) = Client::connect(RULES);
    let stream = client.opened(&mut connection, 1).await;
    let closer = stream.writer.closer().unwrap();
    closer.finish(Bytes::from_static(b"status")).await;
    let closing = tokio::spawn(connection.close());
    assert_eq!(client.next().await, Some(data(1, b"status", true)));
    assert_eq!(client.next().await, Some(Frame::GoAway { last: 1, status: 0 }));
    assert_eq!(client.next().await, None);
    // Bytes that were under way are still taken, so that no reset can overtake the last words.
    for _ in 0..2 {
        client.send(data(1, &ZEROS[..60_000], false)).await;
    }
    drop(client);
    timeout(PATIENCE, closing).await.unwrap().unwrap().unwrap();
}

/// `kubectl exec -i` with more input than memory and a command that takes its time: nothing is lost, and no more than the bound is
/// held. What was sent when the reader begins is what the queues and the socket buffer hold, and that is far less than all of it.
#[tokio::test]
async fn a_slow_reader_holds_up_the_sender_and_gets_everything() {
    const TOTAL: usize = 16 * 1024 * 1024;
    let (mut client, mut connection) = Client::connect(RULES);
    let mut stream = client.opened(&mut connection, 1).await;
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = sent.clone();
    let sender = tokio::spawn(async move {
        for number in 0..TOTAL / 32_768 {
            let fin = (number + 1) * 32_768 == TOTAL;
            let bytes = vec![u8::try_from(number % 251).unwrap(); 32_768].into();
            client.send(Frame::Data { id: 1, fin, bytes }).await;
            counter.fetch_add(32_768, std::sync::atomic::Ordering::SeqCst);
        }
        client
    });
    let mut got = 0;
    let mut buffer = vec![0; 32_768];
    loop {
        let read = timeout(PATIENCE, stream.reader.read(&mut buffer))
            .await
            .unwrap()
            .unwrap();
        if read == 0 {
            break;
        }
        for byte in &buffer[..read] {
            assert_eq!(usize::from(*byte), got / 32_768 % 251);
            got += 1;
        }
        let ahead = sent.load(std::sync::atomic::Ordering::SeqCst).saturating_sub(got);
        assert!(ahead < 2 * 1024 * 1024, "{ahead} bytes are held for a slow reader");
    }
    assert_eq!(got, TOTAL);
    sender.await.unwrap();
}

#[tokio::test]
async fn a_stream_nobody_reads_is_reset_for_the_sake_of_the_others() {
    let stall = Some(Duration::from_millis(50));
    let (mut client, mut connection) = Client::connect(Rules { stall, ..RULES });
    let _stuck = client.opened(&mut connection, 1).await;
    let mut lively = client.opened(&mut connection, 3).await;
    for _ in 0..17 {
        client.data(1, b"x", false).await;
    }
    client.data(3, b"through", true).await;
    let mut text = String::new();
    timeout(PATIENCE, lively.reader.read_to_string(&mut text))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(text, "through");
    let status = rst::CANCEL;
    assert_eq!(client.next().await, Some(Frame::RstStream { id: 1, status }));
}

/// Eight forwarded connections whose targets did not read held all the memory of a session while none of their own queues was full, so
/// nothing ever happened to them: whoever came after them waited two minutes for memory, and was reset in their place.
#[tokio::test]
async fn streams_that_hold_all_memory_unread_are_reset_and_not_the_one_that_waits_for_it() {
    let stall = Some(Duration::from_millis(50));
    let (mut client, mut connection) = Client::connect(Rules {
        stall,
        memory: 64,
        ..RULES
    });
    for id in [1, 3] {
        let stream = client.opened(&mut connection, id).await;
        // As forwarded connections do.
        tokio::spawn(async move {
            stream.writer.gone().cancelled().await;
            drop(stream);
        });
        // One of them has sent everything, which changes nothing for the others.
        client.data(id, &[0; 32], id == 3).await;
    }
    let mut lively = client.opened(&mut connection, 5).await;
    client.data(5, b"through", true).await;
    let mut text = String::new();
    timeout(PATIENCE, lively.reader.read_to_string(&mut text))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(text, "through");
    let mut reset = Vec::new();
    for _ in 0..2 {
        match client.next().await {
            Some(Frame::RstStream { id, status }) if status == rst::CANCEL => reset.push(id),
            other => panic!("{other:?}"),
        }
    }
    reset.sort_unstable();
    assert_eq!(reset, [1, 3]);
    lively.writer.write_all(b"and back").await.unwrap();
    assert_eq!(client.next().await, Some(data(5, b"and back", false)));
}

#[test]
fn those_who_read_a_little_are_spared_unless_all_do() {
    let unread = |streams: &[(u32, u64)]| streams.iter().copied().collect::<HashMap<_, _>>();
    let before = unread(&[(1, 100), (3, 500), (5, 9)]);
    assert_eq!(hoarders(&before, &unread(&[(1, 100), (3, 499)])), [1]);
    assert_eq!(hoarders(&before, &unread(&[(1, 99), (3, 499), (5, 8)])), [3]);
    assert!(hoarders(&before, &unread(&[])).is_empty());
}
