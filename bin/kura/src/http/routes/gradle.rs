//! Gradle's build cache: `PUT` and `GET /api/cache/gradle/{cache_key}`.

use super::Protocol;
use crate::blob::Kind;
use crate::http::head::Head;
use crate::http::reply::Error;
use crate::http::route;
use crate::http::service::{Plan, Service};
use russet_identity::Scope;

const PROTOCOL: Protocol = Protocol {
    kind: Kind::Gradle,
    limit: 100 * 1024 * 1024,
    created: 201,
    existing: 200,
};

pub(in crate::http) fn plan(
    service: &Service,
    head: &Head<'_>,
    segment: &str,
    scope: &Scope<'_>,
) -> Result<Plan, Error> {
    PROTOCOL.plan(service, head, scope.namespace(), route::key(segment)?.as_bytes())
}
