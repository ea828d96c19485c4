//! A builder: a host whose GitHub Actions runner bakes images with Packer on the host's own tart.
//!
//! Packer is pinned. macOS lets it reach the machines it bakes by its code signature, and every upgrade takes that back.

use std::time::Duration;

use russet_telemetry::Secret;

use crate::mac::config::{Host, Runner};
use crate::mac::resource::Resource;
use crate::mac::step::Step;

/// Homebrew, Packer and the runner come from the internet.
const DOWNLOADS: Duration = Duration::from_mins(30);

const TOOLS_CHECK: &str = r#"
brew() { sudo -n -H -u "$LOGIN" /opt/homebrew/bin/brew "$@"; }
for tool in packer crane oras; do [ -x "/opt/homebrew/bin/$tool" ] || exit 1; done
brew list --pinned | grep '^packer' >/dev/null
"#;
const TOOLS_CHANGE: &str = r#"
brew() { sudo -n -H -u "$LOGIN" /opt/homebrew/bin/brew "$@"; }
[ -x /opt/homebrew/bin/brew ] ||
  curl -fsSL https://raw.githubusercontent.com/Homebrew/install/HEAD/install.sh |
  sudo -n -H -u "$LOGIN" /usr/bin/env NONINTERACTIVE=1 /bin/bash || true
[ -x /opt/homebrew/bin/brew ] || { say 'Homebrew is missing and could not be installed; does the host reach GitHub?' >&2; exit 1; }
[ -x /opt/homebrew/bin/packer ] || brew install hashicorp/tap/packer || exit 1
[ -x /opt/homebrew/bin/crane ] || brew install crane || exit 1
[ -x /opt/homebrew/bin/oras ] || brew install oras || exit 1
brew pin packer
"#;

/// What Packer was when it was pinned. Another signature means that somebody has to click "Allow" again.
const SIGNATURE_CHECK: &str = r#"
now=$(codesign -dvvvv /opt/homebrew/bin/packer 2>&1 | awk -F= '$1 == "CDHash" { print $2 }')
then=$(cat "$STATE/installed/packer.cdhash" 2>/dev/null)
[ -n "$then" ] || exit 1
[ "$now" = "$then" ] && exit 0
say 'packer has another code signature than when it was set up, so macOS asks for Local Network access again: restart the host, or log in over VNC and click Allow; then remove /usr/local/lib/russet/installed/packer.cdhash'
exit "$HELD"
"#;
const SIGNATURE_CHANGE: &str = r#"
folder "$STATE/installed" || exit 1
codesign -dvvvv /opt/homebrew/bin/packer 2>&1 | awk -F= '$1 == "CDHash" { print $2 }' >"$STATE/installed/packer.cdhash"
"#;

const XCODE_CHECK: &str = r#"
[ -d /Applications/Xcode.app ] && xcodebuild -version >/dev/null 2>&1
"#;
const XCODE_CHANGE: &str = r#"
[ -d /Applications/Xcode.app ] || { say 'Xcode is missing in /Applications; choose an image with Xcode' >&2; exit 1; }
xcode-select -s /Applications/Xcode.app/Contents/Developer && xcodebuild -license accept && xcodebuild -version
"#;

const FOLDERS_CHECK: &str = r#"
grep '^export TUIST_MIX_BUILD_ROOT=/opt/tuist-build-cache$' /etc/zshenv >/dev/null 2>&1 &&
  dir_ok /opt/tuist-build-cache drwxr-xr-x "$LOGIN:staff" && dir_ok /opt/actions-runner drwxr-xr-x "$LOGIN:staff"
"#;
const FOLDERS_CHANGE: &str = r#"
dir_put /opt/tuist-build-cache drwxr-xr-x "$LOGIN:staff" && dir_put /opt/actions-runner drwxr-xr-x "$LOGIN:staff" || exit 1
part=$(part_of /etc/zshenv)
others() { [ ! -f /etc/zshenv ] || awk '!/^export TUIST_MIX_BUILD_ROOT=/' /etc/zshenv; }
others >"$part" && say 'export TUIST_MIX_BUILD_ROOT=/opt/tuist-build-cache' >>"$part" &&
  own "$part" -rw-r--r-- root:wheel && mv -f "$part" /etc/zshenv && exit 0
rm -f "$part"
say '/etc/zshenv could not be written' >&2
exit 1
"#;

/// The agent has to live in the desktop session, which the runner's own `svc.sh start` cannot reach over SSH.
const RUNNER_CHECK: &str = r#"
cd /opt/actions-runner || exit 1
[ -s .runner ] && [ -s .credentials ] || exit 1
job="gui/$(id -u "$LOGIN")/actions.runner.$ORG.$NODE"
[ -n "$(job_pid "$job")" ]
"#;
/// The token reaches the runner by its environment: it does not read standard input, and arguments can be read by everybody.
const RUNNER_CHANGE: &str = r#"
cd /opt/actions-runner || exit 1
user() { sudo -n -H -u "$LOGIN" "$@"; }
job="gui/$(id -u "$LOGIN")/actions.runner.$ORG.$NODE"
plist="/Users/$LOGIN/Library/LaunchAgents/actions.runner.$ORG.$NODE.plist"
if [ ! -x config.sh ]; then
  archive="actions-runner-osx-arm64-$VERSION.tar.gz"
  user curl -fsSL -o "$archive" "https://github.com/actions/runner/releases/download/v$VERSION/$archive" &&
    user tar -xzf "$archive" && rm -f "$archive" || { say "the runner $VERSION could not be downloaded" >&2; exit 1; }
fi
if [ ! -s .runner ] || [ ! -s .credentials ]; then
  [ -n "$TOKEN" ] || { say 'the runner is not registered, and there is no token to register it with' >&2; exit 1; }
  printf '%s\n' "$TOKEN" | user /bin/bash -c 'IFS= read -r ACTIONS_RUNNER_INPUT_TOKEN && export ACTIONS_RUNNER_INPUT_TOKEN &&
    exec ./config.sh --unattended --replace --work _work --url "https://github.com/$1" --name "$2" --labels "$3"' config "$ORG" "$NODE" "$LABELS" ||
    { say 'the runner could not be registered' >&2; exit 1; }
fi
[ -s "$plist" ] || user ./svc.sh install || exit 1
printf '%s\n' /usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin >.path && chown "$LOGIN:staff" .path || exit 1
job_known "$job" || launchctl bootstrap "${job%/*}" "$plist" || exit 1
launchctl kickstart "$job"
job_settles "$job" ''
"#;

/// The step; nothing on hosts that are no builders.
pub(in crate::mac) fn step(host: &Host) -> Step {
    let Some(runner) = &host.runner else {
        return Step::new("github-runner", Vec::new());
    };
    let script = |check, change| Resource::Script {
        upload: None,
        variables: variables(host, runner),
        check,
        change,
    };
    let mut step = Step::new(
        "github-runner",
        vec![
            script(TOOLS_CHECK, TOOLS_CHANGE),
            script(XCODE_CHECK, XCODE_CHANGE),
            script(FOLDERS_CHECK, FOLDERS_CHANGE),
            script(RUNNER_CHECK, RUNNER_CHANGE),
            script(SIGNATURE_CHECK, SIGNATURE_CHANGE),
        ],
    );
    step.deadline = DOWNLOADS;
    step
}

fn variables(host: &Host, runner: &Runner) -> Vec<(&'static str, Secret<String>)> {
    let plain = |text: &str| Secret::new(text.to_owned());
    vec![
        ("LOGIN", plain(&host.user)),
        ("NODE", plain(&host.node_name)),
        ("ORG", plain(&runner.org)),
        ("LABELS", plain(&runner.labels)),
        ("VERSION", plain(&runner.version)),
        ("TOKEN", runner.token.clone()),
    ]
}
