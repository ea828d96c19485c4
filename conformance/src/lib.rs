//! Black-box conformance: what a cache promises on the wire, as checks that can be pointed at any server.
//!
//! ```text
//!   http::all()   ─┐                      ┌─▶ tests of this crate (against our own kura)
//!                  ├─▶ run(checks, target)┤
//!   reapi::all()  ─┘        = Report      └─▶ `conformance` (against any URL; table, JSON, Markdown)
//! ```
//!
//! A check knows nothing of the server but its address and the credentials it was given. What a server does not offer (TLS, a second
//! tenant, a signing key to forge with) makes a check *not applicable*, with the reason; that is neither a pass nor a failure, and our
//! own tests say how many of those they accept.

pub mod document;
pub mod http;
pub mod ours;
pub mod reapi;
mod report;

pub use report::{Outcome, Report, Row, compare};

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::BoxFuture;

/// No check takes this long unless the server hangs.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// One promise and how to test it. `T` is what it is tested on.
#[expect(missing_debug_implementations, reason = "a function has nothing to show")]
pub struct Check<T: 'static> {
    /// Unique within its suite.
    pub name: &'static str,
    /// What holds for a server that passes.
    pub proves: &'static str,
    /// Where that is written down.
    pub reference: &'static str,
    /// For attacks: what a naive server does.
    pub naive: Option<&'static str>,
    /// Fails with the reason, or with [`NotApplicable`].
    pub run: for<'a> fn(&'a T) -> BoxFuture<'a, Result<()>>,
}

/// Why a check says nothing about this server.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotApplicable(pub String);

/// Ends a check that cannot be made here.
pub fn not_applicable<V>(why: impl Into<String>) -> Result<V> {
    Err(NotApplicable(why.into()).into())
}

/// Runs the checks one after the other: some empty a namespace, all of them share one.
pub async fn run<T>(checks: &[&Check<T>], target: &T) -> Report {
    let mut report = Report::default();
    for check in checks {
        let began = Instant::now();
        let outcome = match tokio::time::timeout(DEADLINE, (check.run)(target)).await {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(error)) => match error.downcast_ref::<NotApplicable>() {
                Some(why) => Outcome::NotApplicable(why.0.clone()),
                None => Outcome::Failed(format!("{error:#}")),
            },
            Err(_) => Outcome::Failed(format!("no answer within {DEADLINE:?}")),
        };
        report.rows.push(Row {
            name: check.name,
            proves: check.proves,
            reference: check.reference,
            outcome,
            took: began.elapsed(),
        });
    }
    report
}

/// The checks whose name contains one of the words, or all if there is no word.
pub fn select<'a, T>(all: impl IntoIterator<Item = &'a Check<T>>, only: &[String]) -> Vec<&'a Check<T>> {
    all.into_iter()
        .filter(|check| only.is_empty() || only.iter().any(|word| check.name.contains(word.as_str())))
        .collect()
}

/// A table of [`Check`]s: an `async fn(&T) -> Result<()>`, the name, where it is written down, what the target must offer (methods of
/// `T` that fail with [`NotApplicable`]), and what it proves.
macro_rules! checks {
    (@naive) => { None };
    (@naive $naive:literal) => { Some($naive) };
    ($($run:ident, $name:literal, $reference:literal $([$($need:ident),+])?: $proves:literal $(, naive: $naive:literal)?;)*) => {
        &[$($crate::Check {
            name: $name,
            proves: $proves,
            reference: $reference,
            naive: $crate::checks!(@naive $($naive)?),
            run: |target| Box::pin(async move {
                $($(target.$need()?;)+)?
                $run(target).await
            }),
        }),*]
    };
}
pub(crate) use checks;

#[cfg(test)]
mod tests {
    #![expect(clippy::unused_async, reason = "a check is an async fn")]

    use super::*;

    async fn good(_: &u8) -> Result<()> {
        Ok(())
    }

    async fn bad(number: &u8) -> Result<()> {
        anyhow::bail!("saw {number}")
    }

    async fn elsewhere(_: &u8) -> Result<()> {
        not_applicable("no TLS here")
    }

    const CHECKS: &[Check<u8>] = checks! {
        good, "good-one", "nowhere":
        "it passes";
        bad, "bad-one", "nowhere":
        "it fails";
        elsewhere, "other", "nowhere":
        "it does not apply";
    };

    #[tokio::test]
    async fn a_failure_fails_the_report_and_what_does_not_apply_is_told_apart() {
        let report = run(&select(CHECKS, &[]), &7).await;
        let outcomes: Vec<_> = report.rows.iter().map(|row| &row.outcome).collect();
        assert_eq!(
            outcomes,
            [
                &Outcome::Passed,
                &Outcome::Failed("saw 7".to_owned()),
                &Outcome::NotApplicable("no TLS here".to_owned())
            ]
        );
        assert_eq!((report.passed(), report.failures().count()), (1, 1));
    }

    #[test]
    fn checks_are_chosen_by_words() {
        let names = |words: &[&str]| -> Vec<_> {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            select(CHECKS, &words).iter().map(|check| check.name).collect()
        };
        assert_eq!(names(&["one"]), ["good-one", "bad-one"]);
        assert_eq!(names(&["other", "good"]), ["good-one", "other"]);
        assert_eq!(names(&[]).len(), 3);
    }
}
