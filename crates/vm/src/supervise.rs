//! Processes that outlive the agent, and whose end is known all the same.
//!
//! ```text
//! agent ──order, go (stdin)──▶ supervisor (own session) ──▶ the process, output to a file
//!   ◀── ready, started (stdout) ─┘   │ holds the lock `alive`, and so does the process: it is the process's standard input
//!                                    └▶ started.json … exit.json
//! ```
//!
//! The lock answers "does it live" without guessing at process numbers: the kernel drops it when supervisor and process are
//! both gone, at a power cut too. If only the supervisor is killed, the process goes on and is seen to; how it ends is then not
//! known, and reported so. A process whose log is cut to a size ([`Order::rotation`]) speaks to its supervisor instead of to a file,
//! and ends with it.
//!
//! A supervisor that is told to end (SIGTERM: the host goes down) lets its VM shut down first, and stops it if that takes too long.
//! What ends so is marked, since it did not end by itself.
//!
//! An agent that changes its mind before it said "go" has started nothing, however late its supervisor comes; from then on the
//! lock is held, and whoever looks sees a process that runs.
//!
//! A program that uses this calls [`main`] when it is started with whatever words it put into [`Supervisor`].

mod files;
mod keeper;

pub use files::{Finished, Seen, Started, look};
pub use keeper::main;

use crate::error::Error;
use crate::log::Rotation;
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
    /// How large that may become. The supervisor then writes it, and not the process itself.
    #[serde(default)]
    pub rotation: Option<Rotation>,
}

/// What the supervisor answers.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    /// It has the lock and waits for [`GO`].
    Ready,
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

/// Tells a supervisor that it is still wanted.
const GO: &str = "go\n";

/// Starts a process. If this is dropped, the process may start or not; [`look`] tells at once and for good.
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
    let mut text = serde_json::to_vec(order).map_err(|error| failed(error.to_string()))?;
    text.push(b'\n');
    let talk = async {
        let (mut stdin, mut stdout) = (stdin?, BufReader::new(stdout?));
        stdin.write_all(&text).await.ok()?;
        match hear(&mut stdout).await? {
            Answer::Ready => {
                stdin.write_all(GO.as_bytes()).await.ok()?;
                hear(&mut stdout).await
            }
            other => Some(other),
        }
    };
    match tokio::time::timeout(STARTING, talk).await {
        Ok(Some(Answer::Started(started))) => Ok(started),
        Ok(Some(Answer::Busy)) => Err(NotStarted::Busy),
        Ok(Some(Answer::Failed(why))) => Err(failed(why).into()),
        Ok(Some(Answer::Ready) | None) => Err(failed("it ended without a word".to_owned()).into()),
        Err(_) => Err(Error::Timeout {
            command: "supervisor".to_owned(),
            after: STARTING,
        }
        .into()),
    }
}

async fn hear(from: &mut BufReader<tokio::process::ChildStdout>) -> Option<Answer> {
    let mut answer = String::new();
    from.read_line(&mut answer).await.ok()?;
    serde_json::from_str(&answer).ok()
}

/// Waits until the process of this folder does not run.
pub async fn ended(dir: &Path) -> Result<Seen, Error> {
    loop {
        match look(dir)? {
            Seen::Running(_) => tokio::time::sleep(LOOK).await,
            over => return Ok(over),
        }
        if let Some(pulse) = files::Pulse::of(dir)? {
            while pulse.beats()? {
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}
