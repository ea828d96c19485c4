//! The server's side of a SPDY connection: one task reads, one writes, streams are queues between them and their users.
//!
//! ```text
//! socket ─► reader ─┬─ SYN_STREAM ─► admit? ─► SYN_REPLY, Incoming      users' Writers ─► queue ─┐
//!                   ├─ DATA ─► the stream's queue (waits when it is full)                        ├─► writer ─► socket
//!                   └─ PING, RST ─────────────► replies (never waits) ──────────────────────────┘
//! ```
//!
//! Memory is bounded: each stream holds at most 16 pieces, all together [`Rules::memory`]. A stream whose user does not read stops
//! the connection, as the protocol wants it; after [`Rules::stall`] it is reset for the sake of those that wait behind it. When the
//! memory is what is waited for, that goes for all streams whose users read none of what they hold meanwhile.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::frame::{Decoder, Frame, FrameError, rst};
use super::headers::{HeaderError, Headers};
use super::outgoing::{Reply, send};
use crate::stream::{Fate, Feed, Out, Piece, Reader, Writer};

const READ_BUFFER: usize = 64 * 1024;
/// Pieces waiting for the socket, over all streams.
const QUEUED: usize = 16;
/// Small frames of our own waiting for the socket.
const REPLIES: usize = 64;
/// How long we go on reading after our last word. Closing a socket with unread bytes in it makes the kernel send a reset, and a
/// reset can overtake the last output and the exit code.
const LINGER: Duration = Duration::from_secs(5);

/// What a connection allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Streams open at once.
    pub(crate) streams: usize,
    /// Bytes received and not yet read by their users.
    pub(crate) memory: usize,
    /// How long a user may leave a full queue, or hold memory that is all used up, while other streams may wait behind it; none where
    /// no other can matter.
    pub(crate) stall: Option<Duration>,
    /// How often the peer is asked whether it is there. A connection that only waits finds out in no other way.
    pub(crate) ping: Duration,
}

/// Why a connection ended before its time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the peer broke the protocol")]
    Frame(#[from] FrameError),
    #[error("a header block could not be made")]
    Headers(#[from] HeaderError),
    #[error("stream {0} is not one a client may open now")]
    StreamId(u32),
    #[error("the connection failed")]
    Io(#[from] io::Error),
}

/// A stream the peer opened; it has been told that it is accepted.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) id: u32,
    pub(crate) headers: Headers,
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
}

/// A connection. Dropping it closes the socket at once.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) incoming: mpsc::Receiver<Incoming>,
    pub(crate) out: mpsc::Sender<Out>,
    gone: CancellationToken,
    active: watch::Receiver<Instant>,
    reader: AbortOnDropHandle<Result<(), Broken>>,
    writer: AbortOnDropHandle<Result<(), Broken>>,
}

impl Connection {
    /// `admit` says which streams are wanted, by their headers; it is asked before anything is held for them.
    pub(crate) fn start<T>(io: T, rules: Rules, admit: fn(&Headers) -> bool) -> Self
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (read, write) = tokio::io::split(io);
        let (out, outs) = mpsc::channel(QUEUED);
        let (reply, replies) = mpsc::channel(REPLIES);
        let (accepted, incoming) = mpsc::channel(1);
        let (touch, active) = watch::channel(Instant::now());
        let touch = Arc::new(touch);
        let gone = CancellationToken::new();
        let receiving = Receiving {
            rules,
            admit,
            memory: Arc::new(Semaphore::new(rules.memory)),
            streams: HashMap::new(),
            finished: HashMap::new(),
            last: 0,
            reply,
            out: out.clone(),
            accepted,
            touch: touch.clone(),
        };
        let reader_gone = gone.clone();
        let reader = tokio::spawn(async move {
            let _guard = reader_gone.drop_guard();
            receiving.run(read).await
        });
        let writer_gone = gone.clone();
        let writer = tokio::spawn(async move {
            let result = send(write, outs, replies, rules.ping, &touch).await;
            if result.is_err() {
                writer_gone.cancel();
            }
            result
        });
        Self {
            incoming,
            out,
            gone,
            active,
            reader: AbortOnDropHandle::new(reader),
            writer: AbortOnDropHandle::new(writer),
        }
    }

    /// Ends when the peer has gone or broken the protocol.
    pub(crate) fn gone(&self) -> CancellationToken {
        self.gone.clone()
    }

    /// Ends when no bytes of any stream have moved for so long.
    pub(crate) fn idle(&self, limit: Duration) -> impl Future<Output = ()> + Send + use<> {
        idle(self.active.clone(), limit)
    }

    /// Writes what is queued, says goodbye, and waits for the peer to close.
    pub(crate) async fn close(self) -> Result<(), Broken> {
        // A writer that is gone has its reason in its result.
        let _ = self.out.send(Out::Close).await;
        drop((self.out, self.incoming));
        self.writer.await.unwrap_or(Ok(()))?;
        match timeout(LINGER, self.reader).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }
}

pub(crate) async fn idle(mut active: watch::Receiver<Instant>, limit: Duration) {
    loop {
        let deadline = *active.borrow_and_update() + limit;
        tokio::time::sleep_until(deadline).await;
        if *active.borrow() + limit <= Instant::now() {
            return;
        }
    }
}

/// A stream on which the peer may still send.
struct Stream {
    feed: Feed,
    /// Bytes handed to its user.
    sent: u64,
}

/// A stream on which the peer has sent everything and its user has not read all of it.
struct Finished {
    fate: Arc<Fate>,
    sent: u64,
}

/// Which streams go when memory was waited for and none came: those that read nothing of what they hold meanwhile, or, should all
/// have read a little, the one that holds most. Both are bytes unread, by stream; nothing was delivered in between.
fn hoarders(before: &HashMap<u32, u64>, after: &HashMap<u32, u64>) -> Vec<u32> {
    let still: Vec<u32> = after
        .iter()
        .filter(|(id, unread)| before.get(*id) == Some(*unread))
        .map(|(id, _)| *id)
        .collect();
    if still.is_empty() {
        let largest = after.iter().max_by_key(|(_, unread)| **unread);
        return largest.map(|(id, _)| *id).into_iter().collect();
    }
    still
}

struct Receiving {
    rules: Rules,
    admit: fn(&Headers) -> bool,
    memory: Arc<Semaphore>,
    streams: HashMap<u32, Stream>,
    /// They hold memory as the others do.
    finished: HashMap<u32, Finished>,
    last: u32,
    reply: mpsc::Sender<Reply>,
    out: mpsc::Sender<Out>,
    accepted: mpsc::Sender<Incoming>,
    touch: Arc<watch::Sender<Instant>>,
}

impl Receiving {
    async fn run<T: AsyncRead>(mut self, mut socket: ReadHalf<T>) -> Result<(), Broken> {
        let result = self.receive(&mut socket).await;
        if matches!(result, Err(Broken::Frame(_) | Broken::StreamId(_))) {
            let _ = self.reply.try_send(Reply::Quit { last: self.last });
        }
        result
    }

    async fn receive<T: AsyncRead>(&mut self, socket: &mut ReadHalf<T>) -> Result<(), Broken> {
        let mut decoder = Decoder::new();
        let mut input = BytesMut::with_capacity(READ_BUFFER);
        loop {
            while let Some(frame) = decoder.decode(&mut input)? {
                self.handle(frame).await?;
            }
            input.reserve(READ_BUFFER);
            if socket.read_buf(&mut input).await? == 0 {
                return if decoder.between_frames() && input.is_empty() {
                    Ok(())
                } else {
                    Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
                };
            }
        }
    }

    async fn handle(&mut self, frame: Frame) -> Result<(), Broken> {
        match frame {
            Frame::SynStream { id, fin, headers } => self.open(id, fin, headers).await?,
            Frame::Data { id, fin, bytes } => {
                if !bytes.is_empty() {
                    self.deliver(id, bytes).await;
                }
                if fin {
                    self.finish(id);
                }
            }
            Frame::Headers { id, fin: true, .. } => self.finish(id),
            Frame::RstStream { id, .. } => {
                if let Some(stream) = self.streams.remove(&id) {
                    stream.feed.fate.reset();
                }
            }
            // Even ids answer our own. A peer that asks faster than it reads goes without an answer, not us without memory.
            Frame::Ping { id } if id % 2 == 1 => {
                let _ = self.reply.try_send(Reply::Pong(id));
            }
            Frame::Ping { .. }
            | Frame::GoAway { .. }
            | Frame::Headers { .. }
            | Frame::SynReply { .. }
            | Frame::Ignored { .. } => {}
        }
        Ok(())
    }

    async fn open(&mut self, id: u32, fin: bool, headers: Headers) -> Result<(), Broken> {
        if id.is_multiple_of(2) || id <= self.last {
            return Err(Broken::StreamId(id));
        }
        self.last = id;
        if self.streams.len() >= self.rules.streams {
            self.streams.retain(|_, stream| !stream.feed.queue.is_closed());
        }
        if self.streams.len() >= self.rules.streams || !(self.admit)(&headers) {
            return self.answer(Reply::Reset(id, rst::REFUSED_STREAM)).await;
        }
        let (feed, reader) = Reader::new();
        let writer = Writer::new(id, self.out.clone(), feed.fate.clone());
        self.streams.insert(id, Stream { feed, sent: 0 });
        if fin {
            self.finish(id);
        }
        // Replies go out before data, so nothing the user writes can overtake this.
        self.answer(Reply::Accepted(id)).await?;
        let incoming = Incoming {
            id,
            headers,
            reader,
            writer,
        };
        // Nobody accepts any more: the session is ending and the peer will be told so.
        let _ = self.accepted.send(incoming).await;
        Ok(())
    }

    async fn answer(&self, reply: Reply) -> Result<(), Broken> {
        self.reply
            .send(reply)
            .await
            .map_err(|_| Broken::Io(io::ErrorKind::BrokenPipe.into()))
    }

    fn finish(&mut self, id: u32) {
        let Some(Stream { feed, sent }) = self.streams.remove(&id) else {
            return;
        };
        feed.fate.finish();
        if self.finished.len() >= self.rules.streams {
            self.finished.retain(|_, stream| stream.fate.unread(stream.sent) > 0);
        }
        if feed.fate.unread(sent) > 0 {
            let fate = feed.fate;
            self.finished.insert(id, Finished { fate, sent });
        }
    }

    fn reset(&mut self, id: u32) {
        tracing::debug!(stream = id, "a stream that is not read holds up others; resetting it");
        if let Some(stream) = self.streams.remove(&id) {
            stream.feed.fate.reset();
        } else if let Some(stream) = self.finished.remove(&id) {
            stream.fate.reset();
        }
        let _ = self.reply.try_send(Reply::Reset(id, rst::CANCEL));
    }

    async fn deliver(&mut self, id: u32, bytes: Bytes) {
        self.touch.send_replace(Instant::now());
        if !self.streams.contains_key(&id) {
            if id > self.last {
                let _ = self.reply.try_send(Reply::Reset(id, rst::INVALID_STREAM));
            }
            return;
        }
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let Some(share) = self.share(id, length).await else {
            return;
        };
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.sent = stream.sent.saturating_add(length.into());
        let share = Some(share);
        // A user that stopped reading wants none of it.
        let delivered = stream.feed.queue.send(Piece { bytes, share });
        let Some(stall) = self.rules.stall else {
            let _ = delivered.await;
            return;
        };
        if timeout(stall, delivered).await.is_err() {
            self.reset(id);
        }
    }

    /// Memory for bytes of a stream; none when nobody wants them any more. Who has to wait for it too long is not the one to blame,
    /// since it holds none of it: those that do are reset.
    async fn share(&mut self, id: u32, length: u32) -> Option<OwnedSemaphorePermit> {
        if let Ok(share) = self.memory.clone().try_acquire_many_owned(length) {
            return Some(share);
        }
        loop {
            let before = self.unread();
            let queue = &self.streams.get(&id)?.feed.queue;
            let memory = self.memory.clone();
            let share = async {
                // The semaphore is never closed, and a user that stopped reading wants none of it.
                tokio::select! {
                    share = memory.acquire_many_owned(length) => share.ok(),
                    () = queue.closed() => None,
                }
            };
            let Some(stall) = self.rules.stall else {
                return share.await;
            };
            let waited = timeout(stall, share).await;
            if let Ok(share) = waited {
                return share;
            }
            for id in hoarders(&before, &self.unread()) {
                self.reset(id);
            }
        }
    }

    /// Bytes that wait for their users, by stream.
    fn unread(&self) -> HashMap<u32, u64> {
        let open = self.streams.iter();
        let open = open.map(|(id, stream)| (*id, stream.feed.fate.unread(stream.sent)));
        let finished = self.finished.iter();
        let finished = finished.map(|(id, stream)| (*id, stream.fate.unread(stream.sent)));
        open.chain(finished).filter(|(_, unread)| *unread > 0).collect()
    }
}

#[cfg(test)]
mod tests;
