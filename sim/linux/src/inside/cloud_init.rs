//! User data, carried out as cloud-init does it at a first boot.

use std::fmt::Write as _;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use tokio::process::Command;

use super::protocol::CloudInit;
use super::service::PATH;

/// Where the user data is for the boot that may want it.
pub(crate) const USER_DATA: &str = "/run/russet-box/user-data";
/// What the commands print.
const OUTPUT: &str = "/var/log/cloud-init-output.log";
/// The first boot of an installation is over.
const DONE: &str = "/var/lib/cloud/instance/boot-finished";
const RUNCMD: &str = "/var/lib/cloud/instance/scripts/runcmd";
const STATUS: &str = "/run/cloud-init/status";

/// What is understood of a `#cloud-config`. Other keys are refused: what they ask for would not happen.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    #[serde(default)]
    pub(crate) write_files: Vec<File>,
    #[serde(default)]
    runcmd: Vec<Line>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    path: PathBuf,
    #[serde(default)]
    pub(crate) content: String,
    #[serde(default)]
    permissions: Option<String>,
    #[serde(default)]
    owner: Option<String>,
    #[serde(default)]
    encoding: Option<String>,
    #[serde(default)]
    append: bool,
}

/// A command: words that are executed as they are, or a line for the shell.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    Words(Vec<String>),
    Shell(String),
}

/// Why user data cannot be carried out. Never quotes it: it holds credentials.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum BadUserData {
    #[error("the user data is neither a #cloud-config nor a script")]
    Unknown,
    #[error("the #cloud-config cannot be read (line {line}): it has a key or a form that is not emulated")]
    Malformed { line: usize },
    #[error("{path}: the encoding is not emulated, or the content is not in it")]
    Encoding { path: String },
    #[error("{path}: {why}")]
    File { path: String, why: String },
}

/// Reads a `#cloud-config`.
pub(crate) fn parse(text: &str) -> Result<Config, BadUserData> {
    if text.lines().next().map(str::trim_end) != Some("#cloud-config") {
        return Err(BadUserData::Unknown);
    }
    serde_yaml_ng::from_str(text).map_err(|error| BadUserData::Malformed {
        line: error.location().map_or(0, |location| location.line()),
    })
}

impl File {
    /// The content as it shall be on the disk.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, BadUserData> {
        let encoding = || BadUserData::Encoding {
            path: self.path.display().to_string(),
        };
        match self.encoding.as_deref() {
            None | Some("text/plain") => Ok(self.content.clone().into_bytes()),
            Some("b64" | "base64") => {
                let packed: String = self.content.split_whitespace().collect();
                BASE64.decode(packed).map_err(|_| encoding())
            }
            Some(_) => Err(encoding()),
        }
    }

    fn write(&self) -> Result<(), BadUserData> {
        let failed = |why: String| BadUserData::File {
            path: self.path.display().to_string(),
            why,
        };
        let bytes = self.bytes()?;
        let mode = match &self.permissions {
            None => 0o644,
            Some(text) => u32::from_str_radix(text, 8).map_err(|_| failed(format!("{text:?} is no mode")))?,
        };
        if self
            .owner
            .as_deref()
            .is_some_and(|owner| owner != "root:root" && owner != "root")
        {
            return Err(failed("only root owns files that cloud-init writes here".to_owned()));
        }
        let write = || -> std::io::Result<()> {
            use std::io::Write as _;
            use std::os::unix::fs::OpenOptionsExt as _;
            if let Some(parent) = self.path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .append(self.append)
                .truncate(!self.append)
                .mode(0o600)
                .open(&self.path)?;
            file.write_all(&bytes)?;
            file.set_permissions(Permissions::from_mode(mode))
        };
        write().map_err(|error| failed(error.to_string()))
    }
}

/// The script cloud-init makes of `runcmd`: words are quoted, lines are not.
fn script(lines: &[Line]) -> String {
    let mut script = "#!/bin/sh\n".to_owned();
    for line in lines {
        match line {
            Line::Words(words) => {
                let quoted: Vec<_> = words
                    .iter()
                    .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
                    .collect();
                let _ = writeln!(script, "{}", quoted.join(" "));
            }
            Line::Shell(line) => {
                let _ = writeln!(script, "{line}");
            }
        }
    }
    script
}

/// Carries out the user data if this is the first boot that has it.
pub(super) async fn run(present: bool) -> CloudInit {
    if !present || Path::new(DONE).exists() {
        note("done");
        return CloudInit::Nothing;
    }
    note("running");
    let outcome = match carry_out().await {
        Ok(true) => CloudInit::Done,
        Ok(false) => CloudInit::Failed(format!("runcmd failed, see {OUTPUT}")),
        Err(error) => CloudInit::Failed(error.to_string()),
    };
    if let CloudInit::Failed(why) = &outcome {
        let _ = log().and_then(|mut log| {
            use std::io::Write as _;
            writeln!(log, "cloud-init: {why}")
        });
    }
    let _ = std::fs::create_dir_all("/var/lib/cloud/instance");
    let _ = std::fs::write(DONE, "");
    note(if outcome == CloudInit::Done { "done" } else { "error" });
    outcome
}

async fn carry_out() -> Result<bool, BadUserData> {
    let failed = |path: &str| {
        let path = path.to_owned();
        move |error: std::io::Error| BadUserData::File {
            path,
            why: error.to_string(),
        }
    };
    let text = std::fs::read_to_string(USER_DATA).map_err(failed(USER_DATA))?;
    std::fs::create_dir_all("/var/lib/cloud/instance/scripts").map_err(failed(RUNCMD))?;
    let (path, body) = if text.starts_with("#!") {
        (Path::new("/var/lib/cloud/instance/scripts/part-001"), text)
    } else {
        let config = parse(&text)?;
        for file in &config.write_files {
            file.write()?;
        }
        if config.runcmd.is_empty() {
            return Ok(true);
        }
        (Path::new(RUNCMD), script(&config.runcmd))
    };
    std::fs::write(path, body).map_err(failed(RUNCMD))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed(RUNCMD))?;
    let log = log().map_err(failed(OUTPUT))?;
    let both = log.try_clone().map_err(failed(OUTPUT))?;
    let status = Command::new(path)
        .env_clear()
        .env("PATH", PATH)
        .env("LANG", "C.UTF-8")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(both)
        .status()
        .await
        .map_err(failed(RUNCMD))?;
    Ok(status.success())
}

fn log() -> std::io::Result<std::fs::File> {
    OpenOptions::new().create(true).append(true).open(OUTPUT)
}

fn note(status: &str) {
    let _ = std::fs::create_dir_all("/run/cloud-init");
    let _ = std::fs::write(STATUS, status);
}

/// What `cloud-init status` says.
pub(super) fn status() -> String {
    std::fs::read_to_string(STATUS).unwrap_or_else(|_| "not started".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "#cloud-config\nwrite_files:\n- path: /opt/x.sh\n  permissions: '0700'\n  content: |\n    echo hi\n\
        - path: /b\n  encoding: b64\n  content: aGV5\nruncmd:\n- [bash, /opt/x.sh, \"it's\"]\n- echo $HOME > /x\n";

    #[test]
    fn files_and_commands_are_read() {
        let config = parse(TEXT).unwrap();
        assert_eq!(config.write_files[0].bytes().unwrap(), b"echo hi\n");
        assert_eq!(config.write_files[1].bytes().unwrap(), b"hey");
        let expected = "#!/bin/sh\n'bash' '/opt/x.sh' 'it'\\''s'\necho $HOME > /x\n";
        assert_eq!(script(&config.runcmd), expected);
    }

    #[test]
    fn what_would_not_happen_is_refused_without_quoting_it() {
        assert_eq!(parse("hello").unwrap_err(), BadUserData::Unknown);
        let error = parse("#cloud-config\npackages: [s3cret]\n").unwrap_err();
        assert!(matches!(error, BadUserData::Malformed { .. }));
        assert!(!error.to_string().contains("s3cret"));
        let file = "#cloud-config\nwrite_files:\n- {path: /a, encoding: gz+b64, content: x}\n";
        let config = parse(file).unwrap();
        assert!(matches!(
            config.write_files[0].bytes(),
            Err(BadUserData::Encoding { .. })
        ));
    }
}
