//! What the agent says about itself: probes and metrics.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use russet_node::News;
use russet_telemetry::metrics::CONTENT_TYPE as OPENMETRICS;
use russet_telemetry::{BuildInfo, Metrics};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Nobody needs longer to say what they want; a connection that only listens would otherwise stay for ever.
const HEADERS: Duration = Duration::from_secs(10);
const LISTEN_AGAIN: Duration = Duration::from_secs(5);
/// Scrapers and probes are few.
const MOST_CONNECTIONS: usize = 32;

/// Which questions are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Metrics,
    Probes,
}

/// How the agent is.
#[derive(Debug)]
pub(crate) struct Pulse {
    pub(crate) metrics: Metrics,
    joined: Gauge,
    renewals: Counter,
    misses: Counter,
    certificate_ends: Gauge,
    /// Why the Node is not there, or not heard.
    trouble: Mutex<Option<String>>,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        let metrics = Metrics::new();
        metrics.build_info(BuildInfo {
            component: "tart-kubelet".to_owned(),
            version: crate::VERSION.to_owned(),
            commit: String::new(),
        });
        Self {
            joined: metrics.register(
                "tart_kubelet_node_registered",
                "Whether the Node is there and kept alive",
                Gauge::default(),
            ),
            renewals: metrics.register(
                "tart_kubelet_lease_renewals_total",
                "Renewals of the Node's Lease",
                Counter::default(),
            ),
            misses: metrics.register(
                "tart_kubelet_lease_failures_total",
                "Heartbeats that did not reach the API server",
                Counter::default(),
            ),
            certificate_ends: metrics.register(
                "tart_kubelet_certificate_expiration_seconds",
                "When the node's certificate ends, in seconds since 1970; 0 while there is none",
                Gauge::default(),
            ),
            metrics,
            trouble: Mutex::new(Some("the Node is not registered yet".to_owned())),
        }
    }

    /// Takes note of what the agent tells.
    pub(crate) fn hear(&self, news: News) {
        let trouble = match news {
            News::Joined => {
                self.joined.set(1);
                None
            }
            News::Renewed => {
                self.renewals.inc();
                None
            }
            News::Trying(why) => {
                self.joined.set(0);
                Some(why)
            }
            News::Missed(why) => {
                self.misses.inc();
                Some(why)
            }
            News::Certificate(until) => {
                self.certificate_ends.set(until.map_or(0, jiff::Timestamp::as_second));
                return;
            }
        };
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Whether the Node is there and heard.
    pub(crate) fn is_ready(&self) -> bool {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn answer(&self, page: Page, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let known = match page {
            Page::Metrics => path == "/metrics",
            Page::Probes => matches!(path, "/healthz" | "/readyz" | "/version"),
        };
        if !known {
            return text(StatusCode::NOT_FOUND, "there is nothing here\n");
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        }
        match path {
            "/metrics" => match self.metrics.encode() {
                Ok(body) => {
                    let mut response = text(StatusCode::OK, body);
                    let kind = http::HeaderValue::from_static(OPENMETRICS);
                    response.headers_mut().insert(CONTENT_TYPE, kind);
                    response
                }
                Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n"),
            },
            "/readyz" => match &*self.trouble.lock().unwrap_or_else(PoisonError::into_inner) {
                None => text(StatusCode::OK, "ok\n"),
                Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            },
            "/version" => text(StatusCode::OK, format!("{}\n", crate::VERSION)),
            _ => text(StatusCode::OK, "ok\n"),
        }
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}

/// Answers for as long as it is not dropped. An address that is taken is waited for: a Node is worth more than its probes.
pub(crate) async fn serve(address: SocketAddr, page: Page, pulse: Arc<Pulse>) {
    let mut told = false;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => {
                if !told {
                    tracing::warn!(%address, %error, ?page, "cannot listen there; it is tried again");
                    told = true;
                }
                tokio::time::sleep(LISTEN_AGAIN).await;
            }
        }
    };
    tracing::info!(%address, ?page, "listening");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => { connections.spawn(connection(stream, page, Arc::clone(&pulse))); }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(LISTEN_AGAIN).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(stream: tokio::net::TcpStream, page: Page, pulse: Arc<Pulse>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = pulse.answer(page, request.method(), request.uri().path());
        async move { Ok::<_, Infallible>(response) }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pulse: &Pulse, page: Page, path: &str) -> u16 {
        pulse.answer(page, &Method::GET, path).status().as_u16()
    }

    #[test]
    fn the_agent_is_ready_while_its_node_is_heard() {
        let pulse = Pulse::new();
        assert_eq!(status(&pulse, Page::Probes, "/healthz"), 200);
        assert_eq!(status(&pulse, Page::Probes, "/readyz"), 503);
        pulse.hear(News::Joined);
        assert_eq!(status(&pulse, Page::Probes, "/readyz"), 200);
        pulse.hear(News::Missed("could not renew the Lease".to_owned()));
        assert_eq!(status(&pulse, Page::Probes, "/readyz"), 503);
        pulse.hear(News::Renewed);
        assert_eq!(status(&pulse, Page::Probes, "/readyz"), 200);
    }

    #[test]
    fn each_page_is_on_its_own_port_and_nothing_else_is() {
        let pulse = Pulse::new();
        assert_eq!(status(&pulse, Page::Metrics, "/metrics"), 200);
        assert_eq!(status(&pulse, Page::Probes, "/metrics"), 404);
        assert_eq!(status(&pulse, Page::Metrics, "/healthz"), 404);
        assert_eq!(status(&pulse, Page::Probes, "/version"), 200);
        let posted = pulse.answer(Page::Metrics, &Method::POST, "/metrics");
        assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
        let metrics = pulse.metrics.encode().unwrap();
        assert!(metrics.contains("tart_kubelet_lease_renewals_total 0"), "{metrics}");
    }
}
