//! The line between one agent and the API server, which can be cut: others go on with the same server.

use crate::stage::until;
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// A line. It is whole until it is cut.
pub(crate) struct Line {
    url: String,
    whole: watch::Sender<bool>,
    refused: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Line {
    /// To a server that is told by its URL.
    pub(crate) async fn to(server: &str) -> Result<Self> {
        let address = server.trim_start_matches("https://").trim_end_matches('/');
        let far: SocketAddr = address
            .parse()
            .with_context(|| format!("no address and port: {server}"))?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}", listener.local_addr()?);
        let (whole, seen) = watch::channel(true);
        let refused = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(carry(listener, far, seen, Arc::clone(&refused)));
        Ok(Self {
            url,
            whole,
            refused,
            task,
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Ends what goes over it, and lets nothing more.
    pub(crate) fn cut(&self) {
        self.whole.send_replace(false);
    }

    /// Waits until somebody has tried in vain, so often from now on.
    pub(crate) async fn until_missed(&self, times: usize) -> Result<()> {
        let refused = || self.refused.load(Ordering::Relaxed);
        let before = refused();
        let missed = || Ok(refused() >= before + times);
        until("an agent that misses the API server", missed).await
    }

    pub(crate) fn mend(&self) {
        self.whole.send_replace(true);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(listener: TcpListener, far: SocketAddr, mut whole: watch::Receiver<bool>, refused: Arc<AtomicUsize>) {
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((near, _)) = accepted else { continue };
                if *whole.borrow() {
                    calls.spawn(call(near, far));
                } else {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(()) = whole.changed() => if !*whole.borrow_and_update() {
                calls.abort_all();
            },
            Some(_) = calls.join_next(), if !calls.is_empty() => {}
        }
    }
}

async fn call(mut near: TcpStream, far: SocketAddr) {
    if let Ok(mut far) = TcpStream::connect(far).await {
        // Either end may hang up at any time.
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    }
}
