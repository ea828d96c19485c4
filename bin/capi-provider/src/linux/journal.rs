//! What is being done to a server, written down before it is done: `status.intent` of the Linux kinds.
//!
//! As with Macs, at most one call per machine is in flight: while there is an [`Attempt`], nobody makes another call until the
//! answer is in or the call can no longer arrive.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use russet_api::machine::{Intent, IntentAction};
use russet_api::values::ServerId;

use super::call::Call;
use super::server::{Volume, VolumeKind};
use crate::journal::{Unreadable, later};

/// A call that may be on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// [`Call::step`].
    pub step: String,
    /// Its own id, by which whoever made it knows it again.
    pub id: String,
    /// When it was written down.
    pub at: Timestamp,
}

/// Whether a server still has to be wiped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wipe {
    /// It has to be.
    Needed,
    /// It was asked for at this time, and does not show yet.
    Asked(Timestamp),
    /// It was seen being wiped at this time.
    Seen(Timestamp),
}

/// How a server is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It was made for the machine and is deleted.
    Delete,
    /// It was taken and is wiped and freed.
    Free(Wipe),
}

/// A server that is given up, with everything that is paid for besides it. Written down before the server is gone, since
/// afterwards nobody could tell what belonged to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The server.
    pub server: ServerId,
    /// How.
    pub how: How,
    /// Volumes that are left.
    pub volumes: Vec<Volume>,
    /// Addresses that are left.
    pub ips: Vec<String>,
}

/// What is being done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Something is made or changed by a single call.
    Step,
    /// A server is taken under the id of this record.
    Adopt(ServerId),
    /// A server is given up.
    Release(Release),
}

/// What Scaleway refused, and when to ask again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The call, as [`Call::step`].
    pub step: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// When to try again.
    pub retry_at: Timestamp,
}

/// The record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Id of this piece of work.
    pub id: String,
    /// What it is about, for people: a server id or the tag by which it will be found.
    pub target: String,
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
    /// What was refused.
    pub refusal: Option<Refusal>,
}

impl Journal {
    /// A record of work that begins now.
    pub fn new(target: impl Into<String>, id: &str, work: Work, now: Timestamp) -> Self {
        Self {
            id: id.to_owned(),
            target: target.into(),
            started_at: now,
            work,
            attempt: None,
            attempts: 0,
            last_attempt_at: None,
            refusal: None,
        }
    }

    /// The same record, of work that went on.
    #[must_use]
    pub fn with(&self, work: Work) -> Self {
        Self {
            work,
            attempt: None,
            refusal: None,
            ..self.clone()
        }
    }

    /// The same record with a call about to be made.
    #[must_use]
    pub fn attempting(mut self, call: &Call, id: &str, now: Timestamp) -> Self {
        let step = call.step().to_owned();
        // How often counts per call: a server that is stopped and then deleted was not refused anything.
        let again = self.refusal.as_ref().is_some_and(|refusal| refusal.step == step);
        self.attempts = if again { self.attempts.saturating_add(1) } else { 1 };
        self.refusal = None;
        self.attempt = Some(Attempt {
            step,
            id: id.to_owned(),
            at: now,
        });
        self.last_attempt_at = Some(now);
        self
    }

    /// Until when a call may be on its way.
    pub fn in_flight_until(&self, flight: Duration, now: Timestamp) -> Option<Timestamp> {
        let until = later(self.attempt.as_ref()?.at, flight);
        (now < until).then_some(until)
    }

    /// The server it is about.
    pub fn server(&self) -> Option<&ServerId> {
        match &self.work {
            Work::Step => None,
            Work::Adopt(server) => Some(server),
            Work::Release(release) => Some(&release.server),
        }
    }
}

const WORK: &str = "work";
const SERVER: &str = "server";
const WIPE_ASKED_AT: &str = "wipeAskedAt";
const WIPE_SEEN_AT: &str = "wipeSeenAt";
const VOLUMES: &str = "volumes";
const BLOCK_VOLUMES: &str = "blockVolumes";
const IPS: &str = "ips";
const ATTEMPT: &str = "attempt";
const ATTEMPT_ID: &str = "attemptId";
const REFUSED: &str = "refused";
const REASON: &str = "reason";
const RETRY_AT: &str = "retryAt";

fn action(journal: &Journal) -> IntentAction {
    let step = journal.attempt.as_ref().map(|attempt| attempt.step.as_str());
    let step = step.or(journal.refusal.as_ref().map(|refusal| refusal.step.as_str()));
    match (&journal.work, step) {
        (Work::Adopt(_), _) => IntentAction::Claim,
        (Work::Release(Release { how: How::Free(_), .. }), Some("wipe")) => IntentAction::Reinstall,
        (Work::Release(Release { how: How::Free(_), .. }), _) => IntentAction::Release,
        (Work::Release(_), Some("power-off")) => IntentAction::PowerOff,
        (Work::Release(_), _) => IntentAction::Delete,
        (Work::Step, Some("attach" | "enable-networking" | "create-network")) => IntentAction::AttachNetwork,
        (Work::Step, Some("power-on")) => IntentAction::PowerOn,
        (Work::Step, Some("install")) => IntentAction::Order,
        (Work::Step, _) => IntentAction::Create,
    }
}

impl From<&Journal> for Intent {
    fn from(journal: &Journal) -> Self {
        let mut parameters = BTreeMap::new();
        let mut put = |key: &str, value: String| drop(parameters.insert(key.to_owned(), value));
        match &journal.work {
            Work::Step => put(WORK, "step".to_owned()),
            Work::Adopt(server) => {
                put(WORK, "adopt".to_owned());
                put(SERVER, server.to_string());
            }
            Work::Release(release) => {
                let how = match release.how {
                    How::Delete => "delete",
                    How::Free(_) => "free",
                };
                put(WORK, how.to_owned());
                put(SERVER, release.server.to_string());
                match release.how {
                    How::Free(Wipe::Asked(at)) => put(WIPE_ASKED_AT, at.to_string()),
                    How::Free(Wipe::Seen(at)) => put(WIPE_SEEN_AT, at.to_string()),
                    How::Free(Wipe::Needed) | How::Delete => {}
                }
                for (key, kind) in [(VOLUMES, VolumeKind::Local), (BLOCK_VOLUMES, VolumeKind::Block)] {
                    let ids: Vec<&str> = release
                        .volumes
                        .iter()
                        .filter(|volume| volume.kind == kind)
                        .map(|volume| volume.id.as_str())
                        .collect();
                    if !ids.is_empty() {
                        put(key, ids.join(","));
                    }
                }
                if !release.ips.is_empty() {
                    put(IPS, release.ips.join(","));
                }
            }
        }
        if let Some(attempt) = &journal.attempt {
            put(ATTEMPT, attempt.step.clone());
            put(ATTEMPT_ID, attempt.id.clone());
        }
        if let Some(refusal) = &journal.refusal {
            put(REFUSED, refusal.step.clone());
            put(REASON, refusal.reason.clone());
            put(RETRY_AT, refusal.retry_at.to_string());
        }
        Self {
            action: action(journal),
            target: journal.target.clone(),
            id: Some(journal.id.clone()),
            started_at: Time(journal.started_at),
            attempts: (journal.attempts > 0).then_some(journal.attempts),
            last_attempt_at: journal.last_attempt_at.map(Time),
            message: journal.refusal.as_ref().map(|refusal| refusal.message.clone()),
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
        let list = |key: &str| -> Vec<String> {
            let ids = get(key).unwrap_or_default().split(',');
            ids.filter(|id| !id.is_empty()).map(ToOwned::to_owned).collect()
        };
        let server = || -> Result<ServerId, Unreadable> { need(SERVER)?.parse().map_err(|_| bad("server is no id")) };
        let release = |how| -> Result<Work, Unreadable> {
            let of = |key, kind| list(key).into_iter().map(move |id| Volume { id, kind });
            Ok(Work::Release(Release {
                server: server()?,
                how,
                volumes: of(VOLUMES, VolumeKind::Local)
                    .chain(of(BLOCK_VOLUMES, VolumeKind::Block))
                    .collect(),
                ips: list(IPS),
            }))
        };
        let work = match need(WORK)? {
            "step" => Work::Step,
            "adopt" => Work::Adopt(server()?),
            "delete" => release(How::Delete)?,
            "free" => release(How::Free(match (time(WIPE_SEEN_AT)?, time(WIPE_ASKED_AT)?) {
                (Some(at), _) => Wipe::Seen(at),
                (None, Some(at)) => Wipe::Asked(at),
                (None, None) => Wipe::Needed,
            }))?,
            other => return Err(bad(&format!("work {other}"))),
        };
        let last_attempt_at = intent.last_attempt_at.as_ref().map(|at| at.0);
        let attempt = match get(ATTEMPT) {
            None => None,
            Some(step) => Some(Attempt {
                step: step.to_owned(),
                id: need(ATTEMPT_ID)?.to_owned(),
                at: last_attempt_at.ok_or_else(|| bad("no lastAttemptAt"))?,
            }),
        };
        let refusal = match get(REFUSED) {
            None => None,
            Some(step) => Some(Refusal {
                step: step.to_owned(),
                reason: need(REASON)?.to_owned(),
                message: intent.message.clone().unwrap_or_default(),
                retry_at: time(RETRY_AT)?.ok_or_else(|| bad("no retryAt"))?,
            }),
        };
        Ok(Self {
            id: intent.id.clone().ok_or_else(|| bad("no id"))?,
            target: intent.target.clone(),
            started_at: intent.started_at.0,
            work,
            attempt,
            attempts: intent.attempts.unwrap_or_default(),
            last_attempt_at,
            refusal,
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

    fn any_work() -> impl Strategy<Value = Work> {
        let volume = |kind| "[a-f0-9-]{1,12}".prop_map(move |id| Volume { id, kind });
        let how = prop_oneof![
            Just(How::Delete),
            Just(How::Free(Wipe::Needed)),
            any_time().prop_map(|at| How::Free(Wipe::Seen(at))),
            any_time().prop_map(|at| How::Free(Wipe::Asked(at))),
        ];
        let release = (
            how,
            prop::collection::vec(volume(VolumeKind::Local), 0..3),
            prop::collection::vec(volume(VolumeKind::Block), 0..3),
            prop::collection::vec("[a-f0-9-]{1,12}", 0..3),
        );
        prop_oneof![
            Just(Work::Step),
            Just(Work::Adopt("s1".parse().unwrap())),
            release.prop_map(|(how, local, block, ips)| Work::Release(Release {
                server: "s1".parse().unwrap(),
                how,
                volumes: local.into_iter().chain(block).collect(),
                ips,
            })),
        ]
    }

    proptest! {
        /// Through JSON, as the API server keeps it.
        #[test]
        fn a_record_survives_the_api_server(
            work in any_work(), started in any_time(), attempt in prop::option::of(any_time()),
            refused in prop::option::of((any_time(), ".{1,40}")),
        ) {
            let mut journal = Journal::new("machine-uid=u", "id-1", work, started);
            if let Some(at) = attempt {
                journal = journal.attempting(&Call::Delete, "try-1", at);
            }
            if let (Some((retry_at, message)), None) = (refused, &journal.attempt) {
                journal.refusal = Some(Refusal { step: "create".into(), reason: "QuotaExceeded".into(), message, retry_at });
            }
            let text = serde_json::to_string(&Intent::from(&journal)).unwrap();
            let read: Intent = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(Journal::try_from(&read).unwrap(), journal);
        }
    }

    #[test]
    fn a_record_that_cannot_be_understood_is_not_guessed_at() {
        let release = Release {
            server: "s1".parse().unwrap(),
            how: How::Delete,
            volumes: Vec::new(),
            ips: Vec::new(),
        };
        let journal = Journal::new("s1", "id-1", Work::Release(release), Timestamp::UNIX_EPOCH);
        let good = Intent::from(&journal);
        let broken: [fn(&mut Intent); 4] = [
            |intent| drop(intent.parameters.insert(WORK.to_owned(), "dance".to_owned())),
            |intent| drop(intent.parameters.insert(SERVER.to_owned(), "a/b".to_owned())),
            |intent| intent.id = None,
            |intent| drop(intent.parameters.insert(ATTEMPT.to_owned(), "delete".to_owned())),
        ];
        for (index, breaks) in broken.into_iter().enumerate() {
            let mut intent = good.clone();
            breaks(&mut intent);
            let error = Journal::try_from(&intent).unwrap_err();
            assert!(error.to_string().contains("by hand"), "{index}: {error}");
        }
    }
}
