//! What a builder needs before anybody sets it up here: GitHub's runner, which nobody can download.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::Mini;
use super::bench::archive;

/// The release that is asked for.
pub(super) const VERSION: &str = "2.336.0";

/// The runner's own scripts, as strict as they are: no root, no token but from the environment. [macOS facts 8]
const CONFIG: &str = r#"#!/bin/bash
[ "$(id -u)" != 0 ] || { echo 'Must not run with sudo'; exit 1; }
case $* in *--token*) echo 'the token is in the arguments'; exit 1 ;; esac
[ -n "${ACTIONS_RUNNER_INPUT_TOKEN:-}" ] || { echo 'Invalid configuration provided for token.'; exit 1; }
while [ $# -gt 0 ]; do [ "$1" = --name ] && name=$2; shift; done
echo "{\"agentName\": \"$name\"}" >.runner && echo '{}' >.credentials
"#;

/// It starts its agent the old way. [macOS facts 8]
const SERVICE: &str = r#"#!/bin/bash
[ "$(id -u)" != 0 ] || { echo 'Must not run with sudo'; exit 1; }
name=$(sed -n 's/.*"agentName": "\(.*\)".*/\1/p' .runner)
label=actions.runner.tuist.$name
plist=~/Library/LaunchAgents/$label.plist
case $1 in
install)
  mkdir -p ~/Library/LaunchAgents
  cat >"$plist" <<END
<?xml version="1.0" encoding="UTF-8"?>
<plist version="1.0"><dict><key>Label</key><string>$label</string>
<key>ProgramArguments</key><array><string>/opt/actions-runner/runsvc.sh</string></array>
<key>RunAtLoad</key><true/></dict></plist>
END
  ;;
start) launchctl load -w "$plist" ;;
*) exit 1 ;;
esac
"#;

const STAYS: &str = "#!/bin/bash\nexec sleep 100000\n";

/// Puts the archive of the runner onto a Mac, and a `curl` that knows only its address.
pub(super) async fn can_be_downloaded(mini: &Mini) -> Result<()> {
    let root = mini.mac().await?.root().to_owned();
    archive(
        &root.join("private/var/tmp/runner.tar.gz"),
        &[
            ("config.sh", CONFIG),
            ("svc.sh", SERVICE),
            ("runsvc.sh", STAYS),
            ("bin/Runner.Listener", STAYS),
        ],
    )?;
    let url = format!(
        "https://github.com/actions/runner/releases/download/v{VERSION}/actions-runner-osx-arm64-{VERSION}.tar.gz"
    );
    let curl = format!(
        "#!/bin/bash\n[ \"$1 $2 $4\" = \"-fsSL -o {url}\" ] || exit 22\nexec cat /var/tmp/runner.tar.gz >\"$3\"\n"
    );
    program(&root.join("usr/local/bin/curl"), &curl)
}

fn program(path: &Path, content: &str) -> Result<()> {
    let folder = path.parent().context("no folder")?;
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, content))
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("failed to write {}", path.display()))
}
