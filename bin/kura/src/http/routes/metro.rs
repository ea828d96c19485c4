//! Metro: `PUT` and `GET /api/metro/cache/{cache_key}`. As with Nx, it is about the node's account, in a fixed namespace.

use super::Protocol;
use crate::blob::Kind;
use crate::http::head::Head;
use crate::http::reply::Error;
use crate::http::route::{self, Route};
use crate::http::service::{Plan, Service};

const PROTOCOL: Protocol = Protocol::tool(Route::Metro, Kind::Metro);

pub(in crate::http) fn plan(service: &Service, head: &Head<'_>, segment: &str) -> Result<Plan, Error> {
    PROTOCOL.plan(service, head, "metro", route::key(segment)?.as_bytes())
}
