//! The journal: every request, and what became of it. Tests count calls with it; tokens and bodies are never in it.

use jiff::Timestamp;
use russet_sim_kit::FaultId;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Entry {
    /// Counts from 1.
    pub number: u64,
    /// Emulated time.
    pub at: Timestamp,
    pub method: String,
    pub path: String,
    /// The query, as it came.
    pub query: String,
    /// The status of the answer; 0 if none was sent.
    pub status: u16,
    /// The type of the error, if it was one of the API's own.
    pub error: Option<String>,
    /// Whose key it was.
    pub access_key: Option<String>,
    /// The fault that struck.
    pub fault: Option<FaultId>,
    /// Whether the world answered at all, struck or not.
    pub reached: bool,
}
