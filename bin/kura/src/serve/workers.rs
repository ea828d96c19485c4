//! Threads that serve, and the acceptor that feeds them.

use crate::http::library::{self, Replay};
use crate::http::service::{Service, Shared};
use crate::http1::connection::{self, Handover};
use crate::http1::socket::Socket;
use crate::http1::wait::Patience;
use crate::tls::HANDSHAKE;
use rustls::ServerConfig;
use std::net::TcpStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// How long accepting rests when the system has no descriptors left.
const REST: Duration = Duration::from_millis(100);

/// A connection on its way to a worker.
struct Accepted {
    stream: StdStream,
    tls: Option<Arc<ServerConfig>>,
    slot: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Lane {
    queue: UnboundedSender<Accepted>,
    connections: Arc<AtomicUsize>,
}

/// The serving threads.
#[derive(Debug)]
pub(super) struct Workers {
    lanes: Arc<[Lane]>,
    threads: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Workers {
    pub(super) fn start(count: usize, shared: &Arc<Shared>, patience: Patience) -> std::io::Result<Self> {
        let stop = CancellationToken::new();
        let mut lanes = Vec::new();
        let mut threads = Vec::new();
        for number in 0..count.max(1) {
            let (queue, accepted) = unbounded_channel();
            let connections = Arc::new(AtomicUsize::new(0));
            let service = Service {
                shared: Arc::clone(shared),
                shard: shared.metrics.shard(number),
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (stop, counter) = (stop.clone(), Arc::clone(&connections));
            let thread = std::thread::Builder::new()
                .name(format!("kura-{number}"))
                .spawn(move || {
                    runtime.block_on(stop.run_until_cancelled(work(accepted, service, patience, counter)));
                    // Connections that are still open have had their time to drain.
                    runtime.shutdown_background();
                })?;
            lanes.push(Lane { queue, connections });
            threads.push(thread);
        }
        Ok(Self {
            lanes: lanes.into(),
            threads,
            stop,
        })
    }

    pub(super) fn handle(&self) -> Handle {
        Handle {
            lanes: Arc::clone(&self.lanes),
        }
    }

    pub(super) fn stop(self) {
        self.stop.cancel();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a serving thread had panicked");
            }
        }
    }
}

/// Gives connections to workers.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    lanes: Arc<[Lane]>,
}

impl Handle {
    /// To the worker with the fewest connections: they live long, so counting them balances better than chance.
    fn give(&self, accepted: Accepted) {
        let least = self
            .lanes
            .iter()
            .min_by_key(|lane| lane.connections.load(Ordering::Relaxed));
        if let Some(lane) = least {
            lane.connections.fetch_add(1, Ordering::Relaxed);
            // A worker that is gone means that the node is ending; so does the connection.
            let _ = lane.queue.send(accepted);
        }
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn work(
    mut queue: UnboundedReceiver<Accepted>,
    service: Service,
    patience: Patience,
    connections: Arc<AtomicUsize>,
) {
    while let Some(Accepted { stream, tls, slot }) = queue.recv().await {
        let (service, counted) = (service.clone(), Counted(Arc::clone(&connections)));
        tokio::spawn(async move {
            // Both are given back when the conversation ends, however it ends.
            let _held = (counted, slot);
            if let Ok(stream) = TcpStream::from_std(stream) {
                converse(stream, tls, service, patience).await;
            }
        });
    }
}

async fn converse(stream: TcpStream, tls: Option<Arc<ServerConfig>>, service: Service, patience: Patience) {
    // Answers are written whole; waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let socket = match tls {
        None => Socket::Plain(stream),
        Some(config) => {
            let handshake = TlsAcceptor::from(config).accept(stream);
            match tokio::time::timeout(HANDSHAKE, handshake).await {
                Ok(Ok(stream)) => Socket::Tls(Box::new(stream)),
                Ok(Err(_)) | Err(_) => return,
            }
        }
    };
    socket.acknowledge_at_once();
    // What was agreed on for TLS does not matter: the first bytes say which protocol it is.
    if let Some(Handover { stream, read }) = connection::serve(socket, &service, patience).await {
        library::serve(Replay::new(read, stream), service, patience).await;
    }
}

/// Accepts connections.
#[derive(Debug, Clone)]
pub(super) struct Acceptor {
    workers: Handle,
    slots: Arc<Semaphore>,
}

impl Acceptor {
    /// At most `most` connections at a time; more wait in the kernel's queue.
    pub(super) fn new(workers: Handle, most: usize) -> Self {
        Self {
            workers,
            slots: Arc::new(Semaphore::new(most)),
        }
    }

    pub(super) async fn plain(self, listener: TcpListener, stop: CancellationToken) {
        stop.run_until_cancelled(self.accept(listener, None)).await;
    }

    pub(super) async fn secure(self, listener: TcpListener, tls: Arc<ServerConfig>, stop: CancellationToken) {
        stop.run_until_cancelled(self.accept(listener, Some(tls))).await;
    }

    async fn accept(&self, listener: TcpListener, tls: Option<Arc<ServerConfig>>) {
        loop {
            let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else {
                return;
            };
            match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
                Ok(stream) => self.workers.give(Accepted {
                    stream,
                    tls: tls.clone(),
                    slot,
                }),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }
}
