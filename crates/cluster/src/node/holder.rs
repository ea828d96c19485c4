//! The process that keeps namespaces alive, and whose end is the end of everything inside them.
//!
//! A node creates mounts, bridges, firewall rules, shims and containers all over the place. Undoing these one by one
//! never quite works, and not at all when the parent was killed. So they are made inside namespaces that one process
//! holds, and the kernel undoes them when it ends:
//!
//! ```text
//! parent ──pipe──▶ sh (guard) ── unshare ── cat (process 1 of the pid namespace)
//!                   │                        └ dies ⇒ every process inside dies, then mounts and network go
//!                   └ outlives the above by a moment, to remove the cgroups, which no namespace takes along
//! ```
//!
//! `cat` reads the pipe. The pipe ends when the parent closes it, panics, exits or is killed with SIGKILL: there is no
//! path on which it stays open. A parent-death signal would do too, but it fires at the end of the spawning *thread*,
//! which a tokio worker may be.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::watch;

use super::{Error, system};

/// Removes cgroup trees given as arguments, leaves first. Members may need a moment to be gone, hence the retries.
pub const REMOVE_CGROUPS: &str = r#"
tries=0
while [ "$tries" -lt 100 ]; do
  left=
  for tree in "$@"; do
    [ -d "$tree" ] || continue
    find "$tree" -depth -type d -exec rmdir {} \; 2>/dev/null
    [ -d "$tree" ] && left=1
  done
  [ -z "$left" ] && exit 0
  sleep 0.1
  tries=$((tries + 1))
done
exit 1
"#;

/// Set-up is a handful of mounts; longer than this means that something hangs.
const SETUP: Duration = Duration::from_secs(20);

/// What to hold.
#[derive(Debug)]
pub struct Plan {
    /// Shown in the process list and in errors.
    pub name: String,
    pub isolation: Isolation,
    /// Shell commands run inside the new namespaces before they count as ready.
    pub setup: String,
    /// Removed when the namespaces are gone.
    pub cgroups: Vec<PathBuf>,
    /// Receives what the commands say.
    pub log: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// A network namespace only.
    Network,
    /// Network, mounts, processes, host name and IPC: a machine of its own, apart from the kernel.
    Machine,
}

impl Isolation {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Network => &["--net"],
            Self::Machine => &["--net", "--mount", "--pid", "--uts", "--ipc"],
        }
    }
}

/// Namespaces that live exactly as long as this value.
#[derive(Debug)]
pub struct Holder {
    pid: u32,
    isolation: Isolation,
    pipe: Option<ChildStdin>,
    /// Becomes true when the guard has ended, and everything with it.
    ended: watch::Receiver<bool>,
    /// Waits for the guard; taken only by `drop`.
    waiter: Option<JoinHandle<()>>,
}

impl Holder {
    pub async fn start(plan: Plan) -> Result<Self, Error> {
        let name = plan.name.clone();
        let log = plan.log.clone();
        let spawned = tokio::task::spawn_blocking(move || Self::spawn(&plan));
        match tokio::time::timeout(SETUP, spawned).await {
            Ok(Ok(Ok(Some(holder)))) => Ok(holder),
            Ok(Ok(Ok(None))) => {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                Err(Error::Namespaces {
                    name,
                    detail: said.trim().to_owned(),
                })
            }
            Ok(Ok(Err(source))) => Err(Error::Spawn {
                attempt: format!("hold the namespaces of {name}"),
                program: "sh".to_owned(),
                source,
            }),
            Ok(Err(join)) => Err(Error::Namespaces {
                name,
                detail: join.to_string(),
            }),
            Err(_) => Err(Error::Timeout {
                what: format!("the set-up of the namespaces of {name}"),
                waited: SETUP,
                detail: format!("see {}", log.display()),
            }),
        }
    }

    /// `None` means that the set-up ended without reporting a process, so it failed and said why in the log.
    fn spawn(plan: &Plan) -> std::io::Result<Option<Self>> {
        let log = std::fs::File::create(&plan.log)?;
        let mut guard = Command::new("sh")
            .args(["-c", &guard_script(plan), &plan.name])
            .args(&plan.cgroups)
            .env_clear()
            .env("PATH", system::PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // Ctrl-C in a terminal reaches the whole foreground group; the guard has to outlive it.
            .process_group(0)
            .spawn()?;
        let pipe = guard.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = guard.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let Ok(pid) = line.trim().parse() else {
            drop(pipe);
            guard.wait()?;
            return Ok(None);
        };
        let (sender, ended) = watch::channel(false);
        let waiter = std::thread::Builder::new()
            .name("russet-holder".to_owned())
            .spawn(move || wait(guard, &sender))?;
        Ok(Some(Self {
            pid,
            isolation: plan.isolation,
            pipe,
            ended,
            waiter: Some(waiter),
        }))
    }

    /// The held process as this process sees it; for [`Isolation::Machine`] it is process 1 inside.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Becomes true when the namespaces and everything in them are gone, for whatever reason.
    pub fn ended(&self) -> watch::Receiver<bool> {
        self.ended.clone()
    }

    /// The arguments of `nsenter` that run a program inside. A program entered this way ends with `nsenter`,
    /// so that whoever supervises the one also ends the other.
    pub fn enter<S: AsRef<str>>(&self, program: &str, args: &[S]) -> Vec<String> {
        let mut command = vec!["--target".to_owned(), self.pid.to_string()];
        command.extend(self.isolation.flags().iter().map(|&flag| flag.to_owned()));
        command.extend(["--", "setpriv", "--pdeathsig", "KILL", "--", program].map(str::to_owned));
        command.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        command
    }

    /// Runs a program inside, to its end.
    pub async fn run<S: AsRef<str>>(
        &self,
        attempt: impl Into<String>,
        program: &str,
        args: &[S],
    ) -> Result<String, Error> {
        system::run(attempt, "nsenter", &self.enter(program, args)).await
    }
}

impl Drop for Holder {
    /// Blocks until the kernel has taken everything apart: tens of milliseconds, and bounded by the guard's own retries.
    fn drop(&mut self) {
        self.pipe.take();
        if self.waiter.take().is_some_and(|waiter| waiter.join().is_err()) {
            tracing::error!("the thread that waits for a namespace panicked");
        }
    }
}

fn wait(mut guard: Child, ended: &watch::Sender<bool>) {
    if let Err(error) = guard.wait() {
        tracing::warn!(pid = guard.id(), %error, "could not wait for the end of a namespace");
    }
    ended.send_replace(true);
}

fn guard_script(plan: &Plan) -> String {
    let flags = plan.isolation.flags().join(" ");
    let fork = match plan.isolation {
        Isolation::Network => "",
        Isolation::Machine => "--fork --kill-child=KILL",
    };
    // The shell reads its own process id before /proc shows the new namespace: it is the id others can use.
    // Process 1 adopts orphans such as container shims; ignoring SIGCHLD makes the kernel reap them.
    let inside = format!(
        "set -eu\nread -r pid _ </proc/self/stat\n{}\necho \"$pid\"\nexec env --ignore-signal=CHLD cat >/dev/null\n",
        plan.setup
    );
    let mut script = String::new();
    // The death signal covers the guard itself being killed.
    let _ = writeln!(
        script,
        "setpriv --pdeathsig KILL unshare {flags} {fork} -- sh -c {}",
        quote(&inside)
    );
    script.push_str(REMOVE_CGROUPS);
    script
}

/// One word of a POSIX shell command, whatever it contains.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_reaches_the_program_unchanged() {
        for word in ["plain", "two words", "it's $HOME `x` \"y\" \\ *", ""] {
            let printed = Command::new("sh")
                .args(["-c", &format!("printf %s {}", quote(word))])
                .output()
                .unwrap()
                .stdout;
            assert_eq!(String::from_utf8(printed).unwrap(), word);
        }
    }
}
