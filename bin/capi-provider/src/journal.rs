//! What is being done to a host, written down before it is done.
//!
//! The record lives in `status.intent`. Between two calls its [`Attempt`] is empty; while it is not, a call may be on its
//! way, and nobody makes another until the answer is in or the call can no longer arrive.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use russet_api::machine::{Intent, IntentAction};
use russet_api::values::{PoolPrefix, ServerId};
use russet_scaleway::OsId;

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// Rename to the marker.
    Mark,
    /// Rename to the machine's name.
    Name,
    /// Wipe and install.
    Wipe,
    /// Rename into the pool.
    Pool,
    /// Restart.
    Reboot,
}

impl Step {
    const ALL: [Self; 5] = [Self::Mark, Self::Name, Self::Wipe, Self::Pool, Self::Reboot];

    /// The word in the record.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mark => "mark",
            Self::Name => "name",
            Self::Wipe => "wipe",
            Self::Pool => "pool",
            Self::Reboot => "reboot",
        }
    }
}

/// A call that may be on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Which.
    pub step: Step,
    /// Its own id, by which whoever made it knows it again.
    pub id: String,
    /// When it was written down.
    pub at: Timestamp,
}

/// Whether a host still has to be wiped before it may enter the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wipe {
    /// Nobody logged in to it since it left the pool.
    NotNeeded,
    /// It has to be.
    Needed,
    /// It was seen being wiped at this time.
    Seen(Timestamp),
}

/// A host is taken from a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The pool.
    pub pool: PoolPrefix,
    /// The host's name in it.
    pub from: String,
    /// When the marker was first seen in place.
    pub marked_at: Option<Timestamp>,
    /// A rename to the machine's own name was tried, so that name may be ours.
    pub naming: bool,
}

/// A host is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The pool it goes to.
    pub pool: PoolPrefix,
    /// Its name when that began.
    pub from: String,
    /// Whether it still has to be wiped.
    pub wipe: Wipe,
    /// What to install; none: Scaleway's default of the day.
    pub image: Option<OsId>,
}

/// What is being done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// The host is taken from the pool.
    Claim(Claim),
    /// The host is given back.
    Release(Release),
    /// It was given back, or is not ours any more: nothing is ever done to it for this machine again.
    Over,
    /// The name of a host in use is put right.
    Restore {
        /// The wrong name.
        from: String,
    },
    /// The host is restarted, because setting it up keeps failing.
    Reboot,
}

/// The record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// The host.
    pub server: ServerId,
    /// Id of this piece of work; part of marker names and of the name in the pool.
    pub id: String,
    /// When it began.
    pub started_at: Timestamp,
    /// What is being done.
    pub work: Work,
    /// The call that may be on its way.
    pub attempt: Option<Attempt>,
    /// Calls made so far.
    pub attempts: i32,
    /// When the last of them was written down.
    pub last_attempt_at: Option<Timestamp>,
    /// What Scaleway last answered.
    pub message: Option<String>,
}

/// A record of another release, or one that somebody edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("status.intent cannot be understood ({what}): finish or undo what it says by hand, then remove it")]
pub struct Unreadable {
    /// What is wrong.
    pub what: String,
}

impl Journal {
    /// A record of work that begins now.
    pub fn new(server: &ServerId, id: &str, work: Work, now: Timestamp) -> Self {
        Self {
            server: server.clone(),
            id: id.to_owned(),
            started_at: now,
            work,
            attempt: None,
            attempts: 0,
            last_attempt_at: None,
            message: None,
        }
    }

    /// The same record, of work that went on without a call.
    #[must_use]
    pub fn with(&self, work: Work) -> Self {
        Self {
            work,
            attempt: None,
            ..self.clone()
        }
    }

    /// Until when a call may be on its way.
    pub fn in_flight_until(&self, flight: Duration, now: Timestamp) -> Option<Timestamp> {
        let attempt = self.attempt.as_ref()?;
        let until = later(attempt.at, flight);
        (now < until).then_some(until)
    }

    /// The same record with a call about to be made.
    #[must_use]
    pub fn attempting(mut self, step: Step, id: &str, now: Timestamp) -> Self {
        self.attempt = Some(Attempt {
            step,
            id: id.to_owned(),
            at: now,
        });
        self.attempts = self.attempts.saturating_add(1);
        self.last_attempt_at = Some(now);
        self
    }
}

/// `at` plus `duration`, or the end of time.
pub fn later(at: Timestamp, duration: Duration) -> Timestamp {
    at.checked_add(duration).unwrap_or(Timestamp::MAX)
}

const POOL: &str = "pool";
const FROM: &str = "from";
const MARKED_AT: &str = "markedAt";
const NAMING: &str = "naming";
const WIPE: &str = "wipe";
const WIPE_SEEN_AT: &str = "wipeSeenAt";
const IMAGE: &str = "image";
const OVER: &str = "over";
const ATTEMPT: &str = "attempt";
const ATTEMPT_ID: &str = "attemptId";
const RESTORE: &str = "restore";

impl From<&Journal> for Intent {
    fn from(journal: &Journal) -> Self {
        let mut parameters = BTreeMap::new();
        let mut put = |key: &str, value: String| drop(parameters.insert(key.to_owned(), value));
        let action = match &journal.work {
            Work::Claim(claim) => {
                put(POOL, claim.pool.to_string());
                put(FROM, claim.from.clone());
                if let Some(at) = claim.marked_at {
                    put(MARKED_AT, at.to_string());
                }
                if claim.naming {
                    put(NAMING, "true".to_owned());
                }
                IntentAction::Claim
            }
            Work::Release(release) => {
                put(POOL, release.pool.to_string());
                put(FROM, release.from.clone());
                match release.wipe {
                    Wipe::NotNeeded => put(WIPE, "notNeeded".to_owned()),
                    Wipe::Needed => {}
                    Wipe::Seen(at) => put(WIPE_SEEN_AT, at.to_string()),
                }
                if let Some(image) = &release.image {
                    put(IMAGE, image.to_string());
                }
                IntentAction::Release
            }
            Work::Over => {
                put(OVER, "true".to_owned());
                IntentAction::Release
            }
            Work::Restore { from } => {
                put(FROM, from.clone());
                put(RESTORE, "true".to_owned());
                IntentAction::Claim
            }
            Work::Reboot => IntentAction::Reboot,
        };
        if let Some(attempt) = &journal.attempt {
            put(ATTEMPT, attempt.step.as_str().to_owned());
            put(ATTEMPT_ID, attempt.id.clone());
        }
        Self {
            action,
            target: journal.server.to_string(),
            id: Some(journal.id.clone()),
            started_at: Time(journal.started_at),
            attempts: (journal.attempts > 0).then_some(journal.attempts),
            last_attempt_at: journal.last_attempt_at.map(Time),
            message: journal.message.clone(),
            parameters,
        }
    }
}

impl TryFrom<&Intent> for Journal {
    type Error = Unreadable;

    fn try_from(intent: &Intent) -> Result<Self, Unreadable> {
        let bad = |what: &str| Unreadable { what: what.to_owned() };
        let get = |key: &str| intent.parameters.get(key).map(String::as_str);
        let need = |key: &str| get(key).ok_or_else(|| bad(&format!("no {key}")));
        let time = |key: &str| -> Result<Option<Timestamp>, Unreadable> {
            get(key)
                .map(|text| text.parse().map_err(|_| bad(&format!("{key} is no time"))))
                .transpose()
        };
        let last_attempt_at = intent.last_attempt_at.as_ref().map(|at| at.0);
        let pool = || need(POOL)?.parse().map_err(|_| bad("pool is no prefix"));
        let work = match &intent.action {
            IntentAction::Claim if get(RESTORE).is_some() => Work::Restore {
                from: need(FROM)?.to_owned(),
            },
            IntentAction::Claim => Work::Claim(Claim {
                pool: pool()?,
                from: need(FROM)?.to_owned(),
                marked_at: time(MARKED_AT)?,
                naming: get(NAMING).is_some(),
            }),
            IntentAction::Release if get(OVER).is_some() => Work::Over,
            IntentAction::Release => Work::Release(Release {
                pool: pool()?,
                from: need(FROM)?.to_owned(),
                wipe: match (get(WIPE), time(WIPE_SEEN_AT)?) {
                    (_, Some(at)) => Wipe::Seen(at),
                    (Some("notNeeded"), None) => Wipe::NotNeeded,
                    _ => Wipe::Needed,
                },
                image: get(IMAGE)
                    .map(|id| id.parse().map_err(|_| bad("image is no id")))
                    .transpose()?,
            }),
            IntentAction::Reboot => Work::Reboot,
            other => return Err(bad(&format!("action {other}"))),
        };
        let attempt = match get(ATTEMPT) {
            None => None,
            Some(step) => Some(Attempt {
                step: Step::ALL
                    .into_iter()
                    .find(|known| known.as_str() == step)
                    .ok_or_else(|| bad(&format!("attempt {step}")))?,
                id: need(ATTEMPT_ID)?.to_owned(),
                at: last_attempt_at.ok_or_else(|| bad("no lastAttemptAt"))?,
            }),
        };
        Ok(Self {
            server: intent.target.parse().map_err(|_| bad("target is no server id"))?,
            id: intent.id.clone().ok_or_else(|| bad("no id"))?,
            started_at: intent.started_at.0,
            work,
            attempt,
            attempts: intent.attempts.unwrap_or_default(),
            last_attempt_at,
            message: intent.message.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_time() -> impl Strategy<Value = Timestamp> {
        (1_700_000_000_i64..1_900_000_000).prop_map(|seconds| Timestamp::from_second(seconds).unwrap())
    }

    fn any_wipe() -> impl Strategy<Value = Wipe> {
        prop_oneof![
            Just(Wipe::NotNeeded),
            Just(Wipe::Needed),
            any_time().prop_map(Wipe::Seen)
        ]
    }

    fn any_work() -> impl Strategy<Value = Work> {
        let pool = || "[a-z]{2,8}-".prop_map(|text| text.parse::<PoolPrefix>().unwrap());
        prop_oneof![
            (pool(), "[a-z0-9-]{1,20}", prop::option::of(any_time()), any::<bool>()).prop_map(
                |(pool, from, marked_at, naming)| Work::Claim(Claim {
                    pool,
                    from,
                    marked_at,
                    naming
                })
            ),
            (
                pool(),
                "[a-z0-9-]{1,20}",
                any_wipe(),
                prop::option::of("[a-z0-9-]{1,20}")
            )
                .prop_map(|(pool, from, wipe, image)| Work::Release(Release {
                    pool,
                    from,
                    wipe,
                    image: image.map(|image| image.parse().unwrap()),
                })),
            Just(Work::Over),
            "[a-z0-9-]{1,20}".prop_map(|from| Work::Restore { from }),
            Just(Work::Reboot),
        ]
    }

    proptest! {
        /// Through JSON, as the API server keeps it.
        #[test]
        fn a_record_survives_the_api_server(
            work in any_work(), started in any_time(), attempt in prop::option::of((0..5_usize, any_time())),
            message in prop::option::of(".{0,40}"),
        ) {
            let mut journal = Journal::new(&"s1".parse().unwrap(), "id-1", work, started);
            journal.message = message;
            if let Some((step, at)) = attempt {
                journal = journal.attempting(Step::ALL[step], "try-1", at);
            }
            let text = serde_json::to_string(&Intent::from(&journal)).unwrap();
            let read: Intent = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(Journal::try_from(&read).unwrap(), journal);
        }
    }

    #[test]
    fn a_record_that_cannot_be_understood_is_not_guessed_at() {
        let journal = Journal::new(&"s1".parse().unwrap(), "id-1", Work::Reboot, Timestamp::UNIX_EPOCH);
        let good = Intent::from(&journal);
        let broken: [fn(&mut Intent); 5] = [
            |intent| intent.action = IntentAction::Order,
            |intent| intent.target = "not/an/id".to_owned(),
            |intent| intent.id = None,
            |intent| drop(intent.parameters.insert(ATTEMPT.to_owned(), "dance".to_owned())),
            |intent| intent.action = IntentAction::Claim,
        ];
        for (index, breaks) in broken.into_iter().enumerate() {
            let mut intent = good.clone();
            breaks(&mut intent);
            let error = Journal::try_from(&intent).unwrap_err();
            assert!(error.to_string().contains("by hand"), "{index}: {error}");
        }
    }
}
