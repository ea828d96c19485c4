//! Maven's build-cache extension: any path below `/maven/{project}/`.
//!
//! Maven takes whatever it gets for a good jar, so what counts here is that damaged bytes are a miss, which the store sees to.
//! Every build ends with a report that nothing reads again; it is taken and dropped.

use super::Protocol;
use crate::blob::Kind;
use crate::http::head::Head;
use crate::http::receive::Receive;
use crate::http::reply::Error;
use crate::http::route::{self, Route};
use crate::http::service::{Plan, Service};
use russet_identity::Scope;

const PROTOCOL: Protocol = Protocol::tool(Route::Maven, Kind::Maven);
const REPORT: &str = "/build-cache-report.xml";

pub(in crate::http) fn plan(service: &Service, head: &Head<'_>, path: &str, scope: &Scope<'_>) -> Result<Plan, Error> {
    let key = route::deep_key(path)?;
    if !head.method.reads() && key.ends_with(REPORT) {
        return Ok(Plan::Receive(Receive::Discard {
            route: Route::Maven,
            namespace: scope.namespace().into(),
        }));
    }
    PROTOCOL.plan(service, head, scope.namespace(), key.as_bytes())
}
