//! `id`, and what else asks about users.

use crate::macos::call::{Call, Reply};
use crate::macos::image::{GROUPS, STAFF, UID};
use crate::macos::mac::Inner;

const GROUP_NAMES: &[(u32, &str)] = &[
    (0, "wheel"),
    (12, "everyone"),
    (20, "staff"),
    (61, "localaccounts"),
    (80, "admin"),
    (399, "com.apple.access_ssh"),
];

fn group_name(gid: u32) -> &'static str {
    GROUP_NAMES
        .iter()
        .find(|(id, _)| *id == gid)
        .map_or("nogroup", |(_, name)| name)
}

pub(super) fn id(mac: &Inner, call: &Call) -> Reply {
    let words = call.words();
    let (flags, names): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.starts_with('-'));
    let uid = match names.as_slice() {
        [] => call.uid,
        ["root"] => 0,
        [name] if *name == mac.host.username || *name == "501" => UID,
        [name, ..] => return Reply::err(1, format!("id: {name}: no such user\n")),
    };
    let (gid, groups) = if uid == UID { (STAFF, GROUPS) } else { (0, &[0_u32][..]) };
    let user = mac.name_of(uid);
    let mut letters: Vec<char> = flags.iter().flat_map(|flag| flag.chars().skip(1)).collect();
    letters.sort_unstable();
    let list = |show: &dyn Fn(u32) -> String| groups.iter().map(|gid| show(*gid)).collect::<Vec<_>>().join(" ");
    let text = match letters.iter().collect::<String>().as_str() {
        "" => format!(
            "uid={uid}({user}) gid={gid}({}) groups={}",
            group_name(gid),
            groups
                .iter()
                .map(|gid| format!("{gid}({})", group_name(*gid)))
                .collect::<Vec<_>>()
                .join(",")
        ),
        "u" => uid.to_string(),
        "nu" => user.to_owned(),
        "g" => gid.to_string(),
        "gn" => group_name(gid).to_owned(),
        "G" => list(&|gid| gid.to_string()),
        "Gn" => list(&|gid| group_name(gid).to_owned()),
        other => {
            return Reply::unknown(1, format!("id: illegal option -- {other}\nusage: id [user]\n"));
        }
    };
    Reply::out(format!("{text}\n"))
}

/// Records of users; values over one line fold. [facts 5]
pub(super) fn dscl(mac: &Inner, call: &Call) -> Reply {
    let user = &mac.host.username;
    let home = format!("/Users/{user}");
    let missing = || Reply::err(56, "<dscl_cmd> DS Error: -14136 (eDSRecordNotFound)\n");
    match call.words().as_slice() {
        [".", "-list" | "list", "/Users"] => Reply::out(format!("_www\ndaemon\n{user}\nnobody\nroot\n")),
        [".", "-read" | "read", record, keys @ ..] => {
            let (uid, shell, home) = match record.strip_prefix("/Users/") {
                Some("root") => (0, "/bin/sh", "/var/root"),
                Some(name) if name == user => (UID, "/bin/zsh", home.as_str()),
                _ => return missing(),
            };
            let all = [
                ("NFSHomeDirectory", home.to_owned()),
                ("PrimaryGroupID", if uid == 0 { "0" } else { "20" }.to_owned()),
                ("RecordName", mac.name_of(uid).to_owned()),
                ("UniqueID", uid.to_string()),
                ("UserShell", shell.to_owned()),
            ];
            let mut reply = Reply::silent();
            for (key, value) in &all {
                if keys.is_empty() || keys.contains(key) {
                    reply.out.push_str(&format!("{key}: {value}\n"));
                }
            }
            for key in keys {
                if all.iter().all(|(known, _)| known != key) {
                    reply.out.push_str(&format!("No such key: {key}\n"));
                }
            }
            reply
        }
        [".", "-passwd" | "passwd", record, rest @ ..] if record.strip_prefix("/Users/") == Some(user) => {
            let mut state = mac.state();
            match rest {
                [new] if call.is_root() => {
                    (*new).clone_into(&mut state.password);
                    Reply::silent()
                }
                [old, new] if *old == state.password => {
                    (*new).clone_into(&mut state.password);
                    Reply::silent()
                }
                [_, _] => Reply::err(10, "passwd: DS error: eDSAuthFailed\n"),
                _ => Reply::err(40, "<dscl_cmd> DS Error: -14120 (eDSPermissionError)\n"),
            }
        }
        _ => Reply::unknown(64, "dscl (v20.4)\nusage: dscl [options] [<datasource> [<command>]]\n"),
    }
}

pub(super) fn dseditgroup(mac: &Inner, call: &Call) -> Reply {
    let user = &mac.host.username;
    match call.words().as_slice() {
        ["-o", "checkmember", "-m", member, group] => {
            let is_member = member == user
                && GROUP_NAMES
                    .iter()
                    .any(|(gid, name)| name == group && GROUPS.contains(gid));
            if is_member {
                Reply::out(format!("yes {member} is a member of {group}\n"))
            } else {
                Reply::out(format!("no {member} is NOT a member of {group}\n")).with_code(67)
            }
        }
        ["-o", "edit", "-a", _, "-t", "user", _] if call.is_root() => Reply::silent(),
        ["-o", "edit", ..] => Reply::err(40, "Group not found or permission denied.\n"),
        _ => Reply::unknown(64, "dseditgroup [-pqv] -o operation groupname\n"),
    }
}

/// Auto-login and the lock of the screen; it talks on standard error. [facts 3]
pub(super) fn sysadminctl(mac: &Inner, call: &Call) -> Reply {
    let prefix = "2026-01-01 00:00:00.000 sysadminctl[501:1000] ";
    match call.words().as_slice() {
        ["-autologin", "status"] => {
            let bytes = mac
                .tree
                .read("/Library/Preferences/com.apple.loginwindow.plist")
                .unwrap_or_default();
            let value = plist::Value::from_reader(std::io::Cursor::new(bytes)).ok();
            let user = value
                .as_ref()
                .and_then(|value| value.as_dictionary()?.get("autoLoginUser")?.as_string());
            match user {
                Some(user) => Reply::err(0, format!("{prefix}Automatic login user: {user}\n")),
                None => Reply::err(0, format!("{prefix}Automatic login is OFF\n")),
            }
        }
        // Over SSH on Tahoe it fails, says 0, and writes half of what it should. [facts 3]
        ["-autologin", "set", "-userName", user, "-password", _] if call.is_root() => {
            let mut dict = plist::Dictionary::new();
            dict.insert("autoLoginUser".to_owned(), plist::Value::String((*user).to_owned()));
            let mut bytes = Vec::new();
            let written = plist::Value::Dictionary(dict).to_writer_binary(&mut bytes).is_ok();
            if written
                && let Err(error) = mac
                    .tree
                    .write("/Library/Preferences/com.apple.loginwindow.plist", &bytes, 0o644)
            {
                return Reply::err(0, format!("{prefix}{error}\n"));
            }
            Reply::err(0, format!("{prefix}SACSetAutoLoginPassword error:22\n"))
        }
        ["-screenLock", "status"] => {
            let text = match mac.state().gear.screen_lock {
                None => "screenLock is off".to_owned(),
                Some(0) => "screenLock delay is immediate".to_owned(),
                Some(seconds) => format!("screenLock delay is {seconds} seconds"),
            };
            Reply::err(0, format!("{prefix}{text}\n"))
        }
        ["-screenLock", "off", "-password", password] => {
            let mut state = mac.state();
            if state.launchd.session.is_none() {
                return Reply::err(1, format!("{prefix}screenLock: no user is logged in\n"));
            }
            if *password != state.password {
                return Reply::err(1, format!("{prefix}screenLock: authentication failed\n"));
            }
            state.gear.screen_lock = None;
            Reply::silent()
        }
        ["-resetPasswordFor", user, "-newPassword", new] if call.is_root() && *user == mac.host.username => {
            (*new).clone_into(&mut mac.state().password);
            Reply::err(0, format!("{prefix}resetting password for {user}.\n"))
        }
        _ => Reply::unknown(1, format!("{prefix}Usage: sysadminctl\n")),
    }
}

/// Keychains over SSH are locked. [facts 3]
pub(super) fn security(mac: &Inner, call: &Call) -> Reply {
    match call.words().as_slice() {
        ["unlock-keychain", "-p", password, ..] if *password == mac.state().password => Reply::silent(),
        ["unlock-keychain", ..] => Reply::err(
            51,
            "security: SecKeychainUnlock login.keychain: The user name or passphrase you entered is not correct.\n",
        ),
        ["show-keychain-info", ..] => Reply::err(
            36,
            "security: SecKeychainCopySettings login.keychain: User interaction is not allowed.\n",
        ),
        _ => Reply::unknown(
            2,
            "Usage: security [-h] [-i] [-l] [-p prompt] [-q] [-R] [-v] [command] [opt ...]\n",
        ),
    }
}

/// Whether sudoers and sshd_config would be taken.
pub(super) fn visudo(mac: &Inner, call: &Call) -> Reply {
    match call.words().as_slice() {
        ["-c" | "-cq"] => match crate::macos::sudo::policy(&mac.tree, &mac.host.username) {
            Ok(_) => Reply::out("/etc/sudoers: parsed OK\n"),
            Err(reply) => reply,
        },
        ["-c" | "-cf", "-f", path] | ["-cf" | "-qcf" | "-cqf", path] => {
            let text = mac.tree.read_text(path).unwrap_or_default();
            match crate::macos::sudo::check(&text) {
                Ok(()) => Reply::out(format!("{path}: parsed OK\n")),
                Err(line) => Reply::err(1, format!("{path}:{line}: syntax error\n")),
            }
        }
        _ => Reply::unknown(1, "usage: visudo [-chqsV] [[-f] sudoers ]\n"),
    }
}
