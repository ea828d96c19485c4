//! What a step wants to be true of a host.
//!
//! Each resource is two lines of shell: one that looks, one that makes it so. Both call functions of `prelude.sh`.

use russet_telemetry::Secret;
use sha2::{Digest as _, Sha256};

use super::artifact::Artifact;
use crate::quote::word;

/// Permissions and owner of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    /// As `ls` writes them: `-rw-r--r--`.
    pub(super) bits: &'static str,
    /// `owner:group`.
    pub(super) owner: Owner,
}

/// Who owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// `root:wheel`.
    Root,
    /// The user of the host, `staff`.
    User,
}

impl Mode {
    pub(super) const DAEMON_PLIST: Self = Self::root("-rw-r--r--");
    pub(super) const PROGRAM: Self = Self::root("-rwxr-xr-x");
    pub(super) const TEXT: Self = Self::root("-rw-r--r--");

    pub(super) const fn root(bits: &'static str) -> Self {
        Self {
            bits,
            owner: Owner::Root,
        }
    }

    pub(super) const fn user(bits: &'static str) -> Self {
        Self {
            bits,
            owner: Owner::User,
        }
    }

    fn words(self, user: &str) -> String {
        match self.owner {
            Owner::Root => format!("{} root:wheel", self.bits),
            Owner::User => format!("{} {}", self.bits, word(&format!("{user}:staff"))),
        }
    }
}

/// How launchd runs a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rhythm {
    /// Always: it has to stay up.
    Daemon,
    /// Now and then.
    Timer,
}

/// One thing that should be so.
#[derive(Clone, Debug)]
pub(super) enum Resource {
    Directory {
        path: String,
        mode: Mode,
    },
    File {
        path: String,
        mode: Mode,
        content: Secret<Vec<u8>>,
    },
    /// A file that programs write to.
    Log {
        path: String,
        mode: Mode,
    },
    /// Nothing is there.
    Absent {
        path: String,
    },
    /// A program that is uploaded and signed on the host.
    Program {
        path: String,
        artifact: Artifact,
    },
    /// A job of launchd. It is started again when its plist changes or one of `inputs`, which are paths or texts.
    Job {
        /// `system/dev.tuist.x`.
        job: String,
        plist: String,
        content: String,
        rhythm: Rhythm,
        inputs: Vec<String>,
    },
    /// No such job.
    NoJob {
        job: String,
        plist: String,
    },
    /// Anything else: a command that looks, one that makes it so. Values of the host come as variables; what is uploaded for it is
    /// `"$STATE/incoming/$UPLOAD"`.
    Script {
        upload: Option<Artifact>,
        variables: Vec<(&'static str, Secret<String>)>,
        check: &'static str,
        change: &'static str,
    },
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Resource {
    pub(super) fn text(path: impl Into<String>, mode: Mode, content: impl Into<String>) -> Self {
        Self::File {
            path: path.into(),
            mode,
            content: Secret::new(content.into().into_bytes()),
        }
    }

    /// A script that needs nothing.
    pub(super) fn script(check: &'static str, change: &'static str) -> Self {
        Self::Script {
            upload: None,
            variables: Vec::new(),
            check,
            change,
        }
    }

    /// The file that is another one after a change.
    pub(super) fn file(&self) -> Option<&str> {
        match self {
            Self::File { path, .. } | Self::Program { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Whether it has to be looked at again when this file is another one.
    pub(super) fn follows(&self, file: &str) -> bool {
        matches!(self, Self::Job { inputs, .. } if inputs.iter().any(|input| input == file))
    }

    /// What a program has of a file that only its owner may read, line by line.
    pub(super) fn private_lines(&self) -> Vec<String> {
        match self {
            Self::File { mode, content, .. } if mode.bits == "-rw-------" => {
                base64(content).lines().map(str::to_owned).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What it uploads.
    pub(super) fn artifact(&self) -> Option<&Artifact> {
        match self {
            Self::Program { artifact, .. } => Some(artifact),
            Self::Script { upload, .. } => upload.as_ref(),
            _ => None,
        }
    }

    /// A command that succeeds when it is so.
    pub(super) fn check(&self, user: &str) -> String {
        match self {
            Self::Directory { path, mode } => format!("dir_ok {} {}", word(path), mode.words(user)),
            Self::File { path, mode, content } => {
                let sha = hex(content.expose());
                format!("file_ok {} {} {sha}", word(path), mode.words(user))
            }
            Self::Log { path, mode } => format!("log_ok {} {}", word(path), mode.words(user)),
            Self::Absent { path } => format!("gone_ok {}", word(path)),
            Self::Program { path, artifact } => format!("program_ok {} {}", word(path), artifact.sha()),
            Self::Job {
                job,
                plist,
                content,
                rhythm,
                ..
            } => {
                let verb = match rhythm {
                    Rhythm::Daemon => "daemon_ok",
                    Rhythm::Timer => "timer_ok",
                };
                let file = Self::text(plist.clone(), Mode::DAEMON_PLIST, content.clone()).check(user);
                format!("{file} && {verb} {} {}", word(job), self.inputs())
            }
            Self::NoJob { job, plist } => format!("job_gone_ok {} {}", word(job), word(plist)),
            Self::Script {
                upload,
                variables,
                check,
                ..
            } => with(upload.as_ref(), variables, check),
        }
    }

    /// A command that makes it so.
    pub(super) fn change(&self, user: &str) -> String {
        match self {
            Self::Directory { path, mode } => format!("dir_put {} {}", word(path), mode.words(user)),
            Self::File { path, mode, content } => {
                let sha = hex(content.expose());
                let mode = mode.words(user);
                format!(
                    "file_put {} {mode} {sha} <<'RUSSET'\n{}RUSSET",
                    word(path),
                    base64(content)
                )
            }
            Self::Log { path, mode } => format!("log_put {} {}", word(path), mode.words(user)),
            Self::Absent { path } => format!("rm -rf {}", word(path)),
            Self::Program { path, artifact } => format!("program_put {} {}", word(path), artifact.sha()),
            Self::Job {
                job,
                plist,
                content,
                rhythm,
                ..
            } => {
                let verb = match rhythm {
                    Rhythm::Daemon => "daemon_reload",
                    Rhythm::Timer => "timer_reload",
                };
                let file = Self::text(plist.clone(), Mode::DAEMON_PLIST, content.clone());
                format!(
                    "{{ {} || {}\n}} && {verb} {} {} {}",
                    file.check(user),
                    file.change(user),
                    word(job),
                    word(plist),
                    self.inputs()
                )
            }
            Self::NoJob { job, plist } => format!("job_remove {} {}", word(job), word(plist)),
            Self::Script {
                upload,
                variables,
                change,
                ..
            } => with(upload.as_ref(), variables, change),
        }
    }

    /// What a job was started with, as one word that is worked out on the host: the programs are signed there.
    fn inputs(&self) -> String {
        let Self::Job { content, inputs, .. } = self else {
            return "''".to_owned();
        };
        let mut words = format!("\"{}", hex(content.as_bytes()));
        for input in inputs {
            if input.starts_with('/') {
                words.push_str(&format!(" $(sha {})", word(input)));
            } else {
                words.push(' ');
                words.push_str(&hex(input.as_bytes()));
            }
        }
        words.push('"');
        words
    }
}

/// Content as lines of base64.
fn base64(content: &Secret<Vec<u8>>) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(content.expose());
    let mut lines = String::with_capacity(text.len() + text.len() / 76 + 1);
    for (index, character) in text.chars().enumerate() {
        if index > 0 && index % 76 == 0 {
            lines.push('\n');
        }
        lines.push(character);
    }
    lines.push('\n');
    lines
}

/// A script of its own, with variables that are no part of it.
fn with(upload: Option<&Artifact>, variables: &[(&'static str, Secret<String>)], script: &str) -> String {
    let mut text = String::from("(\n");
    if let Some(artifact) = upload {
        text.push_str(&format!("UPLOAD={}\n", artifact.sha()));
    }
    for (name, value) in variables {
        text.push_str(&format!("{name}={}\n", word(value.expose())));
    }
    text.push_str(script.trim_end());
    text.push_str("\n)");
    text
}
