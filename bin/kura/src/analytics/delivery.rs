//! Emptying the queues: batches, signatures, repetitions, and a circuit breaker.

use super::{Backlog, Counts, Event};
use crate::config::Analytics;
use aws_lc_rs::hmac;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often one batch is offered.
const ATTEMPTS: u32 = 3;
/// Before the second attempt; twice as long before each further one.
const PAUSE: Duration = Duration::from_millis(200);

/// Leaves a failing server alone. Time is an argument.
#[derive(Debug)]
pub struct Breaker {
    threshold: u32,
    rest: Duration,
    failures: u32,
    open_until: Option<Instant>,
}

impl Breaker {
    /// Opens after `threshold` failures in a row, for `rest`.
    pub fn new(threshold: u32, rest: Duration) -> Self {
        Self {
            threshold: threshold.max(1),
            rest,
            failures: 0,
            open_until: None,
        }
    }

    /// Until when the server is left alone.
    pub fn closed_from(&self, now: Instant) -> Option<Instant> {
        self.open_until.filter(|until| *until > now)
    }

    /// An attempt was made; whether the breaker changed.
    pub fn record(&mut self, succeeded: bool, now: Instant) -> bool {
        if succeeded {
            self.failures = 0;
            return self.open_until.take().is_some();
        }
        self.failures = self.failures.saturating_add(1);
        // One failure after a rest is enough for the next rest.
        if self.failures < self.threshold && self.open_until.is_none() {
            return false;
        }
        self.open_until = Some(now + self.rest);
        true
    }
}

#[derive(serde::Serialize)]
struct Report<'a> {
    events: &'a [Event],
}

/// What came of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Taken,
    /// Trying again may help.
    Failed,
    /// The server understood and does not want them.
    Refused,
}

/// Empties one queue until stopped, then offers what is left once. `endpoint` is host and port of this node.
pub async fn run(config: Analytics, mut backlog: Backlog, endpoint: String, stop: CancellationToken) {
    let client = reqwest::Client::builder()
        .connect_timeout(config.timeout)
        .timeout(config.timeout)
        .redirect(reqwest::redirect::Policy::none())
        .build();
    let client = match client {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%error, "analytics events cannot be delivered");
            return;
        }
    };
    let door = Door {
        client,
        url: format!("{}{}", config.url, backlog.pipeline.path()),
        key: hmac::Key::new(hmac::HMAC_SHA256, config.key.expose().as_bytes()),
        endpoint,
    };
    let mut breaker = Breaker::new(config.threshold, config.open);
    let mut batch = Vec::new();
    while !stop.is_cancelled() {
        let got = stop
            .run_until_cancelled(backlog.waiting.recv_many(&mut batch, config.batch))
            .await;
        if got == Some(0) {
            break;
        }
        stop.run_until_cancelled(gather(&mut backlog, &mut batch, &config))
            .await;
        let delivered = door.deliver(&batch, &mut breaker, &backlog.counts);
        if stop.run_until_cancelled(delivered).await.is_some() {
            batch.clear();
        }
    }
    backlog.waiting.close();
    loop {
        if !batch.is_empty() && door.attempt(&batch, &backlog.counts).await != Outcome::Taken {
            return;
        }
        batch.clear();
        if backlog.waiting.recv_many(&mut batch, config.batch).await == 0 {
            return;
        }
    }
}

/// Fills a batch until it is full or its time is over.
async fn gather(backlog: &mut Backlog, batch: &mut Vec<Event>, config: &Analytics) {
    let more = async {
        while batch.len() < config.batch {
            let room = config.batch - batch.len();
            if backlog.waiting.recv_many(batch, room).await == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(config.gather, more).await;
}

struct Door {
    client: reqwest::Client,
    url: String,
    key: hmac::Key,
    endpoint: String,
}

impl Door {
    /// Offers a batch until it is taken, refused, or has failed often enough.
    async fn deliver(&self, batch: &[Event], breaker: &mut Breaker, counts: &Counts) {
        let mut pause = PAUSE;
        for attempt in 1..=ATTEMPTS {
            if let Some(until) = breaker.closed_from(Instant::now()) {
                counts.circuit.store(1, Ordering::Relaxed);
                tokio::time::sleep_until(until).await;
                counts.circuit.store(2, Ordering::Relaxed);
            }
            let outcome = self.attempt(batch, counts).await;
            let changed = breaker.record(outcome != Outcome::Failed, Instant::now());
            if changed {
                let counter = if outcome == Outcome::Failed {
                    &counts.opened
                } else {
                    &counts.closed
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }
            let open = breaker.closed_from(Instant::now()).is_some();
            counts.circuit.store(u8::from(open), Ordering::Relaxed);
            match outcome {
                Outcome::Taken => return,
                Outcome::Failed if attempt < ATTEMPTS => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Outcome::Failed | Outcome::Refused => {
                    counts.failed.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    tracing::warn!(events = batch.len(), ?outcome, "analytics events were not delivered");
                    return;
                }
            }
        }
    }

    async fn attempt(&self, batch: &[Event], counts: &Counts) -> Outcome {
        let Ok(body) = serde_json::to_vec(&Report { events: batch }) else {
            return Outcome::Refused;
        };
        let started = Instant::now();
        let answer = self
            .client
            .post(&self.url)
            .header("content-type", "application/json")
            .header("x-cache-signature", signature(&self.key, &body))
            .header("x-cache-endpoint", &self.endpoint)
            .body(body)
            .send()
            .await;
        let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        counts.nanos.fetch_add(took, Ordering::Relaxed);
        let outcome = match answer {
            Ok(answer) if answer.status().is_success() => Outcome::Taken,
            Ok(answer) if answer.status().is_client_error() && !matches!(answer.status().as_u16(), 408 | 429) => {
                Outcome::Refused
            }
            Ok(_) => Outcome::Failed,
            Err(error) => {
                tracing::debug!(error = %error.without_url(), "the analytics server was not reached");
                Outcome::Failed
            }
        };
        if outcome == Outcome::Taken {
            counts.batches_ok.fetch_add(1, Ordering::Relaxed);
            counts.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
        } else {
            counts.batches_failed.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }
}

/// HMAC-SHA256 of the body, in hexadecimal.
fn signature(key: &hmac::Key, body: &[u8]) -> String {
    let tag = hmac::sign(key, body);
    tag.as_ref().iter().fold(String::new(), |mut text, byte| {
        // Writing into a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_breaker_opens_after_failures_in_a_row_and_closes_with_a_success() {
        let (start, rest) = (Instant::now(), Duration::from_secs(30));
        let mut breaker = Breaker::new(2, rest);
        assert!(!breaker.record(false, start));
        assert!(!breaker.record(true, start), "a success starts the count again");
        assert!(!breaker.record(false, start));
        assert!(breaker.record(false, start));
        assert_eq!(breaker.closed_from(start), Some(start + rest));
        let later = start + rest;
        assert_eq!(breaker.closed_from(later), None, "one attempt is allowed");
        assert!(breaker.record(false, later), "and one failure is enough now");
        assert_eq!(breaker.closed_from(later), Some(later + rest));
        assert!(breaker.record(true, later + rest));
        assert_eq!(breaker.closed_from(later + rest), None);
    }

    /// RFC 4231, test case 2.
    #[test]
    fn signatures_are_what_the_rfc_says() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"Jefe");
        let signed = signature(&key, b"what do ya want for nothing?");
        assert_eq!(
            signed,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }
}
