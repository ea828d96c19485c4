//! What `russet parts list` and `russet parts verify` show.

use std::path::PathBuf;

use serde::Serialize;

use crate::Origin;

/// One tool of the manifest, and whether it is here.
#[derive(Debug, Clone, Serialize)]
pub struct PartStatus {
    pub part: String,
    pub tool: String,
    /// The version the manifest pins, or `distribution`.
    pub wanted: String,
    pub about: String,
    #[serde(flatten)]
    pub state: PartState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum PartState {
    /// It is here.
    Found {
        path: PathBuf,
        origin: Origin,
        /// Known for tools from the cache.
        version: Option<String>,
        /// Bytes; of a folder, all its files.
        size: u64,
    },
    /// It would be obtained when needed.
    Missing,
    /// It is somewhere, but cannot be used.
    Unusable { reason: String },
    /// There is none for this machine.
    Unsupported { exists_for: Vec<String> },
}

/// A cached tool, read again from end to end.
#[derive(Debug, Clone, Serialize)]
pub struct Verification {
    pub tool: String,
    pub path: PathBuf,
    /// What is wrong with it. Its receipt was removed, so it will be obtained anew.
    pub problem: Option<String>,
}
