//! What is asked of GitHub.

use reqwest::Method;
pub use russet_rest::Effect;

/// Who a call is made as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bearer {
    /// The App itself, by a JWT.
    App,
    /// Its installation in an organisation, by a token.
    Installation,
}

/// One operation of the API.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Name for metrics and messages.
    pub name: &'static str,
    /// HTTP method.
    pub method: Method,
    /// What happens if it is sent twice.
    pub effect: Effect,
    /// Who may call it.
    pub bearer: Bearer,
    /// Status of the answer when it went well.
    pub success: u16,
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
