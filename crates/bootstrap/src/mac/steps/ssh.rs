//! Who may log in, and how: with a key. A mini has a public address and is tried at once.

use russet_telemetry::Secret;

use crate::mac::config::Host;
use crate::mac::resource::{Mode, Resource};
use crate::mac::step::Step;

/// sshd takes the first value it reads of each setting, and reads files of this folder in order of their names.
const SETTINGS: &str = "/etc/ssh/sshd_config.d/050-russet.conf";
/// launchd starts at most 42 sshd at once, so those that only keep a place are sent away soon.
pub(in crate::mac) const CONTENT: &str = "# Written by Russet; changes are undone.
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication yes
PermitRootLogin no
MaxAuthTries 4
LoginGraceTime 20
ClientAliveInterval 30
ClientAliveCountMax 4
";

/// Our lines are between marks; others belong to others.
const KEYS_CHECK: &str = r##"
file=/Users/$LOGIN/.ssh/authorized_keys
now=$(awk '$0 == "# END russet" { mine = 0 } mine { print } $0 == "# BEGIN russet" { mine = 1 }' "$file" 2>/dev/null)
[ "$now" = "$KEYS" ] && [ ! -L "$file" ] && mode_ok "$file" -rw------- "$LOGIN:staff"
"##;
const KEYS_CHANGE: &str = r##"
folder=/Users/$LOGIN/.ssh
file=$folder/authorized_keys
[ ! -L "$file" ] && [ ! -L "$folder" ] || { say "$file is a link; remove it" >&2; exit 1; }
dir_ok "$folder" drwx------ "$LOGIN:staff" || dir_put "$folder" drwx------ "$LOGIN:staff" || exit 1
part=$(part_of "$file")
theirs() {
  [ ! -f "$file" ] || awk '$0 == "# BEGIN russet" { mine = 1 } !mine { print } $0 == "# END russet" { mine = 0 }' "$file"
}
theirs >"$part" && printf '%s\n' '# BEGIN russet' "$KEYS" '# END russet' >>"$part" &&
  own "$part" -rw------- "$LOGIN:staff" && mv -f "$part" "$file" && exit 0
rm -f "$part"
say "$file could not be written" >&2
exit 1
"##;

/// The step.
pub(in crate::mac) fn step(host: &Host) -> Step {
    if host.login_keys.is_empty() {
        let path = SETTINGS.to_owned();
        return Step::new("ssh-hardening", vec![Resource::Absent { path }]);
    }
    let keys = host.login_keys.join("\n");
    Step::new(
        "ssh-hardening",
        vec![
            // Keys first: from the next line on there is no other way in.
            Resource::Script {
                upload: None,
                variables: vec![("LOGIN", Secret::new(host.user.clone())), ("KEYS", Secret::new(keys))],
                check: KEYS_CHECK,
                change: KEYS_CHANGE,
            },
            Resource::text(SETTINGS, Mode::TEXT, CONTENT),
        ],
    )
}
