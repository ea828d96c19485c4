//! Everything that a program of tests logs, for those that look for secrets in it.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use tracing_subscriber::fmt::format::FmtSpan;

static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<u8>> {
    LOGGED.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Sink;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Logs everything there is, for the whole program: a subscriber of one test would miss call sites that another test's
/// thread met first.
pub fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(FmtSpan::FULL)
            .with_ansi(false)
            .with_writer(|| Sink)
            .init();
    });
}

/// What was logged since [`listen`].
pub fn logged() -> String {
    String::from_utf8_lossy(&lock()).into_owned()
}
