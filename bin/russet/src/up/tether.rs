//! Short-lived helpers (Helm) that must not outlive us.
//!
//! Ctrl-C reaches them with us, being in our process group, and a dropped future kills them. For `kill -9` of russet
//! itself, Linux lets a child ask for its own death with its parent's: `setpriv --pdeathsig`, where it is installed.

use std::path::{Path, PathBuf};
use tokio::process::Command;

/// A command for `program` that dies with us.
pub(super) fn command(program: &Path) -> Command {
    let mut command = match setpriv() {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.kill_on_drop(true);
    command
}

fn setpriv() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    ["/usr/bin/setpriv", "/bin/setpriv", "/usr/local/bin/setpriv"]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.is_file())
}
