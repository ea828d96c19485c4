//! The tailnet: the open-source tailscaled with a job of our own, which restarts it and keeps its last words.

use russet_telemetry::Secret;

use crate::mac::config::{Fleet, Host, Tailnet};
use crate::mac::plist::{self, Value};
use crate::mac::resource::{Mode, Resource, Rhythm};
use crate::mac::step::Step;

use super::absent_job;

const LABEL: &str = "com.tailscale.tailscaled";
const PLIST: &str = "/Library/LaunchDaemons/com.tailscale.tailscaled.plist";
const DAEMON: &str = "/usr/local/bin/tailscaled";
const LOG: &str = "/var/log/tailscaled.log";

const UNPACK_CHECK: &str = r#"
[ "$(cat "$STATE/installed/tailscale.tar" 2>/dev/null)" = "$UPLOAD $(sha /usr/local/bin/tailscale) $(sha /usr/local/bin/tailscaled)" ]
"#;
/// New inodes, signed before they get their names, as with every program.
const UNPACK_CHANGE: &str = r#"
stage=$STATE/staging/$UPLOAD
blob_whole "$UPLOAD" || exit 1
rm -rf "$stage" && folder "$stage" "$STATE/installed" /usr/local/bin || exit 1
tar -xzf "$STATE/incoming/$UPLOAD" -C "$stage" || exit 1
for name in tailscale tailscaled; do
  found=$(find "$stage" -type f -name "$name" | head -n 1)
  [ -n "$found" ] || { say "there is no $name in the archive" >&2; exit 1; }
  own "$found" -rwxr-xr-x root:wheel && codesign --force --sign - "$found" && mv -f "$found" "/usr/local/bin/$name" || exit 1
done
printf '%s %s %s\n' "$UPLOAD" "$(sha /usr/local/bin/tailscale)" "$(sha /usr/local/bin/tailscaled)" >"$STATE/installed/tailscale.tar" &&
  rm -rf "$stage" "$STATE/incoming/$UPLOAD"
"#;

/// A host that is on the tailnet as it should be is left there: logging in again could make it another device.
const JOIN_CHECK: &str = r#"
[ "$(cat "$STATE/loaded/tailnet" 2>/dev/null)" = "$NODE $TAGS $ROUTES $SERVER" ] &&
  tailscale ip -4 2>/dev/null | grep '^[0-9]' >/dev/null
"#;
const JOIN_CHANGE: &str = r#"
tries=0
until tailscale status --json >/dev/null 2>&1; do
  tries=$((tries + 1))
  [ "$tries" -lt "30" ] || { say 'tailscaled does not answer; see /var/log/tailscaled.log' >&2; exit 1; }
  sleep "$PAUSE"
done
set -- --reset --ssh=false --hostname="$NODE" --timeout="$JOIN"
[ -z "$TAGS" ] || set -- "$@" --advertise-tags="$TAGS"
[ -z "$ROUTES" ] || set -- "$@" --accept-routes
[ -z "$SERVER" ] || set -- "$@" --login-server="$SERVER"
if [ -n "$KEY" ]; then
  mkdir -p /etc/tuist && key=/etc/tuist/tailscale-auth-key || exit 1
  trap 'rm -f "$key"' EXIT
  printf '%s' "$KEY" >"$key" || exit 1
  set -- "$@" --auth-key="file:$key"
elif ! tailscale ip -4 >/dev/null 2>&1; then
  say 'the host is not on the tailnet, and there is no key to join it with' >&2
  exit 1
fi
rm -f "$STATE/loaded/tailnet"
tailscale up "$@" || exit 1
tries=0
until tailscale ip -4 2>/dev/null | grep '^[0-9]' >/dev/null; do
  tries=$((tries + 1))
  [ "$tries" -lt "30" ] || { say 'the tailnet gave no address' >&2; exit 1; }
  sleep "$PAUSE"
done
folder "$STATE/loaded" && say "$NODE $TAGS $ROUTES $SERVER" >"$STATE/loaded/tailnet"
"#;

/// The step.
pub(in crate::mac) fn step(fleet: &Fleet, host: &Host) -> Step {
    let Some(tailnet) = &fleet.tailnet else {
        let gone = |path: &str| Resource::Absent { path: path.to_owned() };
        return Step::new(
            "tailscale",
            vec![
                absent_job(LABEL),
                gone(DAEMON),
                gone("/usr/local/bin/tailscale"),
                gone("/usr/local/lib/russet/loaded/tailnet"),
            ],
        );
    };
    let folder = |path: &str| Resource::Directory {
        path: path.to_owned(),
        mode: Mode::root("drwx------"),
    };
    Step::new(
        "tailscale",
        vec![
            Resource::Script {
                upload: Some(tailnet.archive.clone()),
                variables: Vec::new(),
                check: UNPACK_CHECK,
                change: UNPACK_CHANGE,
            },
            // A parent that is missing ends tailscaled early.
            folder("/var/lib/tailscale"),
            job(),
            Resource::Script {
                upload: None,
                variables: variables(tailnet, host),
                check: JOIN_CHECK,
                change: JOIN_CHANGE,
            },
        ],
    )
}

fn variables(tailnet: &Tailnet, host: &Host) -> Vec<(&'static str, Secret<String>)> {
    let plain = |text: &str| Secret::new(text.to_owned());
    let key = host.tailnet_key.as_ref().map(|key| key.expose().trim().to_owned());
    vec![
        ("KEY", Secret::new(key.map(authorised).unwrap_or_default())),
        ("NODE", plain(&host.node_name)),
        ("TAGS", plain(&tailnet.tags.join(","))),
        ("ROUTES", plain(if tailnet.accept_routes { "yes" } else { "" })),
        ("SERVER", plain(tailnet.login_server.as_deref().unwrap_or_default())),
    ]
}

/// An OAuth secret becomes a key that needs nobody's approval and whose device goes with the host.
fn authorised(key: String) -> String {
    if key.starts_with("tskey-client-") && !key.contains('?') {
        return format!("{key}?ephemeral=true&preauthorized=true");
    }
    key
}

fn job() -> Resource {
    Resource::Job {
        job: format!("system/{LABEL}"),
        plist: PLIST.to_owned(),
        content: plist::render(vec![
            ("Label", LABEL.into()),
            (
                "ProgramArguments",
                Value::list([
                    DAEMON,
                    "--state=/var/lib/tailscale/tailscaled.state",
                    "--socket=/var/run/tailscaled.socket",
                    "--port=41641",
                ]),
            ),
            ("RunAtLoad", Value::True),
            ("KeepAlive", Value::True),
            ("ThrottleInterval", Value::Number(10)),
            ("StandardOutPath", LOG.into()),
            ("StandardErrorPath", LOG.into()),
        ]),
        rhythm: Rhythm::Daemon,
        inputs: vec![DAEMON.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oauth_secret_becomes_a_key_for_hosts() {
        assert_eq!(
            authorised("tskey-client-x".into()),
            "tskey-client-x?ephemeral=true&preauthorized=true"
        );
        assert_eq!(authorised("tskey-auth-x".into()), "tskey-auth-x");
    }
}
