//! What is asked of the API.

use std::fmt;

use reqwest::Method;
pub use russet_rest::Effect;
use russet_telemetry::Secret;

/// One operation of the API.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Name for metrics and messages, `product.operation`.
    pub name: &'static str,
    /// HTTP method.
    pub method: Method,
    /// What happens if it is sent twice.
    pub effect: Effect,
    /// IAM permission set that allows it.
    pub permission: &'static str,
}

impl Endpoint {
    pub(crate) const fn read(name: &'static str, permission: &'static str) -> Self {
        Self {
            name,
            method: Method::GET,
            effect: Effect::Read,
            permission,
        }
    }

    /// Says what would happen, by a method that usually changes things.
    pub(crate) const fn judge(name: &'static str, method: Method, permission: &'static str) -> Self {
        Self {
            name,
            method,
            effect: Effect::Read,
            permission,
        }
    }

    /// Renames are among these: Apple silicon servers are claimed by their name and the last write wins, so a late repeat could take
    /// a host from whoever claimed it in between.
    pub(crate) const fn once(name: &'static str, method: Method, permission: &'static str) -> Self {
        Self {
            name,
            method,
            effect: Effect::Once,
            permission,
        }
    }

    /// Sets one thing that nobody else sets otherwise.
    pub(crate) const fn set(name: &'static str, method: Method, permission: &'static str) -> Self {
        Self {
            name,
            method,
            effect: Effect::Repeatable,
            permission,
        }
    }

    pub(crate) const fn remove(name: &'static str, permission: &'static str) -> Self {
        Self {
            name,
            method: Method::DELETE,
            effect: Effect::Repeatable,
            permission,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What a call carries.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// JSON that anybody may read.
    Json(serde_json::Value),
    /// Something that holds secrets.
    Sealed {
        content_type: &'static str,
        text: Secret<String>,
        /// The secrets in it, as they stand in it. A refusal that quotes one of them is not repeated.
        secrets: Vec<Secret<String>>,
    },
}

/// One call of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) endpoint: &'static Endpoint,
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Option<Body>,
}

impl Call {
    pub(crate) fn new(endpoint: &'static Endpoint, path: String) -> Self {
        Self {
            endpoint,
            path,
            query: Vec::new(),
            body: None,
        }
    }

    #[must_use]
    pub(crate) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Several values of one name, each on its own.
    #[must_use]
    pub(crate) fn queries<'a>(self, name: &'static str, values: impl IntoIterator<Item = &'a str>) -> Self {
        values.into_iter().fold(self, |call, value| call.query(name, value))
    }

    #[must_use]
    pub(crate) fn body(mut self, body: serde_json::Value) -> Self {
        self.body = Some(Body::Json(body));
        self
    }

    /// JSON that holds these secrets.
    #[must_use]
    pub(crate) fn sealed_body(mut self, body: &serde_json::Value, secrets: Vec<Secret<String>>) -> Self {
        self.body = Some(Body::Sealed {
            content_type: "application/json",
            text: Secret::new(body.to_string()),
            secrets,
        });
        self
    }

    /// Plain text that is itself a secret.
    #[must_use]
    pub(crate) fn sealed_text(mut self, text: Secret<String>) -> Self {
        self.body = Some(Body::Sealed {
            content_type: "text/plain",
            secrets: vec![text.clone()],
            text,
        });
        self
    }

    /// The secrets this call carries.
    pub(crate) fn secrets(&self) -> &[Secret<String>] {
        match &self.body {
            Some(Body::Sealed { secrets, .. }) => secrets,
            _ => &[],
        }
    }
}
