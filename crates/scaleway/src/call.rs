//! What is asked of the API.

use std::fmt;

use reqwest::Method;

/// What happens if a call is sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing: it only reads.
    Read,
    /// The same as once: it removes or sets one thing that has an id of its own, and nobody else sets it otherwise.
    Repeatable,
    /// Harm, or a second bill. Renames are among these: Apple silicon servers are claimed by their name and the last write
    /// wins, so a late repeat could take a host from whoever claimed it in between.
    Once,
}

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

    pub(crate) const fn once(name: &'static str, method: Method, permission: &'static str) -> Self {
        Self {
            name,
            method,
            effect: Effect::Once,
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

/// One call of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) endpoint: &'static Endpoint,
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Option<serde_json::Value>,
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

    #[must_use]
    pub(crate) fn body(mut self, body: serde_json::Value) -> Self {
        self.body = Some(body);
        self
    }
}
