//! How long a client is willing to wait, as it says in `grpc-timeout`. Nobody works for an answer that nobody will read.

use super::body::Body;
use super::status::{Code, Status};
use http::HeaderMap;
use std::time::Duration;
use tokio::time::Instant;

/// Most digits of a timeout.
const DIGITS: usize = 8;

/// When a call must be over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline(Instant);

/// What a call is told that was not answered in time.
pub(super) fn exceeded() -> Status {
    Status::new(Code::DeadlineExceeded, "the call took longer than grpc-timeout allows")
}

impl Deadline {
    /// The deadline of a call that begins now; `None` if its client waits for ever.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Self>, Status> {
        let Some(value) = headers.get("grpc-timeout") else {
            return Ok(None);
        };
        let timeout = parse(value.as_bytes()).ok_or_else(|| Status::invalid("grpc-timeout cannot be understood"))?;
        // One that lies beyond the end of time is none.
        Ok(Instant::now().checked_add(timeout).map(Self))
    }

    /// Drops the work when it is not done in time, and what it began with it; an answer that has begun ends then too.
    pub(super) async fn keep(self, work: impl Future<Output = Result<Body, Status>>) -> Result<Body, Status> {
        if self.0 <= Instant::now() {
            return Err(exceeded());
        }
        let body = tokio::time::timeout_at(self.0, work).await.map_err(|_| exceeded())??;
        Ok(match body {
            // All of it is at hand.
            Body::Empty | Body::Message(..) => body,
            body => Body::Until(Box::new(body), Box::pin(tokio::time::sleep_until(self.0))),
        })
    }
}

/// At most eight digits and a unit.
fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_every_unit() {
        for (text, timeout) in [
            ("2H", Some(Duration::from_hours(2))),
            ("3M", Some(Duration::from_mins(3))),
            ("4S", Some(Duration::from_secs(4))),
            ("99999999m", Some(Duration::from_millis(99_999_999))),
            ("5u", Some(Duration::from_micros(5))),
            ("0n", Some(Duration::ZERO)),
            ("100000000S", None),
            ("S", None),
            ("", None),
            ("-1S", None),
            ("+1S", None),
            ("1s", None),
            ("1 S", None),
        ] {
            assert_eq!(parse(text.as_bytes()), timeout, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_takes_longer_is_dropped() {
        let deadline = Deadline(Instant::now() + Duration::from_secs(1));
        let (alive, mut watch) = tokio::sync::oneshot::channel::<()>();
        let work = async move {
            let _alive = alive;
            std::future::pending().await
        };
        assert_eq!(deadline.keep(work).await.unwrap_err().code, Code::DeadlineExceeded);
        assert!(watch.try_recv().is_err(), "it is gone");
    }
}
