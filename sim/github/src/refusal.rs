//! What GitHub answers when it does not do what was asked.

use http::StatusCode;
use russet_sim_kit::wire::Reply;
use serde_json::json;

/// An answer that is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) message: String,
    link: &'static str,
    headers: Vec<(&'static str, String)>,
}

impl Refusal {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            link: "https://docs.github.com/rest",
            headers: Vec::new(),
        }
    }

    /// 404, also for what one may not see.
    pub(crate) fn not_found() -> Self {
        Self::new(404, "Not Found")
    }

    /// 422 in the words of GitHub's schema check.
    pub(crate) fn invalid(what: impl AsRef<str>) -> Self {
        Self::new(422, format!("Invalid request.\n\n{}", what.as_ref()))
    }

    /// 403: the installation may not.
    pub(crate) fn not_accessible() -> Self {
        Self::new(403, "Resource not accessible by integration").with(
            "x-accepted-github-permissions",
            "organization_self_hosted_runners=write",
        )
    }

    /// 403 or 429: the hour is spent.
    pub(crate) fn primary_limit(status: u16, who: &str, reset: i64) -> Self {
        Self {
            link: "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api",
            ..Self::new(status, format!("API rate limit exceeded for {who}."))
        }
        .with("x-ratelimit-remaining", "0")
        .with("x-ratelimit-reset", reset.to_string())
    }

    /// 403 or 429: too fast.
    pub(crate) fn secondary_limit(status: u16, retry_after: Option<u64>) -> Self {
        let refusal = Self {
            link: "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits",
            ..Self::new(
                status,
                "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
            )
        };
        match retry_after {
            Some(seconds) => refusal.with("retry-after", seconds.to_string()),
            None => refusal,
        }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn reply(&self) -> Reply {
        Reply {
            status: StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            headers: self.headers.clone(),
            body: Some(json!({
                "message": self.message,
                "documentation_url": self.link,
                "status": self.status.to_string(),
            })),
        }
    }
}
