//! The stubbed commands: one program under many names. Each asks the manager and does as it says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use super::protocol::SOCKET;
use super::reply::Reply;

/// Every stubbed command with where it is found. What a package brings is put there when that is installed.
pub(crate) const COMMANDS: [(&str, &str); 16] = [
    ("apt-get", "usr/bin/apt-get"),
    ("apt-mark", "usr/bin/apt-mark"),
    ("cloud-init", "usr/bin/cloud-init"),
    ("curl", "usr/bin/curl"),
    ("dhclient", ""),
    ("findmnt", "usr/bin/findmnt"),
    ("ip", "usr/bin/ip"),
    ("journalctl", "usr/bin/journalctl"),
    ("modprobe", "usr/sbin/modprobe"),
    ("mount", "usr/bin/mount"),
    ("poweroff", "usr/sbin/poweroff"),
    ("reboot", "usr/sbin/reboot"),
    ("swapoff", "usr/sbin/swapoff"),
    ("sysctl", "usr/sbin/sysctl"),
    ("systemctl", "usr/bin/systemctl"),
    ("xfs_quota", ""),
];

/// The stub this program was called as, if it was.
pub fn called_as(program: &str) -> Option<&'static str> {
    let name = program.rsplit('/').next().unwrap_or(program);
    COMMANDS
        .iter()
        .map(|(command, _)| *command)
        .find(|command| *command == name)
}

/// Does what the command would.
pub fn run(command: &str, args: impl Iterator<Item = String>) -> ExitCode {
    let words: Vec<String> = std::iter::once(command.to_owned()).chain(args).collect();
    let reply = ask(&words).unwrap_or_else(|error| Reply::failure(1, format!("{command}: no answer: {error}")));
    let _ = std::io::stdout().write_all(reply.stdout.as_bytes());
    let _ = std::io::stderr().write_all(reply.stderr.as_bytes());
    ExitCode::from(u8::try_from(reply.status).unwrap_or(1))
}

fn ask(argv: &[String]) -> std::io::Result<Reply> {
    let mut stream = UnixStream::connect(SOCKET)?;
    let mut line = serde_json::to_string(argv)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}
