//! `russet down`: ends a running `up`, sweeps what a killed one left, removes the state directory if it is ours.

use crate::cli;
use crate::config::Surroundings;
use crate::exit::Exit;
use crate::process;
use crate::state::lock::{Holder, Lock};
use crate::state::{Layout, home, lock};
use crate::up;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use std::io::Write;
use std::time::Duration;
use tokio::time::Instant;

/// `up` gives each part ten seconds, most need one; all of them together have never come near this.
const GRACE: Duration = Duration::from_mins(1);

/// After SIGKILL the kernel needs a moment to take the process down.
const AFTER_KILL: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(50);

pub(crate) async fn down(args: &cli::Down, surroundings: &Surroundings) -> Result<Exit> {
    let layout = Layout::new(&surroundings.working_dir, &args.dir.dir);
    let shown = layout.root().display();
    if home::inspect(&layout)? == home::Found::Nothing {
        say(&format!("nothing to do: there is no {shown}"));
        return Ok(Exit::Success);
    }
    if let Some(holder) = lock::holder(&layout.lock()) {
        stop(&holder).await?;
    }
    // From here on nobody can start: the sweep and the removal see a directory that does not change.
    let held = Lock::acquire(&layout.lock(), &Holder::this("down"))?;
    let swept = russet_cluster::process::sweep(layout.root())
        .await
        .context("failed to end left-over processes")?;
    for process in swept {
        say(&format!(
            "ended {} (pid {}), left over from an earlier run",
            process.name, process.pid
        ));
    }
    for cgroup in up::linux::sweep(&layout).await? {
        say(&format!("removed the cgroup {cgroup}, left over from an earlier run"));
    }
    if args.keep_data {
        say(&format!("stopped; the state in {shown} is kept"));
    } else {
        home::remove(&layout)?;
        say(&format!("stopped and removed {shown}"));
    }
    drop(held);
    Ok(Exit::Success)
}

/// SIGTERM, wait, SIGKILL. The start time is compared before each signal, so that a reused pid is never hit.
async fn stop(holder: &Holder) -> Result<()> {
    if holder.command != "up" {
        bail!(
            "`russet {}` (pid {}) is working on the same directory; try again when it is done",
            holder.command,
            holder.pid
        );
    }
    say(&format!("stopping `russet up` (pid {})", holder.pid));
    if signal(holder, Signal::TERM)? && !gone_within(holder, GRACE).await {
        say(&format!("it did not stop within {} s; killing it", GRACE.as_secs()));
        signal(holder, Signal::KILL)?;
        if !gone_within(holder, AFTER_KILL).await {
            bail!(
                "process {} does not end, even when killed; it may hang in the kernel (see `ps -o stat= -p {0}`)",
                holder.pid
            );
        }
    }
    Ok(())
}

/// Whether the process was there to receive it.
fn signal(holder: &Holder, signal: Signal) -> Result<bool> {
    let Some(pid) = i32::try_from(holder.pid).ok().and_then(Pid::from_raw) else {
        return Ok(false);
    };
    if !holder.is_alive() {
        return Ok(false);
    }
    match rustix::process::kill_process(pid, signal) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(error) => Err(error).with_context(|| {
            format!(
                "failed to signal `russet up` (pid {}); was it started by another user?",
                holder.pid
            )
        }),
    }
}

async fn gone_within(holder: &Holder, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while process::is_alive(holder.pid, holder.started) {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
    true
}

fn say(text: &str) {
    // Standard error that is gone cannot be told so.
    let _ = writeln!(std::io::stderr(), "{text}");
}
