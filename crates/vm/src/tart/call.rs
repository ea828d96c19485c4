//! One `tart` command with a deadline.

use super::{Tart, words};
use crate::error::Error;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

/// As long as such a thing may take on a Mac (facts/kubelet-runners.md 1.6).
pub(super) const QUICK: Duration = Duration::from_secs(30);
pub(super) const SET: Duration = Duration::from_mins(1);
pub(super) const CLONE: Duration = Duration::from_mins(5);
pub(super) const DELETE: Duration = Duration::from_mins(5);
pub(super) const STOP: Duration = Duration::from_mins(2);
pub(super) const PULL: Duration = Duration::from_mins(20);
/// What a child that inherited a pipe may hold it for, once the command has ended.
const LINGER: Duration = Duration::from_secs(2);
/// Nobody reads more of an error.
const LONGEST: usize = 64 * 1024;

/// A command that said no.
#[derive(Debug)]
pub(super) struct Refusal {
    command: String,
    /// None after a signal.
    pub(super) code: Option<i32>,
    pub(super) stderr: String,
}

impl Refusal {
    /// For what has no better name.
    pub(super) fn into_error(self) -> Error {
        let code = self
            .code
            .map_or_else(|| "killed by a signal".to_owned(), |code| format!("exit code {code}"));
        let words = words::first_useful(&self.stderr);
        if words::is_no_space(&self.stderr) {
            return Error::NoSpace(words);
        }
        Error::Command {
            command: self.command,
            code,
            words,
        }
    }
}

/// What a command takes besides its arguments.
#[derive(Default)]
pub(super) struct Extra<'a> {
    pub(super) stdin: Option<&'a [u8]>,
    pub(super) environment: Vec<(&'static str, &'a str)>,
    /// Told every line of output.
    pub(super) lines: Option<&'a (dyn Fn(&str) + Send + Sync)>,
}

impl Tart {
    /// A `tart` with our home and without a stranger's credentials.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.options.program);
        command
            .args(words)
            .env("TART_HOME", &self.options.home)
            // It would delete images behind our back; the agent decides what goes.
            .env("TART_NO_AUTO_PRUNE", "")
            .env_remove("TART_REGISTRY_HOSTNAME")
            .env_remove("TART_REGISTRY_USERNAME")
            .env_remove("TART_REGISTRY_PASSWORD")
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end and gives its output, or what it refused with.
    pub(super) async fn call(&self, words: &[&str], deadline: Duration) -> Result<Result<String, Refusal>, Error> {
        self.call_with(words, deadline, Extra::default()).await
    }

    /// Like [`Tart::call`], where every refusal is just an error.
    pub(super) async fn ask(&self, words: &[&str], deadline: Duration) -> Result<String, Error> {
        self.call(words, deadline).await?.map_err(Refusal::into_error)
    }

    pub(super) async fn call_with(
        &self,
        words: &[&str],
        deadline: Duration,
        extra: Extra<'_>,
    ) -> Result<Result<String, Refusal>, Error> {
        let name = format!("tart {}", words.first().copied().unwrap_or_default());
        let mut child = self
            .command(words)
            .envs(extra.environment)
            .stdin(if extra.stdin.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| Error::Program {
                program: self.options.program.clone(),
                source,
            })?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut output = String::new();
        let mut complaint = Vec::new();
        let talk = async {
            let write = async {
                if let (Some(mut stdin), Some(bytes)) = (stdin, extra.stdin) {
                    let _ = stdin.write_all(bytes).await;
                }
            };
            let read = async {
                let mut lines = BufReader::new(stdout?).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    if let Some(told) = extra.lines {
                        told(&line);
                    } else {
                        output.push_str(&line);
                        output.push('\n');
                    }
                }
                Some(())
            };
            let complain = async {
                let mut stderr = stderr?;
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
                    if complaint.len() < LONGEST {
                        complaint.extend_from_slice(buffer.get(..count).unwrap_or_default());
                    }
                }
                Some(())
            };
            tokio::join!(write, read, complain)
        };
        let whole = async {
            let mut talk = Box::pin(talk);
            let status = tokio::select! {
                // All pipes are closed; the end follows.
                _ = &mut talk => return child.wait().await,
                status = child.wait() => status,
            };
            let _ = tokio::time::timeout(LINGER, talk).await;
            status
        };
        let status = match tokio::time::timeout(deadline, whole).await {
            Ok(Ok(status)) => status,
            Ok(Err(source)) => {
                return Err(Error::Program {
                    program: self.options.program.clone(),
                    source,
                });
            }
            // Dropping the child kills it.
            Err(_) => {
                return Err(Error::Timeout {
                    command: name,
                    after: deadline,
                });
            }
        };
        if status.success() {
            return Ok(Ok(output));
        }
        let stderr = String::from_utf8_lossy(&complaint).into_owned();
        tracing::debug!(command = name, ?status, "tart refused");
        Ok(Err(Refusal {
            command: name,
            code: status.code(),
            stderr,
        }))
    }
}
