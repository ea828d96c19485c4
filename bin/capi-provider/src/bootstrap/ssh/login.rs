//! From a job to a connection.

use std::net::SocketAddr;

use russet_bootstrap::ssh::{Auth, Error, HostKeyPin, Limits, Session, Target, connect};
use tokio::time::Instant;

use super::super::{Failed, Job};
use super::{CONNECT_STEP, DIAL, DIAL_AGAIN, LOGIN_STEP, failed};

fn refused(error: &Error) -> Failed {
    // A key that is not the one that was pinned is not kept: whoever showed it may not be the host.
    let (step, pin) = match error {
        Error::HostKeyChanged { .. } => (LOGIN_STEP, None),
        Error::AuthRejected { host_key, .. } => (LOGIN_STEP, Some(host_key)),
        error => (CONNECT_STEP, error.host_key()),
    };
    failed(step, error.to_string(), pin.map(ToString::to_string))
}

/// Logs in with the fleet's key. Scaleway puts keys on hosts when it installs them, so a host that was installed before its fleet had
/// one knows only the password; the plan gives it the key, and passwords are refused from then on.
pub(super) async fn login(job: &Job, port: u16, limits: &Limits) -> Result<Session, Failed> {
    let pin = job.fingerprint.as_deref().map(str::parse::<HostKeyPin>).transpose();
    let pin = pin.map_err(|bad| {
        let message =
            format!("the host key that was stored cannot be read: {bad}; delete the Secret <machine>-bootstrap");
        failed(LOGIN_STEP, message, None)
    })?;
    let target = |auth: Auth| Target {
        address: SocketAddr::new(job.address, port),
        user: job.ssh_user.clone(),
        auth,
        pin: pin.clone(),
    };
    let password = job
        .sudo_password
        .clone()
        .filter(|password| !matches!(password.expose().as_str(), "" | "<sealed>"));
    let Some(key) = &job.key else {
        let Some(password) = password else {
            return Err(failed(
                LOGIN_STEP,
                "there is neither a key nor a password for the host",
                None,
            ));
        };
        return dial(&target(Auth::Password(password)), limits)
            .await
            .map_err(|error| refused(&error));
    };
    let rejected = match dial(&target(Auth::Key(key.private.clone())), limits).await {
        Ok(session) => return Ok(session),
        Err(error) => error,
    };
    let (Error::AuthRejected { .. }, Some(password)) = (&rejected, password) else {
        return Err(refused(&rejected));
    };
    connect(&target(Auth::Password(password)), limits)
        .await
        .map_err(|error| refused(&error))
}

/// Dials until somebody answers, or it is no use.
async fn dial(target: &Target, limits: &Limits) -> Result<Session, Error> {
    let deadline = Instant::now() + DIAL;
    loop {
        match connect(target, limits).await {
            Err(error) if error.is_transient() && Instant::now() + DIAL_AGAIN < deadline => {
                tokio::time::sleep(DIAL_AGAIN).await;
            }
            other => return other,
        }
    }
}
