//! Calls, counted by method and code.

use super::method::Method;
use std::sync::atomic::{AtomicU64, Ordering};

const CODES: usize = 17;

/// The counters.
#[derive(Debug, Default)]
pub(super) struct Counters {
    calls: [[AtomicU64; CODES]; Method::ALL.len()],
}

impl Counters {
    pub(super) fn count(&self, method: Method, code: u8) {
        let row = self.calls.get(method as usize);
        if let Some(counter) = row.and_then(|row| row.get(usize::from(code))) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Labels and value of what has counted.
    pub(super) fn lines(&self) -> Vec<(String, u64)> {
        let mut lines = Vec::new();
        for (method, row) in Method::ALL.iter().zip(&self.calls) {
            for (code, counter) in row.iter().enumerate() {
                let count = counter.load(Ordering::Relaxed);
                if count > 0 {
                    lines.push((format!("method=\"{}\",code=\"{code}\"", method.label()), count));
                }
            }
        }
        lines
    }
}
