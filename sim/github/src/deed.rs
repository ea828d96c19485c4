//! What other people do: those who own the App, the organisation and the hosts.

use crate::key::KeyError;
use crate::runners::RunnerStatus;

/// Something somebody does.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "deed", rename_all = "snake_case", deny_unknown_fields)]
pub enum Deed {
    /// Makes an App with one key.
    AddApp {
        app: u64,
        /// The public half of its key, in PEM.
        public_key: String,
    },
    /// Gives an App one more key.
    AddKey {
        app: u64,
        /// The public half, in PEM.
        public_key: String,
    },
    /// Takes all keys from an App.
    RemoveKeys { app: u64 },
    /// Makes an organisation.
    AddOrg {
        /// Its login.
        org: String,
    },
    /// Installs an App in an organisation, which is made if need be.
    Install {
        /// Which App.
        app: u64,
        /// The number of the installation.
        installation: u64,
        org: String,
        /// What it may do with self-hosted runners: `read`, `write` or nothing.
        #[serde(default = "write")]
        runners: Option<String>,
    },
    /// Changes what an installation may do with self-hosted runners.
    Grant {
        installation: u64,
        /// `read`, `write` or nothing.
        runners: Option<String>,
    },
    /// Removes an installation. Its tokens end.
    Uninstall { installation: u64 },
    /// Suspends an installation, or lifts the suspension.
    Suspend {
        installation: u64,
        /// Whether it is suspended then.
        suspended: bool,
    },
    /// Ends all tokens of an installation early.
    RevokeTokens { installation: u64 },
    /// A host registers as a runner, with a token it was given.
    Register {
        org: String,
        /// The registration token.
        token: String,
        /// The name of the runner.
        name: String,
        /// Its labels.
        labels: Vec<String>,
    },
    /// Makes runners that registered long ago.
    AddRunners { org: String, count: u32 },
    /// Something happens to a runner.
    SetRunner {
        org: String,
        name: String,
        /// Whether GitHub hears from it.
        status: RunnerStatus,
        /// Whether a job runs on it.
        busy: bool,
    },
    /// Somebody removes a runner.
    RemoveRunner { org: String, name: String },
}

// What an App for runners has.
#[expect(clippy::unnecessary_wraps, reason = "serde wants the type of the field")]
fn write() -> Option<String> {
    Some("write".to_owned())
}

impl Deed {
    /// Installs an App with the right to manage runners.
    pub fn install(app: u64, installation: u64, org: &str) -> Self {
        Self::Install {
            app,
            installation,
            org: org.to_owned(),
            runners: write(),
        }
    }
}

/// Why a deed could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeedError {
    /// There is no such App, installation, organisation or runner.
    #[error("there is no {what} {which}")]
    Missing {
        /// What kind of thing.
        what: &'static str,
        which: String,
    },
    /// There is one already.
    #[error("there is a {what} {which} already")]
    Exists {
        /// What kind of thing.
        what: &'static str,
        which: String,
    },
    /// The token is not known, ended, or is for another organisation.
    #[error("the registration token is not good here")]
    Token,
    /// A level other than `read` and `write`.
    #[error("a permission is read or write, not {0:?}")]
    Level(String),
    /// The key is none.
    #[error(transparent)]
    Key(#[from] KeyError),
}
