//! A connection's socket: plain, or with TLS around it.
//!
//! Both kinds are read by the same strict parser. A library that reads HTTP/1.1 on one port and our own engine on the other
//! would disagree about what a request is, and that disagreement is what smuggling lives on.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// One of the two kinds of socket.
#[derive(Debug)]
pub enum Socket {
    /// Bytes go as they are; the kernel can move files.
    Plain(TcpStream),
    /// Bytes are encrypted on the way.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// The socket underneath.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// The socket, if nothing is between it and the caller.
    pub fn plain(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Tls(_) => None,
        }
    }

    /// Writes what fits now. What TLS has taken still needs [`AsyncWrite::poll_flush`].
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.try_write(bytes),
            // Nobody is to be woken: whoever has to wait asks the socket underneath.
            Self::Tls(stream) => match Pin::new(stream).poll_write(&mut Context::from_waker(Waker::noop()), bytes) {
                Poll::Ready(written) => written,
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            },
        }
    }

    /// Acknowledges what has arrived without waiting for something to send along.
    ///
    /// A client that writes header and body apart, with Nagle's algorithm on (ccache does), sends the body only after the
    /// header was acknowledged; the kernel would take 40 ms for that on a connection that has answered before.
    #[cfg(target_os = "linux")]
    pub fn acknowledge_at_once(&self) {
        // Only speed is lost if it fails.
        let _ = rustix::net::sockopt::set_tcp_quickack(self.tcp(), true);
    }

    /// Elsewhere the kernel decides.
    #[cfg(not(target_os = "linux"))]
    pub fn acknowledge_at_once(&self) {}
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// ccache's PUT took 43 ms on a kept connection: once an answer had been sent, the kernel held back the acknowledgement
    /// of the next header, and the client held back the body. The kernel itself says whether it would still do so.
    #[tokio::test]
    async fn a_connection_that_has_answered_is_taken_out_of_delayed_acknowledgement() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut socket = Socket::Plain(listener.accept().await.unwrap().0);
        let mut byte = [0];
        for _ in 0..5 {
            client.write_all(b"?").await.unwrap();
            socket.read_exact(&mut byte).await.unwrap();
            socket.write_all(b"!").await.unwrap();
            client.read_exact(&mut byte).await.unwrap();
        }
        let quick = |socket: &Socket| rustix::net::sockopt::tcp_quickack(socket.tcp()).unwrap();
        assert!(!quick(&socket), "after an exchange the kernel delays");
        socket.acknowledge_at_once();
        assert!(quick(&socket));
    }
}
