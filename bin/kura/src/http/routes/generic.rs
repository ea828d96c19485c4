//! Anything else: `GET`, `HEAD` and `PUT /generic/{project}/{key}`, where the key may have slashes. The last write wins.

use super::Protocol;
use crate::blob::Kind;
use crate::http::head::Head;
use crate::http::reply::Error;
use crate::http::route::{self, Route};
use crate::http::service::{Plan, Service};
use russet_identity::Scope;

const PROTOCOL: Protocol = Protocol::tool(Route::Generic, Kind::Generic);

pub(in crate::http) fn plan(service: &Service, head: &Head<'_>, path: &str, scope: &Scope<'_>) -> Result<Plan, Error> {
    PROTOCOL.plan(service, head, scope.namespace(), route::deep_key(path)?.as_bytes())
}
