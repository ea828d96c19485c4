//! The span of a request: what it was and how it ended. Never a key, never a token.

use super::head::{Head, Method};
use super::route::Route;
use super::service::{Planned, Service};
use russet_identity::Scope;
use russet_telemetry::trace::Span;

/// Whose data a traced request is about.
#[derive(Debug)]
pub struct Labels {
    tenant: String,
    namespace: String,
}

impl Labels {
    /// Writes them into a span.
    pub fn on(&self, span: &mut Span) {
        span.text("kura.tenant_id", self.tenant.clone());
        span.text("kura.namespace_id", self.namespace.clone());
    }
}

impl Labels {
    /// Copies a scope.
    pub fn of(scope: &Scope<'_>) -> Box<Self> {
        Box::new(Self {
            tenant: scope.account().to_owned(),
            namespace: scope.namespace().to_owned(),
        })
    }
}

/// A request that is traced. Its span ends when this is dropped.
#[derive(Debug)]
pub struct Traced {
    span: Box<Span>,
    method: Method,
    version: &'static str,
}

impl Service {
    /// Begins the span of a request. Without a collector this is one comparison.
    pub fn trace(&self, head: &Head<'_>, version: &'static str) -> Option<Traced> {
        let span = self.shared.traces.request(head.fields.traceparent)?;
        Some(Traced {
            span,
            method: head.method,
            version,
        })
    }
}

impl Traced {
    /// What the request is about.
    pub fn planned(&mut self, planned: &Planned) {
        let Self { span, method, version } = self;
        let (method, route) = (word(*method), planned.route.template());
        let name = if planned.route == Route::Unknown {
            method.to_owned()
        } else {
            span.text("http.route", route);
            format!("{method} {route}")
        };
        span.name(name);
        span.text("http.request.method", method);
        span.text("network.protocol.version", *version);
        if let Some(whose) = &planned.whose {
            whose.on(span);
        }
    }

    /// How it ended.
    pub fn answered(&mut self, status: u16, bytes: u64) {
        self.span.number("http.response.status_code", u64::from(status));
        self.span.number("http.response.body.size", bytes);
        if status >= 500 {
            self.span.failed();
        }
    }
}

/// The methods conventions name; the rest share a word.
const WORDS: [(Method, &str); 5] = [
    (Method::Get, "GET"),
    (Method::Head, "HEAD"),
    (Method::Put, "PUT"),
    (Method::Post, "POST"),
    (Method::Delete, "DELETE"),
];

fn word(method: Method) -> &'static str {
    let known = WORDS.iter().find(|(known, _)| *known == method);
    known.map_or("_OTHER", |(_, word)| word)
}
