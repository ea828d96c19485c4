//! gRPC probes: `grpc.health.v1.Health/Check`, in the clear.

use super::ask::{Target, place};
use super::{Answer, http::AGENT};
use crate::time::in_words;
use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2;
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::GRPCAction;
use prost::Message;
use std::io;
use std::time::Duration;

/// The most that an answer may have.
const LONGEST: usize = 64 * 1024;

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckRequest {
    #[prost(string, tag = "1")]
    pub(super) service: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckResponse {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
}

/// What a server said.
enum Reply {
    Status(i32),
    Refused { code: String, message: String },
}

pub(super) async fn probe(action: &GRPCAction, timeout: Duration, target: Target<'_>) -> Answer {
    let host = target.address.to_string();
    let Some(port) = u16::try_from(action.port).ok().filter(|port| *port > 0) else {
        return Answer::Unknown(format!("invalid port number: {}", action.port));
    };
    let at = place(&host, port);
    let limit = in_words(timeout);
    let late = tokio::time::sleep(timeout);
    tokio::pin!(late);
    let stream = tokio::select! {
        biased;
        stream = target.dial.dial(&host, port) => stream,
        () = &mut late => {
            let words = format!("timeout: failed to connect service \"{at}\" within {limit}: context deadline exceeded");
            return Answer::Bad(words);
        }
    };
    let stream = match stream {
        Ok(stream) => stream,
        Err(error) => return Answer::Bad(format!("error: failed to connect service at \"{at}\": {error}")),
    };
    let service = action.service.clone().unwrap_or_default();
    let reply = tokio::select! {
        biased;
        reply = check(stream, &at, service) => reply,
        () = &mut late => return Answer::Bad(format!("timeout: health rpc did not complete within {limit}")),
    };
    match reply {
        Ok(Reply::Status(1)) => Answer::Good,
        Ok(Reply::Status(status)) => Answer::Bad(format!("service unhealthy (responded with \"{}\")", word(status))),
        Ok(Reply::Refused { code, message }) if code == "12" => Answer::Bad(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
        )),
        Ok(Reply::Refused { code, message }) => {
            Answer::Bad(format!("error: health rpc probe failed: code {code}: {message}"))
        }
        Err(error) => Answer::Bad(format!("error: health rpc probe failed: {error}")),
    }
}

fn word(status: i32) -> String {
    match status {
        0 => "UNKNOWN".to_owned(),
        2 => "NOT_SERVING".to_owned(),
        3 => "SERVICE_UNKNOWN".to_owned(),
        other => other.to_string(),
    }
}

async fn check(stream: tokio::net::TcpStream, at: &str, service: String) -> io::Result<Reply> {
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let message = CheckRequest { service }.encode_to_vec();
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).map_err(io::Error::other)?);
    frame.put_slice(&message);
    let request = Request::post(format!("http://{at}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", AGENT)
        .body(Full::new(frame.freeze()))
        .map_err(io::Error::other)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let (parts, body) = response.into_parts();
        if !parts.status.is_success() {
            return Err(io::Error::other(format!("unexpected HTTP status {}", parts.status)));
        }
        let body = Limited::new(body, LONGEST).collect().await.map_err(io::Error::other)?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        read(&parts.headers, &trailers, &body.to_bytes())
    };
    tokio::pin!(answer, connection);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        _ = &mut connection => answer.await,
    }
}

fn read(headers: &HeaderMap, trailers: &HeaderMap, body: &Bytes) -> io::Result<Reply> {
    let say = |name: &str| {
        let value = trailers.get(name).or_else(|| headers.get(name));
        value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    if let Some(code) = say("grpc-status").filter(|code| code != "0") {
        return Ok(Reply::Refused {
            code,
            message: say("grpc-message").unwrap_or_default(),
        });
    }
    let message = body
        .get(5..)
        .ok_or_else(|| io::Error::other("the answer is cut short"))?;
    if body.first() != Some(&0) {
        return Err(io::Error::other("the answer is compressed, which was not asked for"));
    }
    let response = CheckResponse::decode(message).map_err(io::Error::other)?;
    Ok(Reply::Status(response.status))
}
