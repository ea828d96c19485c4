//! The life of one provider, and where it ends.

use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::client::Body;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Layer, Service};

/// Which of the things a provider does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A write to the API server.
    Kube,
    /// A call to Scaleway, other than those of the shared poll.
    Cloud,
}

/// What happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum How {
    /// The provider dies with the call unsent.
    DieBefore,
    /// The provider dies with the answer unread.
    DieAfter,
    /// The provider dies with the call on its way; it arrives a little later.
    DieWhile,
    /// The call fails and nothing was done.
    FailBefore,
    /// The call fails and everything was done.
    FailAfter,
}

/// The call at which something happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) place: Place,
    /// Only calls of this kind count; none: all do.
    pub(crate) label: Option<String>,
    /// Which of them.
    pub(crate) index: usize,
    pub(crate) how: How,
}

/// A fate that is waited for.
#[derive(Default)]
struct Armed {
    fate: Option<Fate>,
    count: usize,
    struck: Option<String>,
}

/// One provider's life.
pub(crate) struct Life {
    fate: Mutex<Armed>,
    log: Mutex<Vec<(Place, String)>>,
    dead: CancellationToken,
    haste: Option<Mutex<StdRng>>,
}

impl Life {
    pub(crate) fn new(fate: Option<Fate>) -> Arc<Self> {
        Self::make(fate, None)
    }

    /// One in which everything takes a random while.
    pub(crate) fn uneven(fate: Option<Fate>, seed: u64) -> Arc<Self> {
        Self::make(fate, Some(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    fn make(fate: Option<Fate>, haste: Option<Mutex<StdRng>>) -> Arc<Self> {
        let armed = Armed {
            fate,
            ..Armed::default()
        };
        Arc::new(Self {
            fate: Mutex::new(armed),
            log: Mutex::default(),
            dead: CancellationToken::new(),
            haste,
        })
    }

    /// What happens to this call.
    pub(crate) fn meet(&self, place: Place, label: &str) -> Option<How> {
        self.log.lock().unwrap().push((place, label.to_owned()));
        let mut armed = self.fate.lock().unwrap();
        let fate = armed
            .fate
            .clone()
            .filter(|fate| fate.place == place && fate.label.as_ref().is_none_or(|wanted| wanted == label))?;
        armed.count += 1;
        if armed.count != fate.index + 1 {
            return None;
        }
        armed.struck = Some(label.to_owned());
        Some(fate.how)
    }

    /// From now on this is waited for; nothing was done yet.
    pub(crate) fn arm(&self, fate: Fate) {
        *self.fate.lock().unwrap() = Armed {
            fate: Some(fate),
            ..Armed::default()
        };
        self.log.lock().unwrap().clear();
    }

    pub(crate) fn end(&self) {
        self.dead.cancel();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.dead.is_cancelled()
    }

    pub(crate) async fn ended(&self) {
        self.dead.cancelled().await;
    }

    /// What the fate struck, if it was met.
    pub(crate) fn struck(&self) -> Option<String> {
        self.fate.lock().unwrap().struck.clone()
    }

    /// Everything that was done, in order.
    pub(crate) fn log(&self) -> Vec<(Place, String)> {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn done(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    /// How long this call takes to set out.
    pub(crate) fn pause(&self) -> Duration {
        let haste = self
            .haste
            .as_ref()
            .map(|dice| dice.lock().unwrap().random_range(0..120));
        Duration::from_millis(haste.unwrap_or(0_u64))
    }
}

/// Stands between a provider and the API server.
#[derive(Clone)]
pub(crate) struct Cut(pub(crate) Arc<Life>);

impl<S> Layer<S> for Cut {
    type Service = Cutting<S>;

    fn layer(&self, inner: S) -> Cutting<S> {
        Cutting {
            life: Arc::clone(&self.0),
            inner,
        }
    }
}

pub(crate) struct Cutting<S> {
    life: Arc<Life>,
    inner: S,
}

/// Fields of the status of a Linux machine that nobody decides by.
const TOLD: [&str; 5] = [
    "conditions",
    "phase",
    "failureReason",
    "failureMessage",
    "observedGeneration",
];

/// Whether a request only tells people what a Linux machine waits for. How often that changes is a matter of timing, and whoever
/// dies then dies as well between the calls around it.
fn only_tells(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    if !path.ends_with("/status")
        || !["/scalewayinstance", "/scalewayelastic"]
            .iter()
            .any(|kind| path.contains(kind))
    {
        return false;
    }
    let body = request.body().try_clone().map(Body::collect_bytes);
    let body = body.and_then(|body| body.now_or_never()?.ok()).unwrap_or_default();
    let written: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let status = written["status"].as_object();
    status.is_some_and(|status| status.keys().all(|key| TOLD.contains(&key.as_str())))
}

/// What a request is about, without names: `PATCH machines/status`. None: it changes nothing that matters.
fn label(request: &Request<Body>) -> Option<String> {
    let method = request.method();
    if method == Method::GET || request.uri().path().contains("/events") || only_tells(request) {
        return None;
    }
    let parts: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let cluster_wide = ["nodes", "certificatesigningrequests"];
    let at = parts.iter().position(|part| *part == "namespaces");
    let kind = at.map_or_else(
        || parts.iter().find(|part| cluster_wide.contains(part)).copied(),
        |at| parts.get(at + 2).copied(),
    );
    // Three kinds of Secrets: what hosts join with, the key of the fleet, and the password of a host.
    let key = method == Method::POST || parts.last().is_some_and(|name| name.ends_with("-ssh"));
    let kind = match kind {
        Some("secrets") if parts.contains(&"kube-system") => Some("tokens"),
        Some("secrets") if key => Some("keys"),
        kind => kind,
    };
    let status = parts.last().filter(|part| **part == "status").map_or("", |_| "/status");
    Some(format!("{method} {}{status}", kind.unwrap_or("?")))
}

impl<S, B> Service<Request<Body>> for Cutting<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let label = label(&request);
        let life = Arc::clone(&self.life);
        // Nothing is sent before it is polled.
        let exchange = self.inner.call(request);
        Box::pin(async move {
            let lost = || -> BoxError { "the connection broke".into() };
            let Some(label) = label else {
                return if life.is_over() {
                    std::future::pending().await
                } else {
                    exchange.await
                };
            };
            tokio::time::sleep(life.pause()).await;
            if life.is_over() {
                return std::future::pending().await;
            }
            match life.meet(Place::Kube, &label) {
                None => exchange.await,
                Some(How::FailBefore) => Err(lost()),
                Some(How::FailAfter) => {
                    drop(exchange.await);
                    Err(lost())
                }
                Some(How::DieBefore | How::DieWhile) => {
                    life.end();
                    std::future::pending().await
                }
                Some(How::DieAfter) => {
                    drop(exchange.await);
                    life.end();
                    std::future::pending().await
                }
            }
        })
    }
}
