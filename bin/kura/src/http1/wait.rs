//! The socket, what was read from it and not yet used, and the one deadline that matters now.
//!
//! A connection has a single timer. Moving its deadline later costs a store; only when the timer fires too early is it set
//! again. So a busy connection never touches the timer wheel, and a dripping one is woken by its bytes and its deadline only.

use super::socket::Socket;
use bytes::BytesMut;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncWrite as _;
use tokio::time::{Instant, Sleep};
use tokio_util::io::poll_read_buf;

/// What one read asks for; most requests of a cache fit.
const READ: usize = 4096;
/// A read for less than this is not worth its system call.
const LEAST: usize = 1024;
/// What an idle connection keeps.
const KEPT: usize = 16 * 1024;
/// A body must come, and an answer must go, at least this fast on average, once the stall time has passed.
const SLOWEST_BYTES_PER_SECOND: u64 = 8 * 1024;

/// How patient a connection is.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For a whole request header, from its first byte.
    pub header: Duration,
    /// For progress of a body or an answer.
    pub stall: Duration,
    /// For the next request.
    pub idle: Duration,
}

/// A deadline that is cheap to move later.
#[derive(Debug)]
struct Timer {
    sleep: Pin<Box<Sleep>>,
    deadline: Instant,
}

impl Timer {
    fn new(deadline: Instant) -> Self {
        Self {
            sleep: Box::pin(tokio::time::sleep_until(deadline)),
            deadline,
        }
    }

    fn set(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if deadline < self.sleep.deadline() {
            self.sleep.as_mut().reset(deadline);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            if Instant::now() >= self.deadline {
                return Poll::Ready(());
            }
            let deadline = self.deadline;
            self.sleep.as_mut().reset(deadline);
        }
    }
}

/// Why waiting ended without what was waited for.
#[derive(Debug)]
pub enum Ended {
    /// The peer closed its side.
    Closed,
    /// The deadline passed.
    TimedOut,
    /// The caller's condition for giving up became true.
    GivenUp,
    /// The socket failed.
    Failed,
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Self::Failed
    }
}

/// One connection's socket and unread bytes.
#[derive(Debug)]
pub struct Wire {
    /// The socket.
    pub stream: Socket,
    /// Bytes read and not yet used.
    pub input: BytesMut,
    /// How long things may take.
    pub patience: Patience,
    /// When the connection was made.
    pub opened: Instant,
    /// Bytes of the current answer that the socket has taken, and how many of those are its header.
    pub written: u64,
    /// Length of the current answer's header.
    pub head: u64,
    timer: Timer,
}

impl Wire {
    /// A fresh connection.
    pub fn new(stream: Socket, patience: Patience) -> Self {
        let opened = Instant::now();
        Self {
            stream,
            input: BytesMut::new(),
            patience,
            opened,
            written: 0,
            head: 0,
            timer: Timer::new(opened + patience.idle),
        }
    }

    /// Bytes of the current answer's body that the socket has taken.
    pub fn delivered(&self) -> u64 {
        self.written.saturating_sub(self.head)
    }

    /// Waits no longer than until `deadline`.
    pub fn until(&mut self, deadline: Instant) {
        self.timer.set(deadline);
    }

    /// Waits for progress: no longer than the stall time, and no longer than `moved` bytes since `since` excuse.
    pub fn until_progress(&mut self, since: Instant, moved: u64) {
        let stall = self.patience.stall;
        let excused = Duration::from_secs(moved / SLOWEST_BYTES_PER_SECOND);
        self.timer.set((Instant::now() + stall).min(since + stall + excused));
    }

    /// Gives back what a large body needed and an idle connection does not.
    pub fn rest(&mut self) {
        if self.input.is_empty() && self.input.capacity() > KEPT {
            self.input = BytesMut::new();
        }
    }

    /// Reads more into `input`, making room for `want` bytes or a usual read, whichever is more.
    pub async fn fill(&mut self, want: usize, give_up: impl Fn() -> bool) -> Result<(), Ended> {
        if self.input.capacity() - self.input.len() < want.clamp(LEAST, READ) {
            self.input.reserve(want.max(READ));
        }
        poll_fn(|cx| {
            if let Poll::Ready(read) = poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.input) {
                return Poll::Ready(match read {
                    Ok(0) => Err(Ended::Closed),
                    Ok(_) => Ok(()),
                    Err(error) => Err(error.into()),
                });
            }
            if give_up() {
                return Poll::Ready(Err(Ended::GivenUp));
            }
            self.timer.poll(cx).map(|()| Err(Ended::TimedOut))
        })
        .await
    }

    /// Reads at most `left` bytes straight into `into`, without a copy.
    pub async fn fill_into(&mut self, into: &mut BytesMut, left: usize) -> Result<usize, Ended> {
        use bytes::BufMut as _;
        poll_fn(|cx| {
            let mut limited = (&mut *into).limit(left);
            if let Poll::Ready(read) = poll_read_buf(Pin::new(&mut self.stream), cx, &mut limited) {
                return Poll::Ready(match read {
                    Ok(0) => Err(Ended::Closed),
                    Ok(count) => Ok(count),
                    Err(error) => Err(error.into()),
                });
            }
            self.timer.poll(cx).map(|()| Err(Ended::TimedOut))
        })
        .await
    }

    /// Waits until the socket takes bytes again.
    pub async fn writable(&mut self) -> Result<(), Ended> {
        poll_fn(|cx| {
            if let Poll::Ready(ready) = self.stream.tcp().poll_write_ready(cx) {
                return Poll::Ready(ready.map_err(Into::into));
            }
            self.timer.poll(cx).map(|()| Err(Ended::TimedOut))
        })
        .await
    }

    /// Sends on what TLS holds back.
    pub async fn flush(&mut self) -> Result<(), Ended> {
        if self.stream.plain().is_some() {
            return Ok(());
        }
        self.until_progress(Instant::now(), 0);
        poll_fn(|cx| {
            if let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(cx) {
                return Poll::Ready(flushed.map_err(Into::into));
            }
            self.timer.poll(cx).map(|()| Err(Ended::TimedOut))
        })
        .await
    }

    /// Says that nothing more will be sent; with TLS, in a way nobody on the path could forge.
    pub async fn shut(&mut self) -> Result<(), Ended> {
        self.until_progress(Instant::now(), 0);
        poll_fn(|cx| {
            if let Poll::Ready(shut) = Pin::new(&mut self.stream).poll_shutdown(cx) {
                return Poll::Ready(shut.map_err(Into::into));
            }
            self.timer.poll(cx).map(|()| Err(Ended::TimedOut))
        })
        .await
    }

    /// Writes all of `bytes`.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), Ended> {
        if bytes.is_empty() {
            return self.flush().await;
        }
        let since = Instant::now();
        let mut moved = 0;
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(count) => {
                    moved += count as u64;
                    self.written += count as u64;
                    bytes = bytes.get(count..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.until_progress(since, moved);
                    self.writable().await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.flush().await
    }
}
