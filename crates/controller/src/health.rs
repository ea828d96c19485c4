//! Probes and metrics over HTTP.
//!
//! `/healthz` says only that the process lives: restarting it cures nothing that a slow API server or a missing CRD causes.
//! `/readyz` lists named checks; while one fails, the answer is 503 and says which and why.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use russet_telemetry::Metrics;
use tokio::net::TcpListener;

type Checks = BTreeMap<String, Result<(), String>>;

/// All checks of a process. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Health {
    checks: Arc<Mutex<Checks>>,
}

impl Health {
    /// No checks: ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check, which fails until it is told otherwise.
    pub fn check(&self, name: &str) -> Check {
        let check = Check {
            health: self.clone(),
            name: name.to_owned(),
        };
        check.fail("starting");
        check
    }

    /// The checks that fail, with their reasons.
    pub fn failing(&self) -> Vec<(String, String)> {
        let checks = self.lock();
        let failing = checks
            .iter()
            .filter_map(|(name, state)| Some((name.clone(), state.clone().err()?)));
        failing.collect()
    }

    /// One line per check, in the form that kube-apiserver uses.
    fn report(&self) -> (bool, String) {
        let checks = self.lock();
        let mut text = String::new();
        for (name, state) in checks.iter() {
            // Writing to a String cannot fail.
            let _ = match state {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(reason) => writeln!(text, "[-]{name} failed: {reason}"),
            };
        }
        let ready = checks.values().all(Result::is_ok);
        text.push_str(if ready { "ready\n" } else { "not ready\n" });
        (ready, text)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Checks> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One named check. Clones speak for the same check.
#[derive(Debug, Clone)]
pub struct Check {
    health: Health,
    name: String,
}

impl Check {
    /// It holds.
    pub fn pass(&self) {
        self.health.lock().insert(self.name.clone(), Ok(()));
    }

    /// It does not, and this is why. Reasons are shown to whoever can reach the port: no secrets.
    pub fn fail(&self, reason: &str) {
        self.health.lock().insert(self.name.clone(), Err(reason.to_owned()));
    }
}

/// `/healthz`, `/readyz` and `/version`.
pub fn probes(health: Health, version: &'static str) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/version", get(move || async move { format!("{version}\n") }))
        .with_state(health)
}

/// `/metrics`.
pub fn metrics(metrics: Metrics) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state(metrics)
}

async fn readyz(State(health): State<Health>) -> (StatusCode, String) {
    let (ready, text) = health.report();
    (
        if ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        },
        text,
    )
}

async fn scrape(State(metrics): State<Metrics>) -> Response {
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, russet_telemetry::metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("failed to encode metrics: {error}\n"),
        )
            .into_response(),
    }
}

/// Serves until `stop`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn get(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn readiness_names_what_is_missing_and_health_does_not_care() {
        let health = Health::new();
        let crds = health.check("crds");
        let cache = health.check("cache");
        cache.pass();
        crds.fail("waiting for CRD runnerpools.tuist.dev");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stopped = async {
            let _ = stopped.await;
        };
        let router = probes(health.clone(), "0.1.0+b").merge(metrics(Metrics::new()));
        let server = tokio::spawn(serve(listener, router, stopped));

        let answer = get(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(
            answer.contains("[-]crds failed: waiting for CRD runnerpools.tuist.dev"),
            "{answer}"
        );
        assert!(answer.contains("[+]cache ok"), "{answer}");
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));

        crds.pass();
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(health.failing().is_empty());
        assert!(get(address, "/version").await.ends_with("0.1.0+b\n"));
        let scraped = get(address, "/metrics").await;
        assert!(
            scraped.contains("application/openmetrics-text; version=1.0.0; charset=utf-8"),
            "{scraped}"
        );
        stop.send(()).unwrap();
        server.await.unwrap().unwrap();
    }
}
