//! Metrics of guests, for scrapers outside.
//!
//! Nobody but the host can reach a guest. A Pod with the annotations `prometheus.io/scrape: "true"` and `prometheus.io/port` is
//! scraped at that port of the Node: GET and HEAD of `/metrics`, by who is allowed, and nothing else. It is a proxy of requests and
//! not of bytes: a scraper that keeps its connection would hang on a guest that was replaced meanwhile.

pub(crate) mod dial;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::config::Cidr;

const HEADERS: Duration = Duration::from_secs(10);
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);
const MOST_CONNECTIONS: usize = 16;
/// How long a guest may take to accept.
const DIAL: Duration = Duration::from_secs(5);
/// How long it may take to begin its answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long an address is believed. One that is not known is asked for again each time.
const ADDRESS: Duration = Duration::from_secs(30);
/// What of a request a guest is told, and what of its answer a scraper is told.
const ASKED: [HeaderName; 3] = [
    http::header::ACCEPT,
    http::header::ACCEPT_ENCODING,
    HeaderName::from_static("x-prometheus-scrape-timeout-seconds"),
];
const ANSWERED: [HeaderName; 3] = [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LENGTH];

type Body = BoxBody<Bytes, hyper::Error>;

/// Knows where a guest is.
pub trait Whereabouts: Send + Sync + 'static {
    /// The guest's address now; why it is not known otherwise.
    fn address(&self) -> BoxFuture<'_, Result<IpAddr, String>>;
}

/// Who may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    ranges: Vec<Cidr>,
    guests: Vec<Cidr>,
}

impl Allowed {
    /// These ranges, but never guests of this host: what one of them says is no business of another.
    pub fn new(ranges: Vec<Cidr>, guests: Vec<Cidr>) -> Self {
        Self { ranges, guests }
    }

    /// Whether somebody there may.
    pub fn admits(&self, address: IpAddr) -> bool {
        let within = |ranges: &[Cidr]| ranges.iter().any(|range| range.contains(address));
        within(&self.ranges) && !within(&self.guests)
    }
}

/// A port of the Node that leads to a guest. It is given up when this is dropped.
#[derive(Debug)]
pub struct Forward {
    listener: TcpListener,
}

impl Forward {
    /// Takes the port; a Pod is reached at the Node only once that worked.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers for as long as it is not dropped.
    pub async fn run(self, port: u16, allowed: Allowed, guest: Arc<dyn Whereabouts>) {
        let relay = Arc::new(Relay {
            port,
            allowed,
            guest,
            known: Mutex::new(None),
        });
        let mut connections = JoinSet::new();
        // Whoever may not ask hears so, and takes no place from those who may: a guest that only holds connections would keep
        // scrapers from its neighbour.
        let mut strangers = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                    Ok((stream, from)) => {
                        let seats = if relay.allowed.admits(from.ip()) { &mut connections } else { &mut strangers };
                        if seats.len() < MOST_CONNECTIONS {
                            seats.spawn(connection(stream, from.ip(), Arc::clone(&relay)));
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "could not accept a scraper");
                        tokio::time::sleep(ACCEPT_AGAIN).await;
                    }
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                Some(_) = strangers.join_next(), if !strangers.is_empty() => {}
            }
        }
    }
}

async fn connection(stream: TcpStream, from: IpAddr, relay: Arc<Relay>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let relay = Arc::clone(&relay);
        async move { Ok::<_, Infallible>(relay.answer(&request, from).await) }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        tracing::debug!(%error, "a scraper left early");
    }
}

struct Relay {
    port: u16,
    allowed: Allowed,
    guest: Arc<dyn Whereabouts>,
    known: Mutex<Option<(IpAddr, Instant)>>,
}

/// Why a guest was not reached. For the log: a scraper learns no more than that.
#[derive(Debug, thiserror::Error)]
enum Unreached {
    #[error("its address is not known: {0}")]
    Unknown(String),
    #[error("it does not accept at {0}: {1}")]
    Dial(SocketAddr, io::Error),
    #[error("it does not accept at {0}: no answer")]
    DialTimeout(SocketAddr),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("it does not answer")]
    Silent,
}

impl Relay {
    async fn answer(&self, request: &Request<Incoming>, from: IpAddr) -> Response<Body> {
        if !self.allowed.admits(from) {
            return text(StatusCode::FORBIDDEN, "forbidden\n");
        }
        if request.uri().path() != "/metrics" {
            return text(StatusCode::NOT_FOUND, "there is nothing here but /metrics\n");
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        }
        match self.ask(request).await {
            Ok(answer) => answer,
            Err(why) => {
                self.forget();
                tracing::debug!(port = self.port, %why, "a guest was not scraped");
                text(StatusCode::BAD_GATEWAY, "bad gateway\n")
            }
        }
    }

    async fn ask(&self, request: &Request<Incoming>) -> Result<Response<Body>, Unreached> {
        let address = SocketAddr::new(self.address().await?, self.port);
        let stream = tokio::time::timeout(DIAL, dial::dial(address))
            .await
            .map_err(|_| Unreached::DialTimeout(address))?
            .map_err(|error| Unreached::Dial(address, error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let mut asked = Request::new(Empty::<Bytes>::new());
        *asked.method_mut() = request.method().clone();
        *asked.uri_mut() = http::Uri::from_static("/metrics");
        if let Some(query) = request.uri().path_and_query() {
            *asked.uri_mut() = http::Uri::from(query.clone());
        }
        copy(request.headers(), asked.headers_mut(), &ASKED);
        if let Ok(host) = address.to_string().parse() {
            asked.headers_mut().insert(HOST, host);
        }
        // It ends with the answer: nobody asks twice over it.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a guest ended its answer early");
            }
        });
        let (head, body) = tokio::time::timeout(ANSWER, sender.send_request(asked))
            .await
            .map_err(|_| Unreached::Silent)??
            .into_parts();
        let mut answer = Response::new(body.boxed());
        *answer.status_mut() = head.status;
        copy(&head.headers, answer.headers_mut(), &ANSWERED);
        Ok(answer)
    }

    async fn address(&self) -> Result<IpAddr, Unreached> {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((address, at)) = known
            && at.elapsed() < ADDRESS
        {
            return Ok(address);
        }
        let address = self.guest.address().await.map_err(Unreached::Unknown)?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((address, Instant::now()));
        Ok(address)
    }

    fn forget(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn copy(from: &HeaderMap, to: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        for value in from.get_all(name) {
            to.append(name.clone(), value.clone());
        }
    }
}

fn text(status: StatusCode, said: &'static str) -> Response<Body> {
    let mut response = Response::new(
        Full::new(Bytes::from_static(said.as_bytes()))
            .map_err(|never| match never {})
            .boxed(),
    );
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
