//! Waiting on conditions with a deadline: the only way a test passes time.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::Instant;

/// Long enough for a busy two-core machine; a condition that holds returns at once, so nobody pays for it.
pub const PATIENCE: Duration = Duration::from_mins(3);

const POLL: Duration = Duration::from_millis(50);

/// What one look at the world found.
#[derive(Debug)]
pub enum Look<T> {
    Done(T),
    /// Not yet; the text says what was seen, and is part of the error when time runs out.
    NotYet(String),
}

impl<T> Look<T> {
    pub fn not_yet(seen: impl Debug) -> Self {
        Self::NotYet(format!("{seen:?}"))
    }

    /// This value if it is as wanted; else it is what was seen.
    pub fn value_if(wanted: bool, value: T) -> Self
    where
        T: Debug,
    {
        if wanted {
            Self::Done(value)
        } else {
            Self::not_yet(value)
        }
    }
}

impl Look<()> {
    /// Done if this is as wanted; else it is what was seen.
    pub fn done_if(wanted: bool, seen: impl Debug) -> Self {
        if wanted { Self::Done(()) } else { Self::not_yet(seen) }
    }
}

/// Looks until the condition holds. An error from `look` is remembered as "seen" and retried: while a cluster starts, errors are normal.
pub async fn until<T, F, Fut>(what: &str, patience: Duration, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Look<T>>>,
{
    let deadline = Instant::now() + patience;
    loop {
        let seen = match look().await {
            Ok(Look::Done(value)) => return Ok(value),
            Ok(Look::NotYet(seen)) => seen,
            Err(error) => format!("{error:#}"),
        };
        if Instant::now() >= deadline {
            return Err(anyhow!("waited {patience:?} for {what}; last seen: {seen}"));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// [`until`] for a plain yes or no.
pub async fn until_true<F, Fut>(what: &str, patience: Duration, mut look: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<bool>>,
{
    until(what, patience, || {
        let answer = look();
        async move {
            Ok(if answer.await? {
                Look::Done(())
            } else {
                Look::NotYet("not yet true".to_owned())
            })
        }
    })
    .await
}
