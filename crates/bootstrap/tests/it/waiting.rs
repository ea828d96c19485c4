//! Waiting for something to be so, and not for time to pass: how fast a machine is decides nothing here.

use russet_bootstrap::ssh::{Error, Exec, Session};
use russet_telemetry::Secret;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Never waited for unless something is wrong.
pub(crate) const LONG: Duration = Duration::from_mins(2);

pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < deadline, "did not happen: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Runs a command that does not end, and lets its deadline pass as soon as it has begun. The connection must allow for as
/// long a silence.
pub(crate) async fn overrun(
    session: &Session,
    command: &str,
    stdin: Option<Secret<Vec<u8>>>,
    begun: impl Fn() -> bool,
) -> Error {
    let run = session.run(Exec {
        command,
        stdin,
        deadline: LONG,
    });
    let frozen = Cell::new(false);
    let pass = async {
        eventually("the command has begun", begun).await;
        tokio::time::pause();
        frozen.set(true);
        tokio::time::advance(LONG).await;
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        outcome = run => outcome,
        () = pass => panic!("the deadline passed unseen"),
    };
    // A clock that stands still jumps to the next deadline whenever nothing happens in this process.
    if frozen.get() {
        tokio::time::resume();
    }
    outcome.unwrap_err()
}
