//! An API server that answers as a test wants it to.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::stream::pending;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

/// What is asked, so far: `GET /path?query`. The node has joined for as long as this is there.
pub(super) struct Asked {
    lines: Arc<Mutex<Vec<String>>>,
    _joined: watch::Sender<Option<Client>>,
}

impl Asked {
    /// How often something was asked for that contains this.
    pub(super) fn times(&self, part: &str) -> usize {
        let all = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|line| line.contains(part)).count()
    }
}

/// A client of a server that answers each question with a status and an object; without an object the answer never ends.
pub(super) fn api_server(
    answer: impl Fn(&str) -> (u16, Option<Value>) + Send + Sync + 'static,
) -> (watch::Receiver<Option<Client>>, Asked) {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&lines);
    let service = tower::service_fn(move |request: Request<Body>| {
        let line = format!("{} {}", request.method(), request.uri());
        let (code, object) = answer(&line);
        log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        let body = match object {
            Some(object) => Full::from(object.to_string()).boxed(),
            None => StreamBody::new(pending::<Result<Frame<Bytes>, Infallible>>()).boxed(),
        };
        let response = Response::builder().status(code).body(body).unwrap();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let (joined, client) = watch::channel(Some(Client::new(service, "default")));
    let asked = Asked { lines, _joined: joined };
    (client, asked)
}

/// The answer to a node that asks for what none of its Pods is known to need.
pub(super) fn refusal() -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "no relationship found between node and this object",
    })
}
