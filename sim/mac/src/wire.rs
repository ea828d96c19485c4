//! What a machine answers on its address, until SSH takes its place.
//!
//! | Call | Answer |
//! | --- | --- |
//! | `POST /join` with [`Join`] | 202, the rest happens in the background |
//! | `GET /state` | 200 with [`crate::State`] |
//!
//! Both want `Authorization: Basic <user:password of the installation>`, else 401. A body that makes no sense is 400 and
//! `{"message": "<a sentence>"}`.

use crate::join::Join;
use crate::machine::Machine;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use russet_telemetry::Secret;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

const MAX_BODY: usize = 1 << 20;
/// Nobody needs longer to say what they want; a connection that only listens would otherwise stay for ever.
const HEADERS: Duration = Duration::from_secs(10);

pub(crate) async fn connection(stream: TcpStream, machine: Arc<Machine>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let machine = Arc::clone(&machine);
        async move { Ok::<_, Infallible>(answer(request, &machine).await) }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn answer(request: Request<Incoming>, machine: &Machine) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let allowed = match head.uri.path() {
        "/join" => Method::POST,
        "/state" => Method::GET,
        path => return refusal(StatusCode::NOT_FOUND, format!("there is no {path} on this machine")),
    };
    if head.method != allowed {
        let message = format!("{} wants {allowed}", head.uri.path());
        return with(
            refusal(StatusCode::METHOD_NOT_ALLOWED, message),
            ALLOW,
            allowed.as_str(),
        );
    }
    if !is_admitted(&head.headers, machine) {
        let message = "wrong user or password for this installation of the machine";
        let challenge = "Basic realm=\"mac\"";
        return with(refusal(StatusCode::UNAUTHORIZED, message), WWW_AUTHENTICATE, challenge);
    }
    if allowed == Method::GET {
        return reply(StatusCode::OK, &json!(machine.state()));
    }
    let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
        return refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is larger than 1 MiB or broke off",
        );
    };
    match Join::parse(&body.to_bytes(), &machine.provider_id()) {
        Ok(join) => {
            machine.order(join);
            reply(StatusCode::ACCEPTED, &json!(machine.state()))
        }
        Err(error) => refusal(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

fn is_admitted(headers: &HeaderMap, machine: &Machine) -> bool {
    let given = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Basic "))
        .and_then(|encoded| BASE64.decode(encoded.trim()).ok())
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .map(Secret::new);
    given
        .as_ref()
        .and_then(|given| given.expose().split_once(':'))
        .is_some_and(|(user, password)| machine.admits(user, password.as_bytes()))
}

fn refusal(status: StatusCode, message: impl Into<String>) -> Response<Full<Bytes>> {
    reply(status, &json!({"message": message.into()}))
}

fn reply(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    with(response, CONTENT_TYPE, "application/json")
}

fn with(mut response: Response<Full<Bytes>>, name: HeaderName, value: &str) -> Response<Full<Bytes>> {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
    response
}
