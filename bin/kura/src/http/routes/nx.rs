//! Nx: `PUT` and `GET /v1/cache/{hash}`. Nx sends no tenant, so it is about the node's account, in a fixed namespace.

use super::Protocol;
use crate::blob::Kind;
use crate::http::head::Head;
use crate::http::reply::Error;
use crate::http::route::{self, Route};
use crate::http::service::{Plan, Service};

const PROTOCOL: Protocol = Protocol::tool(Route::Nx, Kind::Nx);

pub(in crate::http) fn plan(service: &Service, head: &Head<'_>, segment: &str) -> Result<Plan, Error> {
    PROTOCOL.plan(service, head, "nx", route::key(segment)?.as_bytes())
}
