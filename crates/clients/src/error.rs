//! What can keep a build from being tried. A build that fails is not an error here: it is a result.

use std::{io, path::PathBuf};

/// Why a tool could not be obtained or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A toolchain the tool stands on is absent.
    #[error("{tool} needs `{command}`, which is not on the PATH; {advice}")]
    Toolchain {
        tool: &'static str,
        command: &'static str,
        advice: &'static str,
    },

    /// The tool itself could not be obtained.
    #[error(transparent)]
    Parts(#[from] russet_parts::Error),

    /// What a tool needs beside itself could not be made.
    #[error("failed to prepare {what}: `{command}` ended with {status}:\n{tail}")]
    Prepare {
        what: String,
        command: String,
        status: String,
        tail: String,
    },

    #[error("failed to start `{command}`")]
    Spawn {
        command: String,
        #[source]
        source: io::Error,
    },

    #[error("failed to {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    /// The cache does not say what it counted.
    #[error("failed to read the metrics at {url}: {detail}")]
    Metrics { url: String, detail: String },

    /// Nobody knows a tool of that name.
    #[error("there is no tool {0:?}")]
    UnknownTool(String),
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
