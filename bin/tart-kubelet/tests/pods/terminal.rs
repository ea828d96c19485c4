//! `kubectl exec -it` into a VM, on a real terminal.

use crate::reaching::Reached;
use crate::stage::PATIENCE;
use anyhow::{Context, Result, ensure};
use russet_sim_tart::terminal;
use serde_json::json;
use std::fs::File;
use std::process::Stdio;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

/// What somebody types to end a program.
const CONTROL_C: &str = "\x03";

/// Somebody who sits at a terminal where kubectl runs.
struct Seat {
    terminal: File,
    screen: tokio::fs::File,
    keys: tokio::fs::File,
    kubectl: Child,
    seen: String,
}

impl Seat {
    fn take(there: &Reached, columns: u16, rows: u16, words: &[&str]) -> Result<Self> {
        let (terminal, end) = terminal::open(columns, rows)?;
        let kubectl = there.command(words);
        let plain = kubectl.as_std();
        // Resizes and keys such as Control-C go to whom the terminal is the controlling one of.
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait"])
            .arg(plain.get_program())
            .args(plain.get_args())
            .envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .stdin(Stdio::from(end.try_clone()?))
            .stdout(Stdio::from(end.try_clone()?))
            .stderr(Stdio::from(end))
            .kill_on_drop(true);
        let kubectl = command.spawn().context("setsid of util-linux")?;
        // It holds copies of the other end; as long as it lives, so does the screen.
        drop(command);
        Ok(Self {
            screen: tokio::fs::File::from_std(terminal.try_clone()?),
            keys: tokio::fs::File::from_std(terminal.try_clone()?),
            terminal,
            kubectl,
            seen: String::new(),
        })
    }

    async fn type_in(&mut self, text: &str) -> Result<()> {
        self.keys.write_all(text.as_bytes()).await?;
        Ok(self.keys.flush().await?)
    }

    /// Reads on until the screen shows it.
    async fn sees(&mut self, text: &str) -> Result<()> {
        let mut buffer = [0; 4096];
        while !self.seen.contains(text) {
            let read = tokio::time::timeout(PATIENCE, self.screen.read(&mut buffer)).await;
            let lacks = || format!("no {text:?} in {:?}", self.seen);
            let count = read.with_context(lacks)?.with_context(lacks)?;
            ensure!(count > 0, "{}", lacks());
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        Ok(())
    }

    async fn exit_code(mut self) -> Result<Option<i32>> {
        let ended = tokio::time::timeout(PATIENCE, self.kubectl.wait()).await;
        let ended = ended.with_context(|| format!("kubectl goes on after {:?}", self.seen))?;
        Ok(ended?.code())
    }
}

pub(crate) async fn a_shell_in_a_vm_has_a_terminal_that_follows_that_of_its_caller() -> Result<()> {
    let there = Reached::new("termi1", "127.77.10.10").await?;
    there.mac.run("job", "sleep 1000", json!({})).await?;
    there.mac.until_running("job").await?;
    // The API server reaches the node once another call has gone through.
    there.says(&["logs", "job"]).await?;

    let script = "stty size; read -r line; echo \"you said $line\"; \
                  until [ \"$(stty size)\" = '44 90' ]; do sleep 0.05; done; echo resized; exit 5";
    let mut seat = Seat::take(&there, 101, 33, &["exec", "-it", "job", "--", "sh", "-c", script])?;
    seat.sees("33 101").await?;
    seat.type_in("hello\r").await?;
    seat.sees("you said hello").await?;
    ensure!(
        seat.seen.matches("hello").count() == 2,
        "what is typed is shown once: {:?}",
        seat.seen
    );
    terminal::resize(&seat.terminal, 90, 44)?;
    seat.sees("resized").await?;
    ensure!(seat.exit_code().await? == Some(5));

    // A program that wants to know of it hears it, and goes on.
    let script = "trap 'heard=yes' INT; echo begun; until [ -n \"$heard\" ]; do sleep 0.1; done; echo heard; exit 6";
    let mut seat = Seat::take(&there, 80, 24, &["exec", "-it", "job", "--", "sh", "-c", script])?;
    seat.sees("begun").await?;
    seat.type_in(CONTROL_C).await?;
    seat.sees("heard").await?;
    ensure!(seat.exit_code().await? == Some(6));

    // Any other ends of it, and is no success.
    let script = "echo begun; exec sleep 1000";
    let mut seat = Seat::take(&there, 80, 24, &["exec", "-it", "job", "--", "sh", "-c", script])?;
    seat.sees("begun").await?;
    seat.type_in(CONTROL_C).await?;
    let code = seat.exit_code().await?;
    ensure!(code.is_some_and(|code| code != 0), "{code:?}");
    there.mac.stayed_within_its_rights()
}
