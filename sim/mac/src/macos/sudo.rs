//! `sudo` of a Mac. [facts 5]
//!
//! No secure_path: the caller's PATH stays. A file in sudoers.d whose name has a dot or ends in a tilde is skipped, one that is not
//! root's or has other bits than 0440 or 0400 is refused, and one that cannot be parsed ends sudo for everybody.
//! Failures feed a tally that locks the account; ten is a guess, as is what ends the lock (a reboot).

use super::call::{Answer, Call, More, Reply};
use super::image::{GROUPS, STAFF, UID};
use super::tree::Tree;
use std::collections::BTreeMap;
use std::path::Path;

/// What somebody asked sudo for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Request {
    pub(super) from_stdin: bool,
    pub(super) never_ask: bool,
    pub(super) forget: bool,
    pub(super) only_validate: bool,
    pub(super) list: bool,
    pub(super) shell: bool,
    pub(super) login: bool,
    pub(super) keep_environment: bool,
    pub(super) set_home: bool,
    pub(super) user: Option<String>,
    pub(super) prompt: Option<String>,
    pub(super) variables: Vec<(String, String)>,
    pub(super) command: Vec<String>,
}

const USAGE: &str = "usage: sudo -h | -K | -k | -V\nusage: sudo -v [-ABkNnS] [-g group] [-h host] [-p prompt] [-u user]\n\
    usage: sudo -l [-ABkNnS] [-g group] [-h host] [-p prompt] [-U user] [-u user] [command [arg ...]]\n\
    usage: sudo [-ABbEHkNnPS] [-C num] [-D directory] [-g group] [-h host] [-p prompt] [-R directory] [-T timeout] [-u user] \
    [VAR=value] [-i | -s] [command [arg ...]]\n";

/// Reads the words after `sudo`; an error is what sudo says to them.
pub(super) fn parse(args: &[String]) -> Result<Request, Reply> {
    let mut request = Request::default();
    let mut rest = args.iter();
    let mut words = Vec::new();
    while let Some(arg) = rest.next() {
        let mut value = |name: &str| {
            rest.next()
                .cloned()
                .ok_or_else(|| Reply::err(1, format!("sudo: option requires an argument -- '{name}'\n{USAGE}")))
        };
        match arg.as_str() {
            "--" => break,
            "-u" | "--user" => request.user = Some(value("u")?),
            "-p" | "--prompt" => request.prompt = Some(value("p")?),
            flags if flags.starts_with('-') && flags.len() > 1 && !flags.starts_with("--") => {
                for flag in flags.chars().skip(1) {
                    match flag {
                        'S' => request.from_stdin = true,
                        'n' => request.never_ask = true,
                        'k' | 'K' => request.forget = true,
                        'v' => request.only_validate = true,
                        'l' => request.list = true,
                        's' => request.shell = true,
                        'i' => request.login = true,
                        'E' => request.keep_environment = true,
                        'H' => request.set_home = true,
                        'b' | 'A' => {
                            return Err(Reply::unknown(1, format!("sudo: -{flag} is not emulated\n")));
                        }
                        other => {
                            return Err(Reply::unknown(1, format!("sudo: invalid option -- '{other}'\n{USAGE}")));
                        }
                    }
                }
            }
            "--stdin" => request.from_stdin = true,
            "--non-interactive" => request.never_ask = true,
            "--preserve-env" => request.keep_environment = true,
            "--set-home" => request.set_home = true,
            long if long.starts_with("--") => {
                return Err(Reply::unknown(
                    1,
                    format!("sudo: unrecognized option '{long}'\n{USAGE}"),
                ));
            }
            word => {
                words.push(word.to_owned());
                break;
            }
        }
    }
    words.extend(rest.cloned());
    let assignments = words
        .iter()
        .take_while(|word| {
            word.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            })
        })
        .count();
    for word in words.drain(..assignments) {
        if let Some((name, value)) = word.split_once('=') {
            request.variables.push((name.to_owned(), value.to_owned()));
        }
    }
    request.command = words;
    let idle = request.command.is_empty() && !request.shell && !request.login;
    if idle && !(request.forget || request.only_validate || request.list) {
        return Err(Reply::err(1, USAGE));
    }
    Ok(request)
}

/// What the files of sudo say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// Nobody is asked.
    Free,
    /// The password of the caller.
    Password,
    /// Not in the sudoers file.
    Refused,
}

/// Reads sudoers as they are now; an error is what sudo says.
pub(super) fn policy(tree: &Tree, user: &str) -> Result<Policy, Reply> {
    let mut policy = Policy::Refused;
    let mut texts = vec![(
        "/etc/sudoers".to_owned(),
        tree.read_text("/etc/sudoers").unwrap_or_default(),
    )];
    for name in tree.list("/etc/sudoers.d") {
        if name.contains('.') || name.ends_with('~') {
            continue;
        }
        let path = format!("/etc/sudoers.d/{name}");
        let Some(meta) = tree.meta(&path) else { continue };
        if tree.has_owners() && meta.uid != 0 {
            return Err(Reply::err(
                1,
                format!("sudo: {path} is owned by uid {}, should be 0\n", meta.uid),
            ));
        }
        if meta.mode & 0o022 != 0 {
            return Err(Reply::err(1, format!("sudo: {path} is world writable\n")));
        }
        let text = tree.read_text(&path).unwrap_or_default();
        texts.push((path, text));
    }
    for (path, text) in &texts {
        for (number, line) in text.lines().enumerate() {
            match rule(line) {
                Ok(None) => {}
                Ok(Some((who, free))) => {
                    if who == user || who == "ALL" || who == "%admin" {
                        // The last match wins, as in sudo.
                        policy = if free { Policy::Free } else { Policy::Password };
                    }
                }
                Err(()) => {
                    return Err(Reply::err(
                        1,
                        format!(
                            "{path}:{}: syntax error\n{line}\n^\nsudo: error in {path}, line {} while loading plugin \
                             \"sudoers_policy\"\nsudo: unable to initialize policy plugin\n",
                            number + 1,
                            number + 1
                        ),
                    ));
                }
            }
        }
    }
    Ok(policy)
}

/// Who a line is about, and whether they are asked for a password; none if it grants nothing.
fn rule(line: &str) -> Result<Option<(&str, bool)>, ()> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') || line.starts_with('@') || line.starts_with("Defaults") {
        return Ok(None);
    }
    let (who, rest) = line.split_once(char::is_whitespace).ok_or(())?;
    let (hosts, what) = rest.split_once('=').ok_or(())?;
    if hosts.trim() != "ALL" {
        return Err(());
    }
    let mut what = what.trim();
    if let Some(after) = what.strip_prefix('(') {
        let (_, command) = after.split_once(')').ok_or(())?;
        what = command.trim();
    }
    let free = what.strip_prefix("NOPASSWD:").map(str::trim);
    match free.unwrap_or(what) {
        "" => Err(()),
        // A list of commands is taken as all of them; ours grant nothing less.
        _ => Ok(Some((who, free.is_some()))),
    }
}

/// Whether a text could be a sudoers file; else the number of the line that is wrong.
pub(super) fn check(text: &str) -> Result<(), usize> {
    match text.lines().position(|line| rule(line).is_err()) {
        Some(number) => Err(number + 1),
        None => Ok(()),
    }
}

/// Who a user of the Mac is: uid, gid, groups, home.
pub(super) fn account(name: &str, username: &str) -> Option<(u32, u32, Vec<u32>, String)> {
    match name {
        "root" => Some((0, 0, vec![0], "/var/root".to_owned())),
        _ if name == username => Some((UID, STAFF, GROUPS.to_vec(), format!("/Users/{username}"))),
        _ => None,
    }
}

/// What a command started by sudo has in its environment.
pub(super) fn environment(
    call: &Call,
    request: &Request,
    target: &str,
    home: &str,
    caller: &str,
) -> BTreeMap<String, String> {
    const KEPT: &[&str] = &[
        "PATH",
        "HOME",
        "MAIL",
        "TERM",
        "LANG",
        "SSH_CLIENT",
        "SSH_CONNECTION",
        "TZ",
        "COLORS",
    ];
    let mut env: BTreeMap<String, String> = call
        .env
        .iter()
        .filter(|(key, _)| request.keep_environment || KEPT.contains(&key.as_str()) || key.starts_with("LC_"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if request.set_home || request.login || !env.contains_key("HOME") {
        env.insert("HOME".to_owned(), home.to_owned());
    }
    for (key, value) in [
        ("USER", target),
        ("LOGNAME", target),
        ("SHELL", if target == "root" { "/bin/sh" } else { "/bin/zsh" }),
        ("SUDO_USER", caller),
        ("SUDO_UID", if call.uid == 0 { "0" } else { "501" }),
        ("SUDO_GID", if call.uid == 0 { "0" } else { "20" }),
    ] {
        env.insert(key.to_owned(), value.to_owned());
    }
    env.insert("SUDO_COMMAND".to_owned(), request.command.join(" "));
    env.extend(request.variables.iter().cloned());
    env
}

/// Finds a command as the shell would; none if it is not there.
pub(super) fn find(tree: &Tree, command: &str, path: &str, folder: &str) -> Option<String> {
    if command.contains('/') {
        let full = Path::new(folder).join(command).to_string_lossy().into_owned();
        return tree.inside_exists(&full).then_some(full);
    }
    path.split(':')
        .map(|place| format!("{place}/{command}"))
        .find(|candidate| tree.inside_exists(candidate))
}

/// The conversation about a password. True if it was right.
pub(super) trait Ask {
    async fn ask(&mut self, prompt: &str) -> Option<Option<String>>;
    async fn complain(&mut self, text: &str);
}

impl Ask for super::desk::Line {
    async fn ask(&mut self, prompt: &str) -> Option<Option<String>> {
        self.send(&Answer::AskPassword(prompt.to_owned())).await.ok()?;
        self.hear().await.map(|More::Password(line)| line)
    }

    async fn complain(&mut self, text: &str) {
        // A caller that is gone hears nothing.
        let _ = self.send(&Answer::Err(text.to_owned())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_end_at_the_command_and_its_flags_are_its_own() {
        let request = parse(&words("-S -n -u m1 A=1 ls -la -S")).unwrap();
        assert!(request.from_stdin && request.never_ask);
        assert_eq!(request.user.as_deref(), Some("m1"));
        assert_eq!(request.variables, [("A".to_owned(), "1".to_owned())]);
        assert_eq!(request.command, ["ls", "-la", "-S"]);
    }

    #[test]
    fn a_flag_that_sudo_does_not_know_is_unexpected() {
        let reply = parse(&words("-Z ls")).unwrap_err();
        assert!(reply.unexpected && reply.code == 1, "{reply:?}");
    }

    #[test]
    fn a_rule_names_who_and_whether_they_are_asked() {
        assert_eq!(rule("m1 ALL=(ALL) NOPASSWD: ALL"), Ok(Some(("m1", true))));
        assert_eq!(rule("%admin ALL = (ALL) ALL"), Ok(Some(("%admin", false))));
        assert_eq!(rule("# nothing"), Ok(None));
        assert_eq!(rule("m1 ALL NOPASSWD"), Err(()));
    }
}
