//! Xcode's compilation cache: `POST` and `GET /api/cache/cas/{id}`. The id is opaque: Xcode computes it its own way.

use super::Protocol;
use crate::blob::Kind;
use crate::http::head::Head;
use crate::http::receive::Oversize;
use crate::http::reply::Error;
use crate::http::route::{self, Route};
use crate::http::service::{Plan, Service};
use russet_identity::Scope;

const PROTOCOL: Protocol = Protocol {
    route: Route::Xcode,
    kind: Kind::Xcode,
    limit: 256 * 1024 * 1024,
    created: 204,
    existing: 204,
    oversize: Oversize::Refuse,
};

pub(in crate::http) fn plan(
    service: &Service,
    head: &Head<'_>,
    segment: &str,
    scope: &Scope<'_>,
) -> Result<Plan, Error> {
    PROTOCOL.plan(service, head, scope.namespace(), route::key(segment)?.as_bytes())
}
