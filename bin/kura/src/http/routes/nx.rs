//! Nx: `PUT` and `GET /v1/cache/{hash}`. Nx sends no tenant, so it is about the node's account, in a fixed namespace.

use super::Protocol;
use crate::blob::Kind;
use crate::http::head::Head;
use crate::http::reply::Error;
use crate::http::route;
use crate::http::service::{Plan, Service};

const PROTOCOL: Protocol = Protocol {
    kind: Kind::Nx,
    limit: 2 * 1024 * 1024 * 1024,
    created: 200,
    existing: 200,
};

pub(in crate::http) fn plan(service: &Service, head: &Head<'_>, segment: &str) -> Result<Plan, Error> {
    PROTOCOL.plan(service, head, "nx", route::key(segment)?.as_bytes())
}
