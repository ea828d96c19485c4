//! How a command ends badly: text, stream and exit code (facts 6.1).

use crate::print::complain;
use std::io;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line was wrong: `Error:`, usage, hint, exit 64.
    Usage {
        text: String,
        command: Option<&'static str>,
        usage: &'static str,
    },
    /// One of Tart's own errors: the bare text, exit 1 or 2.
    Own(String, u8),
    /// Anything else that Swift throws: `Error:` and the text, exit 1.
    Thrown(String),
    /// An uncaught Objective-C exception: text, then SIGABRT.
    Aborted(String),
    /// The emulator itself cannot go on; no real `tart` says this.
    Emulator(String),
}

impl Failure {
    pub(crate) fn missing(name: &str) -> Self {
        Self::Own(format!("the specified VM \"{name}\" does not exist"), 2)
    }

    pub(crate) fn not_running(name: &str) -> Self {
        Self::Own(format!("VM \"{name}\" is not running"), 2)
    }

    pub(crate) fn io(what: &str, error: &io::Error) -> Self {
        Self::Emulator(format!("{what}: {error}"))
    }

    /// Says it and gives the exit code.
    pub(crate) fn report(&self) -> u8 {
        match self {
            Self::Usage { text, command, usage } => {
                let help = command.map_or_else(|| "tart --help".to_owned(), |name| format!("tart {name} --help"));
                complain(&format!(
                    "Error: {text}\nUsage: {usage}\n  See '{help}' for more information."
                ));
                64
            }
            Self::Own(text, code) => {
                complain(text);
                *code
            }
            Self::Thrown(text) => {
                complain(&format!("Error: {text}"));
                1
            }
            Self::Aborted(text) => {
                complain(text);
                std::process::abort();
            }
            Self::Emulator(text) => {
                complain(&format!("sim-tart: {text}"));
                70
            }
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Emulator(error.to_string())
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        Self::from(io::Error::from(error))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Emulator(format!("a file of the emulator is damaged: {error}"))
    }
}
