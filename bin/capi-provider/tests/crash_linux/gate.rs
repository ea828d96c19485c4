//! Stands between a provider and Scaleway.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use tokio::task::JoinHandle;

use crate::life::{How, Life, Place};

/// How much later a call arrives whose sender is dead: within the time that calls may be in flight.
const LATE: Duration = Duration::from_secs(3);

#[derive(Clone)]
struct Gate {
    life: Arc<Life>,
    upstream: String,
    client: reqwest::Client,
}

struct Call {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
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

pub(crate) async fn open(life: Arc<Life>, upstream: &str) -> Result<Open> {
    let gate = Gate {
        life,
        upstream: upstream.to_owned(),
        client: reqwest::Client::builder().no_proxy().build()?,
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let router = Router::new().fallback(pass).with_state(gate);
    let task = tokio::spawn(async move {
        axum::serve(listener, router).await.expect("a loopback listener");
    });
    Ok(Open { url, task })
}

/// What a call is about, without ids. None: it changes nothing. Reads are many and their order is nobody's; that one fails is
/// the same as that the provider looks again.
fn label(call: &Call) -> Option<String> {
    if call.method == Method::GET {
        return None;
    }
    let path = call.path.split('?').next().unwrap_or_default();
    let words = path
        .split('/')
        .filter(|part| !part.is_empty() && !part.chars().any(|c| c.is_ascii_digit()));
    let mut label = format!("{} {}", call.method, words.collect::<Vec<_>>().join("/"));
    let body: serde_json::Value = serde_json::from_slice(&call.body).unwrap_or_default();
    if let Some(action) = body["action"].as_str() {
        label.push(' ');
        label.push_str(action);
    }
    if call.method == Method::PATCH && body.get("tags").is_some() {
        let taken = body["tags"].to_string().contains("machine-uid=");
        label.push_str(if taken { " tag" } else { " untag" });
    }
    Some(label)
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
    let Some(label) = label(&call) else {
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
            tokio::spawn(async move {
                tokio::time::sleep(LATE).await;
                gate.forward(call).await;
            });
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
