//! The ends of a stream that a backend holds, whatever protocol carries it.
//!
//! Both are bounded queues. A reader that lags makes its connection stop reading, which is the only back-pressure Kubernetes'
//! protocols know; a writer waits until the connection has taken what is queued.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio_util::sync::{CancellationToken, PollSender};

use crate::spdy::MAX_PIECE;

/// Pieces a reader may lag behind before its connection stops reading: 16 of at most 32 KiB.
const LAG: usize = 16;

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Size {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// Sizes of the caller's terminal as they change.
#[derive(Debug)]
pub struct Resizes(watch::Receiver<Option<Size>>);

impl Resizes {
    pub(crate) fn new() -> (watch::Sender<Option<Size>>, Self) {
        let (sender, receiver) = watch::channel(None);
        (sender, Self(receiver))
    }

    /// The next size, or none when there will be no other. Sizes that came in quick succession may be skipped.
    pub async fn next(&mut self) -> Option<Size> {
        loop {
            self.0.changed().await.ok()?;
            if let Some(size) = *self.0.borrow_and_update() {
                return Some(size);
            }
        }
    }
}

/// How a stream stands, as both its ends see it.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    finished: AtomicBool,
    reset: CancellationToken,
    ended: AtomicBool,
    /// Bytes of the peer that its user has taken. All there can be once the user is gone, who then holds none.
    read: AtomicU64,
}

impl Fate {
    /// The peer has sent everything.
    pub(crate) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    /// The peer wants no more of it, or we do not.
    pub(crate) fn reset(&self) {
        self.reset.cancel();
    }

    fn is_reset(&self) -> bool {
        self.reset.is_cancelled()
    }

    /// How many of `sent` bytes wait for their user.
    pub(crate) fn unread(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.read.load(Ordering::Acquire))
    }

    /// We have sent everything. False if that was known.
    fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }

    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// Bytes on their way to a [`Reader`], with their share of the connection's memory.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    #[expect(dead_code, reason = "held, never read: dropping it gives the memory back")]
    pub(crate) share: Option<OwnedSemaphorePermit>,
}

/// The queue into a [`Reader`] and its fate.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) queue: mpsc::Sender<Piece>,
    pub(crate) fate: Arc<Fate>,
}

/// What the peer sends on one stream.
#[derive(Debug)]
pub struct Reader {
    queue: mpsc::Receiver<Piece>,
    current: Option<Piece>,
    fate: Arc<Fate>,
}

impl Reader {
    pub(crate) fn new() -> (Feed, Self) {
        let (sender, queue) = mpsc::channel(LAG);
        let fate = Arc::<Fate>::default();
        let reader = Self {
            queue,
            current: None,
            fate: fate.clone(),
        };
        (Feed { queue: sender, fate }, reader)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.fate.read.store(u64::MAX, Ordering::Release);
    }
}

impl AsyncRead for Reader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let this = &mut *self;
            if let Some(piece) = &mut this.current {
                let length = piece.bytes.len().min(buf.remaining());
                buf.put_slice(piece.bytes.get(..length).unwrap_or_default());
                piece.bytes.advance(length);
                let read = u64::try_from(length).unwrap_or(u64::MAX);
                this.fate.read.fetch_add(read, Ordering::AcqRel);
                if piece.bytes.is_empty() {
                    this.current = None;
                }
                if length > 0 || buf.remaining() == 0 {
                    return Poll::Ready(Ok(()));
                }
            }
            match ready!(self.queue.poll_recv(cx)) {
                Some(piece) => self.current = Some(piece),
                None if self.fate.finished.load(Ordering::Acquire) && !self.fate.is_reset() => {
                    return Poll::Ready(Ok(()));
                }
                // The connection went, or the peer gave up: not the end of the input, and it must not look like it.
                None => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            }
        }
    }
}

/// Bytes on their way to the peer.
#[derive(Debug)]
pub(crate) enum Out {
    /// Of a stream or channel.
    Data { id: u32, bytes: Bytes, fin: bool },
    /// The stream ends at once.
    Reset { id: u32, status: u32 },
    /// Nothing follows: say goodbye and close.
    Close,
}

/// What we send on one stream. Shutting it down is the end of the stream; flushing does nothing, since the connection flushes by
/// itself as soon as it has nothing more to write.
#[derive(Debug)]
pub struct Writer {
    id: u32,
    queue: PollSender<Out>,
    fate: Arc<Fate>,
}

/// Ends our side of a stream whose [`Writer`] somebody else has.
#[derive(Debug)]
pub(crate) struct Closer {
    id: u32,
    queue: mpsc::Sender<Out>,
    fate: Arc<Fate>,
}

impl Closer {
    /// The last bytes, if any, and the end. Nothing happens when the stream has ended already.
    pub(crate) async fn finish(self, bytes: Bytes) {
        if self.fate.end() && !self.fate.is_reset() {
            let (id, fin) = (self.id, true);
            // A connection that is gone needs no end.
            let _ = self.queue.send(Out::Data { id, bytes, fin }).await;
        }
    }

    /// Ends both sides at once.
    pub(crate) async fn reset(self, status: u32) {
        if self.fate.end() && !self.fate.is_reset() {
            self.fate.reset();
            let _ = self.queue.send(Out::Reset { id: self.id, status }).await;
        }
    }
}

impl Writer {
    pub(crate) fn new(id: u32, queue: mpsc::Sender<Out>, fate: Arc<Fate>) -> Self {
        Self {
            id,
            queue: PollSender::new(queue),
            fate,
        }
    }

    /// None when the connection is gone.
    pub(crate) fn closer(&self) -> Option<Closer> {
        Some(Closer {
            id: self.id,
            queue: self.queue.get_ref()?.clone(),
            fate: self.fate.clone(),
        })
    }

    /// Ends when the stream was reset, by either side.
    pub(crate) fn gone(&self) -> CancellationToken {
        self.fate.reset.clone()
    }

    fn send(&mut self, cx: &mut Context<'_>, bytes: &[u8], fin: bool) -> Poll<io::Result<()>> {
        if self.fate.is_ended() || self.fate.is_reset() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let broken = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(self.queue.poll_reserve(cx)).map_err(broken)?;
        let out = Out::Data {
            id: self.id,
            bytes: Bytes::copy_from_slice(bytes),
            fin,
        };
        Poll::Ready(self.queue.send_item(out).map_err(broken))
    }
}

impl AsyncWrite for Writer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let length = buf.len().min(MAX_PIECE);
        let piece = buf.get(..length).unwrap_or_default();
        if piece.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.send(cx, piece, false))?;
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.fate.is_ended() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.send(cx, &[], true))?;
        self.fate.end();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn piece(text: &'static str) -> Piece {
        Piece {
            bytes: Bytes::from_static(text.as_bytes()),
            share: None,
        }
    }

    #[tokio::test]
    async fn the_end_of_a_stream_and_its_loss_are_told_apart() {
        let (feed, mut reader) = Reader::new();
        feed.queue.send(piece("all of it")).await.unwrap();
        feed.fate.finish();
        drop(feed);
        let mut text = String::new();
        reader.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "all of it");

        let (feed, mut reader) = Reader::new();
        feed.queue.send(piece("half of")).await.unwrap();
        drop(feed);
        let mut text = String::new();
        let error = reader.read_to_string(&mut text).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn what_waits_for_a_user_is_counted_by_the_byte() {
        let (feed, mut reader) = Reader::new();
        feed.queue.send(piece("abcdef")).await.unwrap();
        assert_eq!(feed.fate.unread(6), 6);
        reader.read_exact(&mut [0; 4]).await.unwrap();
        assert_eq!(feed.fate.unread(6), 2, "the rest of the piece waits in the reader");
        drop(reader);
        assert_eq!(feed.fate.unread(6), 0);
    }

    #[tokio::test]
    async fn a_stream_that_was_shut_down_or_reset_takes_no_more() {
        let (queue, mut outs) = mpsc::channel(4);
        let fate = Arc::<Fate>::default();
        let mut writer = Writer::new(3, queue.clone(), fate.clone());
        writer.write_all(b"x").await.unwrap();
        writer.shutdown().await.unwrap();
        writer.shutdown().await.unwrap();
        assert_eq!(writer.write(b"y").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(matches!(outs.recv().await, Some(Out::Data { id: 3, fin: false, .. })));
        assert!(matches!(outs.recv().await, Some(Out::Data { id: 3, fin: true, .. })));
        let mut other = Writer::new(5, queue, fate.clone());
        fate.reset();
        assert_eq!(other.write(b"y").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
