//! The go command: found, checked, and run with the settings every build shares.
//!
//! The settings are the same for all parts, since Go compiles everything anew when one differs (cgo, -trimpath): CGO_ENABLED=0,
//! and none of the user's own GOFLAGS. The user's proxy, caches and toolchain settings stay as they are.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::Command,
};

use crate::{Error, Options, SourceError, attempt::Failure, platform::Platform};

/// How much of a failed command's stderr is worth showing.
const TAIL_LINES: usize = 25;

#[derive(Debug)]
pub(crate) struct Go {
    program: PathBuf,
    /// `nice`, if there is one: a build shall not make the machine sluggish.
    nice: Option<PathBuf>,
    path: std::ffi::OsString,
    offline: bool,
    platform: Platform,
    pub(crate) caches: Vec<PathBuf>,
}

impl Go {
    /// Finds Go and checks that it is new enough for a module whose go.mod says `go <needed>`.
    pub(crate) async fn find(options: &Options, platform: &Platform, needed: &str) -> Result<Self, Failure> {
        let program = options.which("go").ok_or_else(|| SourceError::NoGo {
            needed: needed.to_owned(),
        })?;
        let mut go = Self {
            program,
            nice: options.which("nice"),
            path: options.path(),
            offline: !options.download,
            platform: platform.clone(),
            caches: Vec::new(),
        };
        // Asked outside any module, Go tells its own version rather than that of the toolchain it would switch to.
        let text = go
            .run(
                &std::env::temp_dir(),
                &["env", "GOVERSION", "GOTOOLCHAIN", "GOCACHE", "GOMODCACHE"],
                |_| {},
            )
            .await?;
        let mut lines = text.lines();
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let (version, toolchain) = (next(), next());
        go.caches = [next(), next()]
            .into_iter()
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
            .collect();
        let found = version.trim_start_matches("go");
        if older(found, needed) && toolchain == "local" {
            return Err(SourceError::GoTooOld {
                found: found.to_owned(),
                needed: needed.to_owned(),
            }
            .into());
        }
        Ok(go)
    }

    /// Runs `go <args>` in a folder and returns its stdout. Every line of stderr is passed on as it appears.
    pub(crate) async fn run(&self, folder: &Path, args: &[&str], line: impl FnMut(&str)) -> Result<String, Failure> {
        let mut command = match &self.nice {
            Some(nice) => {
                let mut command = Command::new(nice);
                command.args(["-n", "10"]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command
            .args(args)
            .current_dir(folder)
            .env("PATH", &self.path)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly -buildvcs=false")
            .env("GOWORK", "off")
            .env("GO111MODULE", "on")
            .env("GOOS", &self.platform.os)
            .env("GOARCH", &self.platform.arch);
        if self.offline {
            // What is in the module cache still serves.
            command.env("GOPROXY", "off");
        }
        let shown = format!("go {}", args.first().copied().unwrap_or_default());
        let (status, stdout, tail) = stream(command, line).await.map_err(|source| SourceError::Spawn {
            command: shown.clone(),
            source,
        })?;
        if status.success() {
            Ok(stdout)
        } else {
            Err(SourceError::Command {
                command: shown,
                status,
                tail,
            }
            .into())
        }
    }
}

/// Runs a command: its stdout, the lines of its stderr as they come, and the last of these in the end. Dropped, it is killed.
pub(crate) async fn stream(
    mut command: Command,
    mut line: impl FnMut(&str),
) -> std::io::Result<(ExitStatus, String, String)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdout = Vec::new();
    let mut tail = std::collections::VecDeque::new();
    let out = child.stdout.take();
    let err = child.stderr.take();
    let read_out = async {
        match out {
            Some(mut out) => out.read_to_end(&mut stdout).await.map(drop),
            None => Ok(()),
        }
    };
    let read_err = async {
        let Some(err) = err else { return Ok(()) };
        let mut lines = BufReader::new(err).split(b'\n');
        while let Some(bytes) = lines.next_segment().await? {
            let text = String::from_utf8_lossy(&bytes);
            line(&text);
            // `go build -v` names each package on a line of its own; what explains a failure has spaces in it.
            if text.trim().contains(' ') {
                tail.push_back(text.trim_end().to_owned());
                if tail.len() > TAIL_LINES {
                    tail.pop_front();
                }
            }
        }
        std::io::Result::Ok(())
    };
    let (read_out, read_err) = tokio::join!(read_out, read_err);
    read_out?;
    read_err?;
    let status = child.wait().await?;
    let tail = tail.into_iter().collect::<Vec<_>>().join("\n");
    Ok((status, String::from_utf8_lossy(&stdout).into_owned(), tail))
}

/// The `go` line of a go.mod.
pub(crate) fn needed_version(go_mod: &str) -> Result<String, Error> {
    go_mod
        .lines()
        .find_map(|line| line.strip_prefix("go "))
        .map(|version| version.trim().to_owned())
        .ok_or_else(|| Error::Manifest("a go.mod has no go line".to_owned()))
}

/// Compares release numbers; a release candidate counts as its release, development versions as new enough.
fn older(found: &str, needed: &str) -> bool {
    let numbers = |text: &str| -> Option<Vec<u32>> {
        let release = text.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
        release
            .split('.')
            .filter(|n| !n.is_empty())
            .map(|n| n.parse().ok())
            .collect::<Option<Vec<_>>>()
            .filter(|n| n.len() >= 2)
    };
    matches!((numbers(found), numbers(needed)), (Some(found), Some(needed)) if found < needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions_compare_by_number() {
        assert!(older("1.9.7", "1.26.0"));
        assert!(older("1.25.11", "1.26.0"));
        assert!(!older("1.26.8", "1.26.0"));
        assert!(!older("1.27rc1", "1.26.0"));
        assert!(!older("1.26.8-X:nodwarf5", "1.26.0"));
        assert!(!older("devel +abc", "1.26.0"));
    }

    #[test]
    fn the_go_line_of_a_module_is_read() {
        assert_eq!(needed_version("module m\n\ngo 1.26.0\n").unwrap(), "1.26.0");
        assert!(needed_version("module m\n").is_err());
    }
}
