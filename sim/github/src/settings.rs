//! How the emulated GitHub behaves. All of it can be changed while it runs.

/// Every switch. The defaults are what a customer meets on an ordinary day.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// GitHub's clock is this many seconds ahead of the emulated one.
    pub skew_seconds: i64,
    /// Calls per hour and bearer.
    pub hourly_limit: u32,
    /// No page of a list is longer than this, whatever the client asks for.
    pub page_cap: Option<u32>,
    /// How long an installation token is good for.
    pub token_seconds: u32,
    /// Whether a call without `X-GitHub-Api-Version` is refused. GitHub assumes a version; a client should not rely on which.
    pub require_api_version: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            skew_seconds: 0,
            hourly_limit: 5000,
            page_cap: None,
            token_seconds: 3600,
            require_api_version: true,
        }
    }
}
