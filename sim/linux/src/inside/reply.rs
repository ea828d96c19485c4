//! What a stubbed command answers.

use serde::{Deserialize, Serialize};

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Reply {
    pub(crate) fn success() -> Self {
        Self::printed("")
    }

    pub(crate) fn printed(stdout: impl Into<String>) -> Self {
        Self {
            status: 0,
            stdout: stdout.into(),
            stderr: String::new(),
        }
    }

    pub(crate) fn failure(status: i32, mut stderr: String) -> Self {
        if !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        Self {
            status,
            stdout: String::new(),
            stderr,
        }
    }
}
