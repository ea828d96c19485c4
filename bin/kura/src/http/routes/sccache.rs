//! sccache, which speaks WebDAV: `/sccache/{project}/{key}`.
//!
//! Before it writes, it asks about the folder. There are no folders here, so every one exists: one answer instead of a walk up
//! the path with an attempt to make each level.

use super::Protocol;
use crate::blob::Kind;
use crate::http::head::{Head, Method};
use crate::http::reply::{Error, Payload, Reply};
use crate::http::route::{self, Route};
use crate::http::service::{Plan, Service};
use russet_identity::Scope;

const PROTOCOL: Protocol = Protocol::tool(Route::Sccache, Kind::Sccache);

pub(in crate::http) fn plan(service: &Service, head: &Head<'_>, path: &str, scope: &Scope<'_>) -> Result<Plan, Error> {
    let folder = path.is_empty() || path.ends_with('/');
    if !folder {
        let key = route::deep_key(path)?;
        return match head.method {
            Method::Propfind => Ok(describe_file(service, head, scope.namespace(), &key)),
            Method::Mkcol => Ok(Plan::Reply(Reply::empty(201))),
            _ => PROTOCOL.plan(service, head, scope.namespace(), key.as_bytes()),
        };
    }
    if !path.is_empty() {
        route::deep_key(path.trim_end_matches('/'))?;
    }
    match head.method {
        Method::Propfind => Ok(Plan::Reply(describe(head.path, "<D:collection/>", ""))),
        Method::Mkcol => Ok(Plan::Reply(Reply::empty(201))),
        _ => Err(Error::refused(405, "This is a folder")),
    }
}

fn describe_file(service: &Service, head: &Head<'_>, namespace: &str, key: &str) -> Plan {
    match service.shared.blobs.length(Kind::Sccache, namespace, key.as_bytes()) {
        Some(length) => {
            let length = format!("<D:getcontentlength>{length}</D:getcontentlength>");
            Plan::Reply(describe(head.path, "", &length))
        }
        None => Plan::Reply(Reply::missing(super::ARTIFACT_MISSING)),
    }
}

/// A multistatus with one entry. Nothing here changes after it was made, so all of it was made at the beginning of time.
fn describe(path: &str, resource: &str, more: &str) -> Reply {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>{}</D:href>\
         <D:propstat><D:prop><D:resourcetype>{resource}</D:resourcetype>{more}\
         <D:getlastmodified>Thu, 01 Jan 1970 00:00:00 GMT</D:getlastmodified></D:prop>\
         <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>",
        escape(path)
    );
    Reply {
        payload: Payload::Document {
            content_type: "application/xml; charset=utf-8",
            body: body.into(),
        },
        ..Reply::empty(207)
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_described_in_one_entry_that_quotes_the_path() {
        let Payload::Document { body, .. } = describe("/sccache/p/a&<b>/", "<D:collection/>", "").payload else {
            panic!("not a document");
        };
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains("<D:href>/sccache/p/a&amp;&lt;b&gt;/</D:href>"), "{text}");
        assert_eq!(text.matches("<D:response>").count(), 1);
    }
}
