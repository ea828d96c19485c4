//! Runs one command to its end or its deadline. Output goes to a file rather than a pipe: a server that a tool leaves behind would
//! hold a pipe open for ever.

use std::{
    fmt, fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use crate::{Error, plan::Invocation};

/// Much more than any tiny project says; what follows is cut off.
const OUTPUT_LIMIT: usize = 4 << 20;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// It was ended by us.
    DeadlinePassed,
}

impl Exit {
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::DeadlinePassed => f.write_str("no end before its deadline"),
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or_default()),
        }
    }
}

/// What every command gets.
#[derive(Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) search_path: &'a std::ffi::OsStr,
    pub(crate) home: PathBuf,
    pub(crate) temp: PathBuf,
}

/// Runs a command; its output, errors included, is appended to `log` and returned.
pub(crate) async fn run(
    invocation: &Invocation,
    surroundings: &Surroundings<'_>,
    log: &Path,
    deadline: Instant,
) -> Result<(Exit, String), Error> {
    let open = |path: &Path| {
        fs::File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(Error::io("open", path))
    };
    let begins = fs::metadata(log).map_or(0, |metadata| metadata.len());
    let mut child = Group::start(prepare(invocation, surroundings, open(log)?, open(log)?), invocation)?;
    let left = deadline.saturating_duration_since(Instant::now());
    let exit = if let Ok(status) = tokio::time::timeout(left, child.child.wait()).await {
        status.map(Exit::from).map_err(|source| Error::Spawn {
            command: invocation.shown(),
            source,
        })?
    } else {
        child.end();
        // The group is gone at once; this only collects it.
        let _ = tokio::time::timeout(Duration::from_secs(10), child.child.wait()).await;
        Exit::DeadlinePassed
    };
    let bytes = fs::read(log).map_err(Error::io("read", log))?;
    let from = usize::try_from(begins).unwrap_or(usize::MAX).min(bytes.len());
    let said = bytes.get(from..).unwrap_or_default();
    let said = said.get(..OUTPUT_LIMIT).unwrap_or(said);
    Ok((exit, String::from_utf8_lossy(said).into_owned()))
}

fn prepare(invocation: &Invocation, surroundings: &Surroundings<'_>, stdout: fs::File, stderr: fs::File) -> Command {
    let mut command = Command::new(&invocation.program);
    command
        .args(&invocation.args)
        .env_clear()
        .env("PATH", surroundings.search_path)
        .env("HOME", &surroundings.home)
        .env("TMPDIR", &surroundings.temp)
        .env("LC_ALL", "C.UTF-8")
        .env("CI", "1")
        .env("NO_COLOR", "1")
        .envs(&invocation.env)
        .current_dir(&invocation.dir)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// For [`Drop`], where nothing can be awaited.
pub(crate) fn run_blocking(invocation: &Invocation, surroundings: &Surroundings<'_>) {
    let mut command = std::process::Command::new(&invocation.program);
    command
        .args(&invocation.args)
        .env_clear()
        .env("PATH", surroundings.search_path)
        .env("HOME", &surroundings.home)
        .env("TMPDIR", &surroundings.temp)
        .envs(&invocation.env)
        .current_dir(&invocation.dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Err(error) = command.status() {
        tracing::debug!(command = invocation.shown(), %error, "failed to stop a server");
    }
}

/// A process and all it starts. What is left of it ends when this is dropped.
struct Group {
    child: Child,
    leader: Option<Pid>,
}

impl Group {
    fn start(mut command: Command, invocation: &Invocation) -> Result<Self, Error> {
        let child = command.spawn().map_err(|source| Error::Spawn {
            command: invocation.shown(),
            source,
        })?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { child, leader })
    }

    fn end(&mut self) {
        if let Some(leader) = self.leader.take() {
            // Already gone is what was wanted.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str, patience: Duration) -> (Exit, String) {
        let dir = tempfile::tempdir().unwrap();
        let invocation = Invocation::new("/bin/sh", dir.path()).args(["-c", script]);
        let surroundings = Surroundings {
            search_path: "/usr/bin:/bin".as_ref(),
            home: dir.path().to_owned(),
            temp: dir.path().to_owned(),
        };
        run(
            &invocation,
            &surroundings,
            &dir.path().join("log"),
            Instant::now() + patience,
        )
        .await
        .unwrap()
    }

    const LONG: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn output_and_exit_code_come_back() {
        let (exit, said) = shell("echo out; echo err >&2; exit 3", LONG).await;
        assert_eq!(exit, Exit::Code(3));
        assert!(said.contains("out") && said.contains("err"), "{said}");
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_ended_with_its_children() {
        let (exit, said) = shell("sleep 1000 & echo child $!; wait", Duration::from_millis(300)).await;
        assert_eq!(exit, Exit::DeadlinePassed);
        let child: i32 = said.trim().strip_prefix("child ").unwrap().parse().unwrap();
        let deadline = Instant::now() + LONG;
        while Path::new(&format!("/proc/{child}")).exists()
            && !fs::read_to_string(format!("/proc/{child}/stat"))
                .unwrap_or_default()
                .contains(" Z ")
        {
            assert!(Instant::now() < deadline, "the child is still there");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_background_process_does_not_hold_the_result_up() {
        let (exit, said) = shell("sleep 1000 & echo done", LONG).await;
        assert_eq!((exit, said.trim()), (Exit::Code(0), "done"));
    }

    #[tokio::test]
    async fn nothing_of_our_environment_leaks_into_a_tool() {
        let (_, said) = shell("env", LONG).await;
        let names: Vec<&str> = said.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        for name in names {
            assert!(
                [
                    "PATH", "HOME", "TMPDIR", "LC_ALL", "CI", "NO_COLOR", "PWD", "OLDPWD", "SHLVL", "_"
                ]
                .contains(&name),
                "{name}"
            );
        }
    }
}
