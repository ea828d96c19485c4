//! The guest: process 1 of its namespaces. Boots, runs the image's script, serves `tart exec`, and shuts down when asked.

use crate::agent;
use crate::guest_root;
use crate::run_arguments::Share;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

/// The first argument of a guest's process 1.
pub(crate) const WORD: &str = "--sim-tart-guest";
/// How long processes have between SIGTERM and the end.
const GRACE: Duration = Duration::from_secs(5);

/// What a guest is born with: the first line of its standard input. Then come orders; the end of input is the power cut.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Birth {
    pub(crate) shares: Vec<Share>,
    pub(crate) address: Ipv4Addr,
    pub(crate) boot: String,
    pub(crate) agent: bool,
    pub(crate) agent_ms: u64,
    pub(crate) network: bool,
    pub(crate) deaf: bool,
}

pub(crate) fn main() -> ExitCode {
    let run = || -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let result = runtime.block_on(live());
        // The thread that reads standard input may never return.
        runtime.shutdown_background();
        result
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "sim-tart: the guest failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns when the guest has shut down.
async fn live() -> std::io::Result<()> {
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    let line = orders.next_line().await?.unwrap_or_default();
    let birth: Birth = serde_json::from_str(&line)?;
    // Its own programs ask for the end with SIGUSR2.
    let mut asked = signal(SignalKind::user_defined2())?;
    let here = std::env::current_dir()?;
    guest_root::build(&here.join("guest"), &birth.shares)?;
    let listener = if birth.agent {
        let _ = std::fs::remove_file("control.sock");
        Some(tokio::net::UnixListener::bind("control.sock")?)
    } else {
        None
    };
    rustix::process::chroot("guest")?;
    std::env::set_current_dir("/")?;
    if birth.network {
        tell("network");
    }
    boot(&birth)?;
    tell("up");
    // It comes with the login of the guest, which is later than its network. Whoever calls before that hangs: the other end is the host.
    let mut login = std::pin::pin!(tokio::time::sleep(Duration::from_millis(birth.agent_ms)));
    let mut logged_in = false;
    loop {
        tokio::select! {
            () = &mut login, if !logged_in => logged_in = true,
            connection = accept(listener.as_ref()), if logged_in => {
                tokio::spawn(agent::serve(connection?, birth.address));
            }
            () = power_cut(&mut orders, birth.deaf) => return shut_down().await,
            _ = asked.recv() => return shut_down().await,
        }
    }
}

/// Returns at an order to shut down. At the end of input the power is cut, and everything ends here.
async fn power_cut(orders: &mut Lines<BufReader<Stdin>>, deaf: bool) {
    while let Ok(Some(order)) = orders.next_line().await {
        if order == "shutdown" && !deaf {
            return;
        }
    }
    std::process::exit(1);
}

async fn accept(listener: Option<&tokio::net::UnixListener>) -> std::io::Result<tokio::net::UnixStream> {
    match listener {
        Some(listener) => Ok(listener.accept().await?.0),
        None => std::future::pending().await,
    }
}

fn tell(word: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{word}");
    let _ = out.flush();
}

/// What every program in the guest finds around it.
pub(crate) fn surroundings(command: &mut Command, address: Ipv4Addr) {
    command
        .env_clear()
        .env("HOME", "/Users/admin")
        .env("USER", "admin")
        .env("LANG", "en_US.UTF-8")
        .env("PATH", "/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("GUEST_ADDRESS", address.to_string())
        // The user of a guest is not root, so its tar gives no files away; the namespace has nobody to give them to.
        .env("TAR_OPTIONS", "--no-same-owner")
        .current_dir("/Users/admin");
}

fn boot(birth: &Birth) -> std::io::Result<()> {
    if birth.boot.is_empty() {
        return Ok(());
    }
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open("/var/log/boot.log")?;
    let mut command = Command::new("/bin/sh");
    surroundings(&mut command, birth.address);
    let mut child = command
        .args(["-c", &birth.boot])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    // That it ends does not matter; that somebody reaps it does.
    tokio::spawn(async move { child.wait().await });
    Ok(())
}

async fn shut_down() -> std::io::Result<()> {
    let _ = Command::new("/bin/sh")
        .args(["-c", "kill -TERM -1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await;
    let alone = async {
        while processes() > 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(GRACE, alone).await;
    Ok(())
}

/// Processes that still live; those that only wait to be reaped do not count.
fn processes() -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return 1;
    };
    let living = |path: &Path| {
        let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    };
    entries
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .bytes()
                .all(|byte| byte.is_ascii_digit())
        })
        .filter(|entry| living(&entry.path()))
        .count()
}
