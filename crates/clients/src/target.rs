//! Which cache a build talks to, and as whom.

use russet_telemetry::Secret;

/// A cache, a project in it, and credentials.
#[derive(Debug)]
pub struct Target {
    base: String,
    project: String,
    token: Option<Secret<String>>,
}

impl Target {
    /// `base` is the URL of the server's root.
    pub fn new(base: &str, project: &str) -> Self {
        Self {
            base: base.trim_end_matches('/').to_owned(),
            project: project.to_owned(),
            token: None,
        }
    }

    #[must_use]
    pub fn with_token(mut self, token: Option<Secret<String>>) -> Self {
        self.token = token;
        self
    }

    /// The root of the server, without a slash at the end.
    pub fn base(&self) -> &str {
        &self.base
    }

    pub fn project(&self) -> &str {
        &self.project
    }

    /// Under the path of a protocol: `{base}/{protocol}/{project}`.
    pub(crate) fn under(&self, protocol: &str) -> String {
        format!("{}/{protocol}/{}", self.base, self.project)
    }

    /// The same server as gRPC clients write it.
    pub(crate) fn grpc(&self) -> String {
        match self.base.split_once("://") {
            Some(("https", rest)) => format!("grpcs://{rest}"),
            Some((_, rest)) => format!("grpc://{rest}"),
            None => format!("grpc://{}", self.base),
        }
    }

    /// The token, for the one place of a plan that needs it; empty without one.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_ref().map(|token| token.expose().as_str())
    }
}
