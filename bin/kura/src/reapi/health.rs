//! `grpc.health.v1`: whether the node serves, asked or watched.

use super::body::Body;
use super::call::Call;
use super::message::{self, encode};
use super::status::Status;
use crate::lifecycle::State;
use hyper::body::Incoming;
use prost::Message as _;
use russet_reapi::proto::health::{HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus};
use tokio::sync::mpsc;

/// The services we answer for, and the node as a whole.
const SERVICES: [&str; 5] = [
    "",
    "build.bazel.remote.execution.v2.ActionCache",
    "build.bazel.remote.execution.v2.Capabilities",
    "build.bazel.remote.execution.v2.ContentAddressableStorage",
    "google.bytestream.ByteStream",
];

async fn known(call: &Call<'_>, incoming: Incoming) -> Result<bool, Status> {
    let message = message::only(incoming, 64 * 1024, call.stall, &call.service.shared.budget).await?;
    let request =
        HealthCheckRequest::decode(message.bytes).map_err(|_| Status::invalid("the message cannot be decoded"))?;
    Ok(SERVICES.contains(&request.service.as_str()))
}

fn serving(call: &Call<'_>) -> ServingStatus {
    if call.service.shared.lifecycle.state() == State::Serving {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}

fn told(status: ServingStatus) -> bytes::Bytes {
    encode(&HealthCheckResponse { status: status as i32 })
}

/// Whether the node serves.
pub(super) async fn check(call: &Call<'_>, incoming: Incoming) -> Result<Body, Status> {
    if known(call, incoming).await? {
        Ok(Body::message(told(serving(call))))
    } else {
        Err(Status::not_found("no such service"))
    }
}

/// Whether the node serves, and when it stops.
pub(super) async fn watch(call: &Call<'_>, incoming: Incoming) -> Result<Body, Status> {
    let (send, receive) = mpsc::channel(2);
    if !known(call, incoming).await? {
        // Services do not come into being later, but the protocol wants the stream to stay open.
        let _ = send.try_send(Ok(told(ServingStatus::ServiceUnknown)));
        tokio::spawn(async move { send.closed().await });
        return Ok(Body::Stream(receive));
    }
    let now = serving(call);
    let _ = send.try_send(Ok(told(now)));
    let draining = call.service.shared.lifecycle.draining();
    tokio::spawn(async move {
        tokio::select! {
            () = send.closed() => return,
            () = draining.cancelled() => {}
        }
        if now == ServingStatus::Serving {
            let _ = send.try_send(Ok(told(ServingStatus::NotServing)));
        }
    });
    Ok(Body::Stream(receive))
}
