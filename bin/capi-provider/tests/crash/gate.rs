//! Stands between a provider and Scaleway.

use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use futures::FutureExt as _;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::clock::WorldClock;
use crate::life::{How, Life, Place};
use crate::replica::Scene;

/// Who knows what the calls are about.
pub(crate) trait Watchman: Send + Sync {
    /// What a call is about, without ids. None: it belongs to the shared poll, whose order is nobody's.
    fn label(&self, call: &Call) -> Option<String>;

    /// A call is about to have an effect.
    fn sees(&self, _: &Call) {}
}

#[derive(Clone)]
struct Gate {
    life: Arc<Life>,
    watchman: Arc<dyn Watchman>,
    clock: WorldClock,
    upstream: String,
    client: reqwest::Client,
}

pub(crate) struct Call {
    pub(crate) method: Method,
    /// With the query.
    pub(crate) path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Call {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// An open gate, and where it is.
pub(crate) struct Open {
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn open(scene: &impl Scene, life: Arc<Life>) -> Result<Open> {
    let gate = Gate {
        life,
        watchman: scene.watchman(),
        clock: scene.clock().clone(),
        upstream: scene.sim().url().to_owned(),
        // Without TLS there is nobody to vouch for, and the authorities of the system take long to read.
        client: reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?,
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let router = Router::new().fallback(pass).with_state(gate);
    let task = tokio::spawn(async move {
        axum::serve(listener, router).await.expect("a loopback listener");
    });
    Ok(Open { url, task })
}

async fn pass(State(gate): State<Gate>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let path = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let call = Call {
        method,
        path,
        headers,
        body,
    };
    let life = Arc::clone(&gate.life);
    let Some(label) = gate.watchman.label(&call) else {
        return if life.is_over() {
            std::future::pending().await
        } else {
            gate.forward(call).await
        };
    };
    tokio::time::sleep(life.pause()).await;
    if life.is_over() {
        return std::future::pending().await;
    }
    let broken = || answer(StatusCode::BAD_GATEWAY, Body::from("bad gateway"));
    match life.meet(Place::Cloud, &label) {
        None => gate.forward(call).await,
        Some(How::FailBefore) => broken(),
        Some(How::FailAfter) => {
            gate.forward(call).await;
            broken()
        }
        Some(How::DieBefore) => {
            life.end();
            std::future::pending().await
        }
        Some(How::DieAfter) => {
            gate.forward(call).await;
            life.end();
            std::future::pending().await
        }
        Some(How::DieWhile) => {
            let clock = gate.clock.clone();
            clock.lose(async move { drop(gate.forward(call).await) }.boxed()).await;
            life.end();
            std::future::pending().await
        }
    }
}

fn answer(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

impl Gate {
    async fn forward(&self, call: Call) -> Response {
        self.watchman.sees(&call);
        let url = format!("{}{}", self.upstream, call.path);
        let mut headers = call.headers;
        headers.remove("host");
        headers.remove("content-length");
        let sent = self.client.request(call.method, url).headers(headers).body(call.body);
        let got = match sent.send().await {
            Ok(got) => got,
            Err(error) => return answer(StatusCode::BAD_GATEWAY, Body::from(error.to_string())),
        };
        let (status, headers) = (got.status(), got.headers().clone());
        let mut response = answer(status, Body::from(got.bytes().await.unwrap_or_default()));
        for (name, value) in &headers {
            if name != "transfer-encoding" && name != "connection" {
                response.headers_mut().insert(name, value.clone());
            }
        }
        response
    }
}
