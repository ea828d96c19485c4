//! A TCP connection that can go wrong on request.

use super::faults::SshFault;
use super::mac::Inner;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The stream below SSH. When the power goes, it breaks.
pub(super) struct Wire {
    stream: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// What is still let through.
    left: Option<u64>,
    fault: SshFault,
    mac: Arc<Inner>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, fault: SshFault, cut: CancellationToken, mac: Arc<Inner>) -> Self {
        let left = match fault {
            SshFault::None | SshFault::Refuse => None,
            SshFault::Stall => Some(0),
            SshFault::DropAfter(bytes) | SshFault::StallAfter(bytes) | SshFault::RebootAfter(bytes) => Some(bytes),
        };
        Self {
            stream,
            cut: Box::pin(cut.cancelled_owned()),
            left,
            fault,
            mac,
        }
    }

    /// Ready when the connection is over.
    fn broken(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(io::ErrorKind::ConnectionReset.into());
        }
        if self.left == Some(0) {
            match self.fault {
                SshFault::DropAfter(_) => return Poll::Ready(io::ErrorKind::ConnectionReset.into()),
                SshFault::RebootAfter(_) => {
                    self.left = None;
                    self.mac.state().faults.ssh = SshFault::None;
                    self.mac.reboot();
                    return Poll::Ready(io::ErrorKind::ConnectionReset.into());
                }
                _ => {}
            }
        }
        Poll::Pending
    }

    fn is_silent(&self) -> bool {
        self.left == Some(0)
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(error) = this.broken(context) {
            return Poll::Ready(Err(error));
        }
        if this.is_silent() {
            return Poll::Pending;
        }
        let room = usize::try_from(this.left.unwrap_or(u64::MAX))
            .unwrap_or(usize::MAX)
            .min(buffer.remaining());
        let mut part = buffer.take(room);
        ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?;
        let count = part.filled().len();
        // The bytes are in the part of the buffer that was lent.
        let bytes = part.filled().to_vec();
        buffer.put_slice(&bytes);
        if let Some(left) = &mut this.left {
            *left = left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Poll::Ready(error) = this.broken(context) {
            return Poll::Ready(Err(error));
        }
        if this.is_silent() {
            return Poll::Pending;
        }
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
