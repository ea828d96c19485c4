//! The shell around [`decide`]: reads and writes the Lease, keeps [`Leadership`] up to date.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::decision::JITTER;
use super::{Action, Leadership, Record, Timing, decide};
use crate::error::{Class, Classify};

/// Which Lease, and how fast.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the Lease lives.
    pub namespace: String,
    /// Its name; constants of `russet_api::groups`.
    pub name: String,
    /// The periods.
    pub timing: Timing,
}

/// Leadership could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process holds the Lease now.
    #[error("lost the Lease {lease} to {holder:?}; this process ends so that it starts again clean")]
    Taken {
        /// `namespace/name`.
        lease: String,
        /// The new holder; empty when somebody released or deleted the Lease.
        holder: String,
    },
    /// Renewals failed until the deadline passed.
    #[error("could not renew the Lease {lease} within {deadline:?}; this process ends so that it starts again clean")]
    Expired {
        /// `namespace/name`.
        lease: String,
        /// The renew deadline.
        deadline: Duration,
        /// The last failure, if a request failed rather than hung.
        source: Option<Box<kube::Error>>,
    },
}

/// What happens while we wait for the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Another process leads.
    StandingBy {
        /// Which one.
        leader: String,
    },
    /// The Lease cannot be read or written.
    Failing {
        /// `namespace/name`.
        lease: String,
        /// Why, in one word.
        reason: &'static str,
    },
}

/// How waiting for the Lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquired {
    /// We lead.
    Leading,
    /// We were asked to stop first.
    Stopped,
}

/// One process's part in an election.
#[derive(Debug)]
pub struct Election {
    api: Api<Lease>,
    options: Options,
    leadership: Leadership,
    observed: Option<Observed>,
    /// The same deadline as in `leadership`, for the timers of [`Election::hold`].
    deadline: Option<Instant>,
}

#[derive(Debug, Clone)]
struct Observed {
    lease: Lease,
    record: Record,
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Candidate,
    Holder,
}

/// What one round of read, decide, write came to.
enum Round {
    /// The Lease is ours; the request that made it so was sent at this instant.
    Held(Instant),
    /// It is not.
    Standby { holder: String, until: Option<Instant> },
}

impl Election {
    /// Takes part under `leadership.identity()`. The client must not be fenced: it writes the Lease before we lead.
    pub fn new(client: kube::Client, options: Options, leadership: Leadership) -> Self {
        let api = Api::namespaced(client, &options.namespace);
        Self {
            api,
            options,
            leadership,
            observed: None,
            deadline: None,
        }
    }

    /// Waits until we lead. Failures are logged and retried: a missing right or a slow API server is no reason to crash.
    pub async fn acquire(&mut self, stop: &CancellationToken, mut report: impl FnMut(&News)) -> Acquired {
        let mut told = None;
        loop {
            let attempt = tokio::select! {
                () = stop.cancelled() => return Acquired::Stopped,
                attempt = self.round(Role::Candidate) => attempt,
            };
            let mut pause = self.pause();
            match attempt {
                Ok(Round::Held(sent)) => {
                    self.extend(sent);
                    info!(lease = %self.lease(), identity = self.leadership.identity(), "leading");
                    return Acquired::Leading;
                }
                Ok(Round::Standby { holder, until }) => {
                    let news = News::StandingBy { leader: holder };
                    if told.as_ref() != Some(&news) {
                        info!(lease = %self.lease(), ?news, "not leading");
                        report(&news);
                        told = Some(news);
                    }
                    // No need to oversleep the instant at which it becomes free.
                    if let Some(until) = until {
                        pause = pause.min(until.saturating_duration_since(Instant::now()));
                    }
                }
                Err(error) => {
                    if matches!(error.class(), Class::Conflict) {
                        debug!(lease = %self.lease(), "another process was faster");
                    } else {
                        warn!(lease = %self.lease(), error = %error, reason = error.reason(), "cannot take part in the election");
                        report(&News::Failing {
                            lease: self.lease(),
                            reason: error.reason(),
                        });
                        told = None;
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return Acquired::Stopped,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Renews until asked to stop, or until leadership is lost, in which case [`Leadership`] is revoked before this returns.
    pub async fn hold(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        let result = self.renew_until(stop).await;
        if result.is_err() {
            self.leadership.revoke();
        }
        result
    }

    async fn renew_until(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        let mut failure = None;
        loop {
            let Some(deadline) = self.deadline else {
                return Err(self.expired(failure));
            };
            let pause = self.pause().min(deadline.saturating_duration_since(Instant::now()));
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
            // First after a sleep, which may have been much longer than asked for: are we still who we think we are?
            if self.leadership.check().is_err() {
                return Err(self.expired(failure));
            }
            let attempt = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                attempt = tokio::time::timeout_at(deadline.into(), self.round(Role::Holder)) => attempt,
            };
            match attempt {
                Err(_elapsed) => return Err(self.expired(failure)),
                Ok(Ok(Round::Held(sent))) => {
                    self.extend(sent);
                    failure = None;
                }
                Ok(Ok(Round::Standby { holder, .. })) => {
                    return Err(Error::Taken {
                        lease: self.lease(),
                        holder,
                    });
                }
                Ok(Err(error)) => {
                    warn!(lease = %self.lease(), error = %error, "cannot renew the Lease, trying again");
                    failure = Some(Box::new(error));
                }
            }
        }
    }

    /// Gives the Lease back, so that a standby takes it at its next look. Call after the last write: from here on none passes.
    pub async fn release(&mut self) {
        let held = self.leadership.is_leading();
        self.leadership.revoke();
        if !held {
            return;
        }
        match tokio::time::timeout(self.options.timing.renew_deadline, self.give_back()).await {
            Ok(Ok(())) => info!(lease = %self.lease(), "released the Lease"),
            // The Lease will run out by itself.
            Ok(Err(error)) => warn!(lease = %self.lease(), error = %error, "could not release the Lease"),
            Err(_) => warn!(lease = %self.lease(), "could not release the Lease in time"),
        }
    }

    /// A renewal that was under way when we stopped may have changed the Lease after we saw it, so a conflict means: look again,
    /// as long as it is still ours.
    async fn give_back(&mut self) -> Result<(), kube::Error> {
        loop {
            let Some(mut lease) = self.observed.as_ref().map(|observed| observed.lease.clone()) else {
                return Ok(());
            };
            let Some(spec) = lease
                .spec
                .as_mut()
                .filter(|spec| spec.holder_identity.as_deref() == Some(self.leadership.identity()))
            else {
                return Ok(());
            };
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            match self
                .api
                .replace(&self.options.name, &PostParams::default(), &lease)
                .await
            {
                Err(error) if error.class() == Class::Conflict => {
                    self.observe(self.api.get_opt(&self.options.name).await?);
                }
                result => return result.map(|_| ()),
            }
        }
    }

    /// Reads, decides, writes. While we lead, only a renewal counts as holding: a Lease that somebody took or deleted is lost,
    /// even if it happens to be free again.
    async fn round(&mut self, role: Role) -> Result<Round, kube::Error> {
        self.observe(self.api.get_opt(&self.options.name).await?);
        let lease = self
            .observed
            .as_ref()
            .map(|observed| (&observed.record, observed.since));
        let action = decide(lease, Instant::now(), self.leadership.identity(), &self.options.timing);
        if role == Role::Holder && action != Action::Renew {
            let holder = lease.map(|(record, _)| record.holder.clone()).unwrap_or_default();
            return Ok(Round::Standby { holder, until: None });
        }
        // Counted from before the request leaves: the answer may be late, and the Lease is only as fresh as its writing.
        let sent = Instant::now();
        let post = PostParams::default();
        let written = match action {
            Action::Wait { until } => {
                let holder = lease.map(|(record, _)| record.holder.clone()).unwrap_or_default();
                return Ok(Round::Standby {
                    holder,
                    until: Some(until),
                });
            }
            Action::Create => self.api.create(&post, &self.fresh(None)).await?,
            Action::Take | Action::Renew => {
                let current = self.observed.as_ref().map(|observed| &observed.lease);
                self.api
                    .replace(&self.options.name, &post, &self.fresh(current))
                    .await?
            }
        };
        self.observe(Some(written));
        Ok(Round::Held(sent))
    }

    fn extend(&mut self, sent: Instant) {
        let deadline = sent + self.options.timing.renew_deadline;
        self.deadline = Some(deadline);
        self.leadership.extend(deadline);
    }

    fn observe(&mut self, lease: Option<Lease>) {
        let now = Instant::now();
        self.observed = lease.map(|lease| {
            let record = record(&lease);
            let known = self.observed.as_ref().filter(|observed| observed.record == record);
            let since = known.map_or(now, |observed| observed.since);
            Observed { lease, record, since }
        });
    }

    /// The Lease as we want to write it; a replacement keeps the resourceVersion, so that of two takers one fails.
    fn fresh(&self, current: Option<&Lease>) -> Lease {
        let me = self.leadership.identity();
        let now = MicroTime(Timestamp::now());
        let mut lease = current.cloned().unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.options.name.clone()),
                namespace: Some(self.options.namespace.clone()),
                ..ObjectMeta::default()
            },
            ..Lease::default()
        });
        lease.metadata.managed_fields = None;
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_deref() != Some(me) {
            spec.lease_transitions = Some(current.map_or(0, |_| spec.lease_transitions.unwrap_or(0).saturating_add(1)));
            spec.acquire_time = Some(now.clone());
        }
        spec.holder_identity = Some(me.to_owned());
        spec.lease_duration_seconds = i32::try_from(self.options.timing.lease_duration.as_secs()).ok();
        spec.renew_time = Some(now);
        lease
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.options.namespace, self.options.name)
    }

    fn expired(&self, source: Option<Box<kube::Error>>) -> Error {
        Error::Expired {
            lease: self.lease(),
            deadline: self.options.timing.renew_deadline,
            source,
        }
    }

    fn pause(&self) -> Duration {
        self.options
            .timing
            .retry_period
            .mul_f64(rand::Rng::random_range(&mut rand::rng(), 1.0..JITTER))
    }
}

fn record(lease: &Lease) -> Record {
    let Some(spec) = &lease.spec else {
        return Record::default();
    };
    let text = |time: &Option<MicroTime>| time.as_ref().map(|time| time.0.to_string());
    Record {
        holder: spec.holder_identity.clone().unwrap_or_default(),
        duration: Duration::from_secs(
            spec.lease_duration_seconds
                .and_then(|s| u64::try_from(s).ok())
                .unwrap_or(0),
        ),
        acquire_time: text(&spec.acquire_time),
        renew_time: text(&spec.renew_time),
        transitions: spec.lease_transitions.unwrap_or(0),
    }
}
