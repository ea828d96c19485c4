//! `DELETE /api/cache/clean`: everything of one namespace goes, and its space with it.

use crate::http::receive::Receive;
use crate::http::reply::{Error, Reply};
use crate::http::service::{Plan, Service};
use russet_identity::Scope;

pub(in crate::http) fn plan(scope: &Scope<'_>) -> Plan {
    Plan::Receive(Receive::Clean {
        namespace: scope.namespace().into(),
    })
}

pub(in crate::http) async fn run(service: &Service, namespace: &str) -> Result<Reply, Error> {
    service.shared.blobs.clean(namespace).await?;
    Ok(Reply::empty(204))
}
