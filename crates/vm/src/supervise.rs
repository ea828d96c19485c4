//! Processes that outlive the agent, and whose end is known all the same.
//!
//! ```text
//! agent ──order (stdin)──▶ supervisor (own session) ──▶ the process, output to a file
//!   ◀──── started (stdout) ──┘   │ holds the lock `alive`, and so does the process: it is the process's standard input
//!                                └▶ started.json … exit.json
//! ```
//!
//! The lock answers "does it live" without guessing at process numbers: the kernel drops it when supervisor and process are
//! both gone, at a power cut too. If only the supervisor is killed, the process goes on and is seen to; how it ends is then not
//! known, and reported so.
//!
//! A program that uses this calls [`main`] when it is started with whatever words it put into [`Supervisor`].

mod files;
mod keeper;

pub use files::{Finished, Seen, Started, look};
pub use keeper::main;

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

/// How long the supervisor may take to start a process, on a host that is very busy.
const STARTING: Duration = Duration::from_mins(1);
/// How often an end is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// How to start a supervisor: a program, usually this one, and words that make it call [`main`].
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// Which program.
    pub program: PathBuf,
    /// Its arguments.
    pub words: Vec<OsString>,
}

/// What to run. Goes through a pipe, so it may hold what others must not see.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Where it is remembered; one process at a time.
    pub dir: PathBuf,
    /// Which program.
    pub program: PathBuf,
    /// Its arguments.
    pub words: Vec<String>,
    /// Added to the environment.
    pub environment: BTreeMap<String, String>,
    /// Where its output goes; appended to, made with mode 0600.
    pub log: PathBuf,
}

/// What the supervisor answers.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Started(Started),
    /// Somebody else has the lock.
    Busy,
    Failed(String),
}

/// Why nothing was started.
#[derive(Debug)]
pub enum NotStarted {
    /// One runs already.
    Busy,
    /// Something failed.
    Failed(Error),
}

impl From<Error> for NotStarted {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Starts a process. If this is dropped, the process may start or not; [`look`] tells.
pub async fn launch(supervisor: &Supervisor, order: &Order) -> Result<Started, NotStarted> {
    let mut child = tokio::process::Command::new(&supervisor.program)
        .args(&supervisor.words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()
        .map_err(|source| Error::Program {
            program: supervisor.program.clone(),
            source,
        })?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    // It is nobody's child once the agent is gone; until then somebody has to take note of its end.
    tokio::spawn(async move { child.wait().await });
    let failed = |words: String| Error::Command {
        command: "supervisor".to_owned(),
        code: "no answer".to_owned(),
        words,
    };
    let text = serde_json::to_vec(order).map_err(|error| failed(error.to_string()))?;
    let talk = async {
        let (mut stdin, stdout) = (stdin?, stdout?);
        stdin.write_all(&text).await.ok()?;
        drop(stdin);
        let mut answer = String::new();
        BufReader::new(stdout).read_line(&mut answer).await.ok()?;
        serde_json::from_str(&answer).ok()
    };
    match tokio::time::timeout(STARTING, talk).await {
        Ok(Some(Answer::Started(started))) => Ok(started),
        Ok(Some(Answer::Busy)) => Err(NotStarted::Busy),
        Ok(Some(Answer::Failed(why))) => Err(failed(why).into()),
        Ok(None) => Err(failed("it ended without a word".to_owned()).into()),
        Err(_) => Err(Error::Timeout {
            command: "supervisor".to_owned(),
            after: STARTING,
        }
        .into()),
    }
}

/// Waits until the process of this folder does not run.
pub async fn ended(dir: &Path) -> Result<Seen, Error> {
    loop {
        match look(dir)? {
            Seen::Running(_) => tokio::time::sleep(LOOK).await,
            over => return Ok(over),
        }
    }
}
