//! Gradle's build cache: `PUT` and `GET /api/cache/gradle/{cache_key}`, and the same blobs under `/gradle/{project}/{key}`.

use super::Protocol;
use crate::blob::Kind;
use crate::http::head::Head;
use crate::http::receive::Oversize;
use crate::http::reply::Error;
use crate::http::route::{self, Route};
use crate::http::service::{Plan, Service};
use russet_identity::Scope;

const PROTOCOL: Protocol = Protocol {
    route: Route::Gradle,
    kind: Kind::Gradle,
    limit: 100 * 1024 * 1024,
    created: 201,
    existing: 200,
    oversize: Oversize::Refuse,
};

/// Gradle takes any refusal of a write as a reason not to read for the rest of the build, so an entry that is too large is
/// taken and forgotten.
const BY_PATH: Protocol = Protocol {
    route: Route::GradlePath,
    created: 200,
    oversize: Oversize::Drop,
    ..PROTOCOL
};

pub(in crate::http) fn plan(
    service: &Service,
    head: &Head<'_>,
    segment: &str,
    scope: &Scope<'_>,
) -> Result<Plan, Error> {
    PROTOCOL.plan(service, head, scope.namespace(), route::key(segment)?.as_bytes())
}

pub(in crate::http) fn plan_by_path(
    service: &Service,
    head: &Head<'_>,
    segment: &str,
    scope: &Scope<'_>,
) -> Result<Plan, Error> {
    BY_PATH.plan(service, head, scope.namespace(), route::key(segment)?.as_bytes())
}
