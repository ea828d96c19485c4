//! Reaching servers over SSH: running the join script, and asking how it went.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use russet_bootstrap::linux::{JoinReport, JoinState, REPORT_COMMAND, SSH_COMMAND, exit, parse_report};
use russet_bootstrap::ssh::{Auth, Error, Exec, Exit, HostKeyPin, Limits, Session, Target, connect};
use russet_telemetry::Secret;

use crate::bootstrap::Failed;

/// A slow mirror may take its time; a script that hangs is stopped.
const SCRIPT_DEADLINE: Duration = Duration::from_mins(30);
const REPORT_DEADLINE: Duration = Duration::from_secs(30);

/// How to log in to a server.
#[derive(Clone, Debug)]
pub struct Login {
    /// Where it is.
    pub address: IpAddr,
    /// Who to log in as.
    pub user: String,
    /// The key.
    pub key: Secret<String>,
    /// The host key seen last time; another one is not trusted.
    pub pin: Option<String>,
}

/// How a join went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What the server said; none: no script has run yet.
    pub report: Option<JoinReport>,
    /// Its host key.
    pub pin: String,
}

/// Servers that can be reached.
pub trait Hosts: Send + Sync {
    /// Runs the join script; its host key.
    fn run(&self, login: Login, script: Secret<String>) -> BoxFuture<'static, Result<String, Failed>>;

    /// Asks how the join goes.
    fn ask(&self, login: Login) -> BoxFuture<'static, Result<Told, Failed>>;
}

/// Over SSH.
#[derive(Clone, Copy, Debug)]
pub struct Ssh {
    /// The port servers listen on.
    pub port: u16,
}

fn failed(step: &str, error: &Error) -> Failed {
    Failed {
        step: step.to_owned(),
        message: error.to_string(),
        // A key that is not the one that was pinned is not kept: whoever showed it may not be the server.
        fingerprint: match error {
            Error::HostKeyChanged { .. } => None,
            error => error.host_key().map(ToString::to_string),
        },
    }
}

impl Ssh {
    async fn session(self, login: Login) -> Result<Session, Failed> {
        let pin = match login.pin.as_deref().map(str::parse::<HostKeyPin>).transpose() {
            Ok(pin) => pin,
            Err(bad) => {
                return Err(Failed {
                    step: "connect".to_owned(),
                    message: format!(
                        "the host key that was stored cannot be read: {bad}; delete the Secret <machine>-bootstrap"
                    ),
                    fingerprint: None,
                });
            }
        };
        let target = Target {
            address: SocketAddr::new(login.address, self.port),
            user: login.user,
            auth: Auth::Key(login.key),
            pin,
        };
        connect(&target, &Limits::default())
            .await
            .map_err(|error| failed("connect", &error))
    }
}

async fn report(session: &Session) -> Result<Option<JoinReport>, Failed> {
    let exec = Exec {
        command: REPORT_COMMAND,
        stdin: None,
        deadline: REPORT_DEADLINE,
    };
    let pin = session.host_key().to_string();
    let output = session.run(exec).await.map_err(|error| failed("report", &error))?;
    parse_report(&output.stdout).map_err(|unreadable| Failed {
        step: "report".to_owned(),
        message: unreadable.to_string(),
        fingerprint: Some(pin),
    })
}

/// What a report says, as a failure.
pub fn failure(report: &JoinReport, pin: &str) -> Failed {
    Failed {
        step: report.step.clone(),
        message: match report.state {
            JoinState::Failed => format!("the script failed; the end of its output:\n{}", report.tail.trim_end()),
            JoinState::Running => "the script is still running".to_owned(),
            JoinState::Done => "the script is done, and the Node did not come".to_owned(),
        },
        fingerprint: Some(pin.to_owned()),
    }
}

impl Hosts for Ssh {
    fn run(&self, login: Login, script: Secret<String>) -> BoxFuture<'static, Result<String, Failed>> {
        let ssh = *self;
        async move {
            let session = ssh.session(login).await?;
            let pin = session.host_key().to_string();
            let exec = Exec {
                command: SSH_COMMAND,
                stdin: Some(Secret::new(script.expose().clone().into_bytes())),
                deadline: SCRIPT_DEADLINE,
            };
            let output = session.run(exec).await.map_err(|error| failed("script", &error))?;
            match output.status {
                Exit::Code(code) if code == exit::DONE => Ok(pin),
                Exit::Code(code) if code == exit::BUSY => Err(Failed {
                    step: "script".to_owned(),
                    message: "another run of the script is under way; it is waited for".to_owned(),
                    fingerprint: Some(pin),
                }),
                _ => Err(match report(&session).await? {
                    Some(said) => failure(&said, &pin),
                    None => Failed {
                        step: "script".to_owned(),
                        message: format!(
                            "the script did not start ({:?}); is bash there, and may the user use sudo?",
                            output.status
                        ),
                        fingerprint: Some(pin),
                    },
                }),
            }
        }
        .boxed()
    }

    fn ask(&self, login: Login) -> BoxFuture<'static, Result<Told, Failed>> {
        let ssh = *self;
        async move {
            let session = ssh.session(login).await?;
            let report = report(&session).await?;
            Ok(Told {
                report,
                pin: session.host_key().to_string(),
            })
        }
        .boxed()
    }
}
