//! A socket that somebody else has begun to read.

use bytes::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose first bytes were read by somebody else; counts what goes through it.
#[derive(Debug)]
pub struct Replay<I> {
    read: Bytes,
    inner: I,
    moved: Arc<AtomicU64>,
}

impl<I> Replay<I> {
    /// `read` comes first, then what `inner` has.
    pub fn new(read: Bytes, inner: I) -> Self {
        Self {
            read,
            inner,
            moved: Arc::default(),
        }
    }

    /// Bytes that went through, in both directions.
    pub(super) fn moved(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.moved)
    }

    fn count(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Replay<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.read.is_empty() {
            let before = buffer.filled().len();
            let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
            self.count(buffer.filled().len() - before);
            return read;
        }
        let count = self.read.len().min(buffer.remaining());
        let first = self.read.split_to(count);
        buffer.put_slice(&first);
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Replay<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            self.count(*count);
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, pieces);
        if let Poll::Ready(Ok(count)) = &written {
            self.count(*count);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
