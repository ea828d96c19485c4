//! Asking the tools of macOS.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// Why a tool gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It is not there, or not for us.
    #[error("it could not be started: {0}")]
    Start(std::io::Error),
    /// It ended badly.
    #[error("it ended with {status}: {said}")]
    Failed {
        /// How it ended.
        status: std::process::ExitStatus,
        /// The first line it said about it.
        said: String,
    },
    /// It took too long.
    #[error("it gave no answer within {} s", .0.as_secs())]
    Slow(Duration),
}

/// What a tool prints, trimmed. It is ended when it takes longer.
pub(crate) async fn ask(program: &Path, args: &[&str], patience: Duration) -> Result<String, AskError> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(patience, command.output())
        .await
        .map_err(|_| AskError::Slow(patience))?
        .map_err(AskError::Start)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = text(&output.stderr);
    Err(AskError::Failed {
        status: output.status,
        said: said.lines().next().unwrap_or_default().to_owned(),
    })
}
