//! The server: TLS, HTTP/1.1, and what each path does.
//!
//! ```text
//! listener ─► Lobby ─► TLS (client certificate asked for, not required) ─► Route ─► Gate ─┬─ plain answers, logs
//!               └─ idle strangers leave when others come                                  └─ 101 ─► a session of its own
//! ```
//!
//! HTTP/2 is not offered: every upgrade comes over HTTP/1.1 anyway, and an apiserver falls back for the rest.

mod answer;
mod line;
mod lobby;
mod logs;
mod service;
mod tls;
mod upgrade;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::line::Begun;
use self::lobby::{Guest, Lobby};
use self::service::Service;
pub use self::tls::{Serving, TlsError};
use crate::auth::{Gate, Presented, Reviewer};
use crate::backend::Backend;
use crate::session::Pace;

/// A client that has not shown its hand by then is not one.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Between requests of a caller without a certificate, who may be anybody and takes a seat all the same.
const STRANGER_IDLE: Duration = Duration::from_secs(30);
/// How long a failing `accept` is left alone: it fails for want of file descriptors, which come back by waiting.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A peer that vanished without a word is noticed after about a minute and a half.
const KEEPALIVE: Duration = Duration::from_mins(1);
const KEEPALIVE_STEP: Duration = Duration::from_secs(10);

/// Deadlines and bounds. The defaults are those of a stock kubelet where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once, sessions included. Further ones wait to be served. Each needs a file descriptor, and a session may need
    /// more on the other side.
    pub connections: usize,
    /// Connections among them whose callers have not said yet who they are. When there are more, the one that has waited longest is
    /// closed.
    pub strangers: usize,
    /// From the upgrade to the last stream that was announced.
    pub stream_creation: Duration,
    /// A session without a byte in either direction.
    pub stream_idle: Duration,
    /// A connection between two requests.
    pub request_idle: Duration,
    /// One request that is not a session, such as a followed log. A connection takes no new ones after as long.
    pub request_life: Duration,
    /// Between questions to a streaming peer whether it is there.
    pub ping: Duration,
    /// A forwarded connection whose target does not read, while others may wait behind it.
    pub forward_stall: Duration,
    /// Streams of one port-forward, two for each forwarded connection.
    pub forward_streams: usize,
    /// Bytes received and not yet read by their target, per session.
    pub session_memory: usize,
    /// Output of `/run`, which is not streamed.
    pub run_output: usize,
    /// For sessions to end when the server stops: the first half by themselves, the second half to tell their callers that they were
    /// ended.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            strangers: 64,
            stream_creation: Duration::from_secs(30),
            stream_idle: Duration::from_hours(4),
            request_idle: Duration::from_secs(90),
            request_life: Duration::from_hours(4),
            ping: Duration::from_secs(15),
            forward_stall: Duration::from_mins(2),
            forward_streams: 512,
            session_memory: 4 * 1024 * 1024,
            run_output: 4 * 1024 * 1024,
            drain: Duration::from_secs(5),
        }
    }
}

impl Limits {
    fn pace(&self) -> Pace {
        Pace {
            creation: self.stream_creation,
            idle: self.stream_idle,
            ping: self.ping,
            stall: self.forward_stall,
            memory: self.session_memory,
            forwards: self.forward_streams,
        }
    }
}

/// What a server is made from.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of this node: rights are asked for on it.
    pub node: String,
    /// Authorities of client certificates, as PEM: the cluster's client CA. A node may not read it from the cluster, so it comes
    /// by file.
    pub client_ca: String,
    /// What the server shows; replaced when it is renewed.
    pub serving: Serving,
    /// Deadlines and bounds.
    pub limits: Limits,
}

/// Why a server could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The kubelet API of one node.
pub struct Server<B, R> {
    service: Arc<Service<B, R>>,
    tls: TlsAcceptor,
    limits: Limits,
}

impl<B, R> std::fmt::Debug for Server<B, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// What is known of a connection before its first request.
#[derive(Debug, Clone)]
struct Caller {
    presented: Option<Presented>,
    address: SocketAddr,
    /// Held by the connection and by the session it may turn into.
    place: Arc<Place>,
    /// What its first request asks, if that was too long.
    query: Arc<line::Set>,
}

/// What a connection takes of the server.
#[derive(Debug)]
struct Place {
    guest: Guest,
    _seat: OwnedSemaphorePermit,
}

impl<B: Backend, R: Reviewer> Server<B, R> {
    /// Checks the options; listens to nothing yet.
    pub fn new(options: Options, backend: Arc<B>, reviewer: R) -> Result<Self, Error> {
        let tls = tls::config(&options.client_ca, options.serving)?;
        let service = Service {
            backend,
            gate: Gate::new(options.node, reviewer),
            limits: options.limits,
            sessions: TaskTracker::new(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
        };
        Ok(Self {
            service: Arc::new(service),
            tls: TlsAcceptor::from(Arc::new(tls)),
            limits: options.limits,
        })
    }

    /// Serves until `shutdown`, then gives requests and sessions [`Limits::drain`] to end.
    pub async fn run(self, listener: TcpListener, shutdown: CancellationToken) {
        let seats = Arc::new(Semaphore::new(self.limits.connections));
        let lobby = Lobby::new(self.limits.strangers);
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = shutdown.cancelled() => break,
            };
            let (socket, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    lobby.make_room();
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let seat = tokio::select! {
                seat = take_seat(&seats, &lobby) => seat,
                () = shutdown.cancelled() => break,
            };
            // The semaphore is never closed.
            let Some(seat) = seat else { break };
            let place = Place {
                guest: lobby.enter(),
                _seat: seat,
            };
            let connection = serve(
                self.tls.clone(),
                self.service.clone(),
                socket,
                address,
                Arc::new(place),
                shutdown.clone(),
            );
            connections.spawn(connection);
        }
        drop(listener);
        self.drain(&connections).await;
    }

    /// Lets everything end, first by itself, then by telling it, then at once.
    async fn drain(&self, connections: &TaskTracker) {
        connections.close();
        self.service.sessions.close();
        let half = self.limits.drain / 2;
        if timeout(half, self.ended(connections)).await.is_err() {
            tracing::info!("ending the sessions that are still open");
            self.service.stop.cancel();
            if timeout(half, self.ended(connections)).await.is_err() {
                tracing::debug!("some sessions could not tell their callers that they were ended");
            }
        }
        self.service.cut.cancel();
        self.ended(connections).await;
    }

    async fn ended(&self, connections: &TaskTracker) {
        connections.wait().await;
        self.service.sessions.wait().await;
    }
}

/// When all seats are taken, somebody who has not said who they are gives up theirs.
async fn take_seat(seats: &Arc<Semaphore>, lobby: &Lobby) -> Option<OwnedSemaphorePermit> {
    if let Ok(seat) = seats.clone().try_acquire_owned() {
        return Some(seat);
    }
    lobby.make_room();
    seats.clone().acquire_owned().await.ok()
}

async fn serve<B: Backend, R: Reviewer>(
    tls: TlsAcceptor,
    service: Arc<Service<B, R>>,
    socket: TcpStream,
    address: SocketAddr,
    place: Arc<Place>,
    shutdown: CancellationToken,
) {
    prepare(&socket);
    let handshake = tokio::select! {
        handshake = timeout(HANDSHAKE, tls.accept(socket)) => handshake,
        () = place.guest.dismissed() => return tracing::debug!(%address, "a stranger had to make room"),
        () = shutdown.cancelled() => return,
    };
    let mut stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%address, %error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!(%address, "a TLS handshake took too long"),
    };
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let presented = certificates.first().and_then(Presented::of);
    let stop = service.stop.clone();
    let life = service.limits.request_life;
    let idle = match &presented {
        Some(_) => service.limits.request_idle,
        None => service.limits.request_idle.min(STRANGER_IDLE),
    };
    let mut begun = (Bytes::new(), None);
    // Not from strangers, whose lines would be kept for anybody.
    if presented.is_some() {
        place.guest.known();
        let first = tokio::select! {
            first = timeout(idle, line::first(&mut stream)) => first,
            () = shutdown.cancelled() => return,
        };
        begun = match first {
            Ok(Ok(first)) => first,
            Ok(Err(error)) => return tracing::debug!(%address, %error, "a connection ended before its first request"),
            Err(_) => return tracing::debug!(%address, "nothing was asked on a connection"),
        };
    }
    let (read, query) = begun;
    let stream = Begun { read, rest: stream };
    let caller = Caller {
        presented,
        address,
        place: place.clone(),
        query: Arc::new(line::Set::aside(query)),
    };
    let handler = service_fn(move |request| {
        let (service, caller) = (service.clone(), caller.clone());
        async move { Ok::<_, std::convert::Infallible>(service.answer(&caller, request).await) }
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(idle)
            .serve_connection(TokioIo::new(stream), handler)
            .with_upgrades()
    );
    let retired = async {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = sleep(life) => {}
        }
    };
    let result = tokio::select! {
        result = &mut connection => result,
        () = place.guest.dismissed() => return tracing::debug!(%address, "a stranger had to make room"),
        () = retired => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                result = connection => result,
                () = stop.cancelled() => return,
                () = sleep(life) => return,
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%address, %error, "a connection ended early");
    }
}

/// Small writes go out at once, and a peer that vanished is noticed. Neither is worth refusing a connection for.
fn prepare(socket: &TcpStream) {
    use rustix::net::sockopt;

    let _ = socket.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, KEEPALIVE);
    let _ = sockopt::set_tcp_keepintvl(socket, KEEPALIVE_STEP);
    let _ = sockopt::set_tcp_keepcnt(socket, 3);
}
