//! A long link without a second machine: a proxy on the loopback that holds back every byte for as long as light and routers would,
//! at any bandwidth.
//!
//! What it cannot show is the kernel's part of a long link, the TCP windows between two machines: both connections of the
//! proxy are short. It shows what protocols and servers do with the time, which is what a server can be blamed for.

use anyhow::{Context as _, Result};
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

const PIECE: usize = 64 * 1024;
/// Pieces under way in one direction at most: 64 MiB, which is more than any upload of ours.
const PIECES: usize = 1024;

/// The proxy; ends when dropped.
#[derive(Debug)]
pub(crate) struct Delay {
    /// Where to connect.
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Delay {
    /// Passes connections on to `server`, each byte late by `one_way`.
    pub(crate) fn start(server: SocketAddr, one_way: Duration) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .context("failed to listen for the far end of a link")?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(&listener, server, one_way) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("link".to_owned()).spawn(serve)?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: &TcpListener, server: SocketAddr, one_way: Duration) {
    while let Ok((near, _)) = listener.accept().await {
        tokio::spawn(async move {
            // Whoever connected sees the end of the connection.
            let Ok(far) = TcpStream::connect(server).await else {
                return;
            };
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = far.into_split();
            tokio::join!(pass(near_read, far_write, one_way), pass(far_read, near_write, one_way));
        });
    }
}

/// One direction.
async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, late: Duration) {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES);
    let read = async move {
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            match from.read_buf(&mut piece).await {
                Ok(count) if count > 0 => {}
                _ => return,
            }
            if sender.send((Instant::now() + late, piece)).await.is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn bytes_arrive_as_they_were_sent_and_not_before_their_time() {
        let echo = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = echo.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = echo.accept().unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        });
        let delay = Delay::start(server, Duration::from_millis(40)).unwrap();
        let mut stream = std::net::TcpStream::connect(delay.address).unwrap();
        let sent: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let began = std::time::Instant::now();
        stream.write_all(&sent).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(got == sent, "other bytes came back");
        assert!(began.elapsed() >= Duration::from_millis(80));
        answering.join().unwrap();
    }
}
