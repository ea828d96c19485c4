//! The journal: every request, and what became of it. Tests count calls with it; tokens and bodies are never in it.

use jiff::Timestamp;
use russet_sim_kit::fault::{FaultId, glob};
use std::collections::VecDeque;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Entry {
    /// Counts from 1.
    pub number: u64,
    /// GitHub's time.
    pub at: Timestamp,
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The query, as it came.
    pub query: String,
    /// The status of the answer; 0 if none was sent.
    pub status: u16,
    /// The text of a refusal.
    pub message: Option<String>,
    /// Who it was: `app 7` or `installation 42`.
    pub bearer: Option<String>,
    /// The fault that struck.
    pub fault: Option<FaultId>,
}

/// What is kept.
const CAPACITY: usize = 100_000;

/// All requests, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: VecDeque<Entry>,
    last: u64,
}

impl Journal {
    pub(crate) fn add(&mut self, mut entry: Entry) {
        self.last += 1;
        entry.number = self.last;
        if self.entries.len() >= CAPACITY {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(crate) fn all(&self) -> Vec<Entry> {
        self.entries.iter().cloned().collect()
    }

    pub(crate) fn count(&self, method: &str, path: &str) -> usize {
        let fits = |entry: &&Entry| entry.method == method && glob(path, &entry.path);
        self.entries.iter().filter(fits).count()
    }
}
