//! A desktop session without anybody at the desk. Virtual machines need one, of the very user that starts them.
//!
//! The password lies on disk as macOS keeps it for this: root's alone, and obscured rather than encrypted. It is written once,
//! while it is known. loginwindow puts `<sealed>` in its place when it turns out to be wrong, and says so to nobody.

use russet_telemetry::Secret;

use crate::mac::config::Host;
use crate::mac::resource::{Mode, Resource};
use crate::mac::step::Step;

const FILE: &str = "/etc/kcpassword";
/// What Apple obscures it with.
const KEY: [u8; 11] = [0x7d, 0x89, 0x52, 0x23, 0xd2, 0xbc, 0xdd, 0xea, 0xa3, 0xb9, 0x1f];
/// Its readers stop at the first NUL, of which there must be one.
const MULTIPLE: usize = 12;

const USER_CHECK: &str = r#"
[ "$(defaults read /Library/Preferences/com.apple.loginwindow autoLoginUser 2>/dev/null)" = "$LOGIN" ]
"#;
const USER_CHANGE: &str = r#"
defaults write /Library/Preferences/com.apple.loginwindow autoLoginUser "$LOGIN"
"#;

/// "<sealed>", obscured, in hexadecimal.
const KNOWN_CHECK: &str = r"
[ -s /etc/kcpassword ] || exit 1
case $(od -An -tx1 /etc/kcpassword | tr -d ' \n') in
41fa3742bed9b9d4*) exit 1 ;;
esac
";
const KNOWN_CHANGE: &str = r"
printf '%s\n' 'automatic login needs the password of the host, which is not disclosed any more; reinstall the host' >&2
exit 1
";

/// A session is never restarted while there is one: virtual machines would die with it.
const SESSION_CHECK: &str = r#"
launchctl print "gui/$(id -u "$LOGIN")" 2>/dev/null | awk '/session = Aqua/ { found = 1 } END { exit !found }'
"#;
const SESSION_CHANGE: &str = r#"
launchctl kickstart -k system/com.apple.loginwindow || say "launchctl kickstart of loginwindow ended with $?" >&2
tries=0
until launchctl print "gui/$(id -u "$LOGIN")" 2>/dev/null | awk '/session = Aqua/ { found = 1 } END { exit !found }'; do
  tries=$((tries + 1))
  case $(od -An -tx1 /etc/kcpassword | tr -d ' \n') in
  41fa3742bed9b9d4*)
    say 'macOS does not accept the password for automatic login; reinstall the host, or store the right one' >&2
    exit 1
    ;;
  esac
  [ "$tries" -lt "60" ] || { say 'no desktop session began; restart the host' >&2; exit 1; }
  sleep "$PAUSE"
done
"#;

/// The step.
pub(in crate::mac) fn step(host: &Host) -> Step {
    let login = || vec![("LOGIN", Secret::new(host.user.clone()))];
    let script = |check, change| Resource::Script {
        upload: None,
        variables: login(),
        check,
        change,
    };
    let password = match host.password.as_ref().map(|password| password.expose().as_str()) {
        None | Some("" | "<sealed>") => script(KNOWN_CHECK, KNOWN_CHANGE),
        Some(password) => Resource::File {
            path: FILE.to_owned(),
            mode: Mode::root("-rw-------"),
            content: Secret::new(obscured(password)),
        },
    };
    Step::new(
        "auto-login",
        vec![
            password,
            script(USER_CHECK, USER_CHANGE),
            script(SESSION_CHECK, SESSION_CHANGE),
        ],
    )
}

fn obscured(password: &str) -> Vec<u8> {
    let length = (password.len() / MULTIPLE + 1) * MULTIPLE;
    let padded = password.bytes().chain(std::iter::repeat(0)).take(length);
    padded.zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mac::resource::digits as hex;

    #[test]
    fn a_password_is_obscured_as_macos_does_it() {
        assert!(hex(&obscured("test")).starts_with("09ec2157d2bcddeaa3b91f"));
        assert!(hex(&obscured("<sealed>")).starts_with("41fa3742bed9b9d4"));
        assert!(KNOWN_CHECK.contains("41fa3742bed9b9d4"));
    }

    /// Padded to eleven bytes, a password of eleven had no end, and loginwindow read on.
    #[test]
    fn there_is_always_an_end() {
        for length in 0..40 {
            let bytes = obscured(&"x".repeat(length));
            assert_eq!(bytes.len() % MULTIPLE, 0);
            assert_eq!(bytes.get(length).copied(), KEY.get(length % 11).copied(), "{length}");
        }
    }
}
