//! The surroundings children are started in: a small environment and, on Linux, the launcher that ties them to us.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The variables children inherit; see the module documentation for why there are so few.
const INHERITED: [&str; 5] = ["PATH", "HOME", "TMPDIR", "TZ", "LANG"];

/// What every child of a supervisor gets.
#[derive(Debug, Clone)]
pub(super) struct Environment {
    inherited: Vec<(OsString, OsString)>,
    setpriv: Option<PathBuf>,
}

impl Environment {
    /// Taken from this process, once.
    pub(super) fn of_this_process() -> Self {
        let inherited: Vec<_> = std::env::vars_os().filter(|(name, _)| is_inherited(name)).collect();
        let path = inherited
            .iter()
            .find(|(name, _)| name == "PATH")
            .map(|(_, value)| value.as_os_str());
        let setpriv = if cfg!(target_os = "linux") {
            path.and_then(|path| find("setpriv", path))
        } else {
            None
        };
        if cfg!(target_os = "linux") && setpriv.is_none() {
            tracing::warn!(
                "setpriv (util-linux) is not on PATH: a killed run leaves its processes to the next one's sweep"
            );
        }
        Self { inherited, setpriv }
    }

    /// A command that runs `program` in this environment. `setpriv` replaces itself by the program, so the process id
    /// is the program's.
    pub(super) fn command(&self, program: &Path) -> tokio::process::Command {
        let mut command = match &self.setpriv {
            Some(setpriv) => {
                let mut command = tokio::process::Command::new(setpriv);
                command.args(["--pdeathsig", "KILL", "--"]).arg(program);
                command
            }
            None => tokio::process::Command::new(program),
        };
        command
            .env_clear()
            .envs(self.inherited.iter().map(|(name, value)| (name, value)));
        command
    }
}

fn is_inherited(name: &OsStr) -> bool {
    INHERITED.iter().any(|wanted| name == *wanted)
}

fn find(program: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|dir| dir.join(program))
        .find(|candidate| is_executable(candidate))
}

/// A file that somebody may execute.
pub(super) fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_the_shell_are_not_inherited() {
        assert!(is_inherited(OsStr::new("PATH")));
        for name in ["KUBECONFIG", "SCW_SECRET_KEY", "GITHUB_TOKEN", "HTTP_PROXY"] {
            assert!(!is_inherited(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_program_is_found_on_the_path_only_if_executable() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("setpriv");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        let path = dir.path().as_os_str();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(find("setpriv", path), None);
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("setpriv", path), Some(program));
    }
}
