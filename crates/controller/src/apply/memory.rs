//! What we applied last, and whether it has to be applied again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::api::DynamicObject;
use tokio::time::Instant;

use super::Target;

/// An object with pruned fields is applied again after this time although nothing changed: upgrading its CRD changes no object,
/// so only trying tells (incident `crd-pruning`).
pub(crate) const PRUNED_RETRY: Duration = Duration::from_secs(15);

/// Forgetting costs one needless request per object, so the bound is generous and the clean-up crude.
const MAX_ENTRIES: usize = 100_000;

/// The live object, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known<'a> {
    pub(crate) uid: &'a str,
    pub(crate) version: &'a str,
    /// The digest in its annotation.
    pub(crate) hash: Option<&'a str>,
    /// Whether everything desired is in it.
    pub(crate) subset: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is as we want it; these fields are known to be missing.
    Skip { pruned: Vec<String> },
    /// Send it.
    Write,
}

#[derive(Debug, Clone)]
struct Entry {
    hash: String,
    uid: String,
    version: String,
    pruned: Vec<String>,
    at: Instant,
}

#[derive(Debug)]
pub(crate) struct Memory {
    entries: Mutex<HashMap<Target, Entry>>,
    pruned_retry: Duration,
}

impl Memory {
    pub(crate) fn new(pruned_retry: Duration) -> Self {
        Self {
            entries: Mutex::default(),
            pruned_retry,
        }
    }

    pub(crate) fn verdict(&self, target: &Target, hash: &str, live: Option<&Known<'_>>, now: Instant) -> Verdict {
        decide(hash, live, self.lock().get(target), now, self.pruned_retry)
    }

    pub(crate) fn remember(
        &self,
        target: &Target,
        hash: &str,
        object: &DynamicObject,
        pruned: &[String],
        now: Instant,
    ) {
        let mut entries = self.lock();
        if entries.len() >= MAX_ENTRIES {
            entries.clear();
        }
        let entry = Entry {
            hash: hash.to_owned(),
            uid: object.metadata.uid.clone().unwrap_or_default(),
            version: object.metadata.resource_version.clone().unwrap_or_default(),
            pruned: pruned.to_vec(),
            at: now,
        };
        entries.insert(target.clone(), entry);
    }

    pub(crate) fn forget(&self, target: &Target) {
        self.lock().remove(target);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Target, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn decide(
    hash: &str,
    live: Option<&Known<'_>>,
    entry: Option<&Entry>,
    now: Instant,
    pruned_retry: Duration,
) -> Verdict {
    let Some(live) = live else { return Verdict::Write };
    // The uid ties memory to this very object: one that was deleted and made again is not the one we remember.
    if let Some(entry) = entry.filter(|entry| entry.uid == live.uid && entry.hash == hash) {
        let due = !entry.pruned.is_empty() && now.duration_since(entry.at) >= pruned_retry;
        if !due && (live.version == entry.version || is_older(live.version, &entry.version)) {
            return Verdict::Skip {
                pruned: entry.pruned.clone(),
            };
        }
    }
    if live.subset && live.hash == Some(hash) {
        return Verdict::Skip { pruned: Vec::new() };
    }
    Verdict::Write
}

/// Whether a resourceVersion is older than another, which tells that a cache lags behind our own write. Kubernetes promises
/// that they are comparable numbers since 1.35; anything that is no number counts as not older, which costs a request.
fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u128>(), than.parse::<u128>()), (Ok(version), Ok(than)) if version < than)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(version: &str) -> Known<'_> {
        Known {
            uid: "u",
            version,
            hash: Some("h"),
            subset: true,
        }
    }

    fn entry(version: &str, at: Instant) -> Entry {
        Entry {
            hash: "h".into(),
            uid: "u".into(),
            version: version.into(),
            pruned: Vec::new(),
            at,
        }
    }

    fn skip() -> Verdict {
        Verdict::Skip { pruned: Vec::new() }
    }

    #[test]
    fn an_object_is_written_exactly_when_it_has_to_be() {
        let now = Instant::now();
        let known = |change: fn(&mut Known<'static>)| {
            let mut known = live("5");
            change(&mut known);
            known
        };
        let unlike = known(|k| k.subset = false);
        let table: Vec<(&str, Option<Known<'_>>, Option<Entry>, Verdict)> = vec![
            ("absent", None, None, Verdict::Write),
            ("absent though remembered", None, Some(entry("5", now)), Verdict::Write),
            ("after a restart, as we left it", Some(live("5")), None, skip()),
            (
                "after a restart, without a digest",
                Some(known(|k| k.hash = None)),
                None,
                Verdict::Write,
            ),
            (
                "after a restart, older desire",
                Some(known(|k| k.hash = Some("old"))),
                None,
                Verdict::Write,
            ),
            (
                "after a restart, changed by another",
                Some(unlike.clone()),
                None,
                Verdict::Write,
            ),
            (
                "the version our write led to",
                Some(unlike.clone()),
                Some(entry("5", now)),
                skip(),
            ),
            (
                "the cache lags behind our write",
                Some(unlike.clone()),
                Some(entry("10", now)),
                skip(),
            ),
            (
                "changed by another after our write",
                Some(unlike.clone()),
                Some(entry("4", now)),
                Verdict::Write,
            ),
            (
                "touched by another, ours intact",
                Some(live("5")),
                Some(entry("4", now)),
                skip(),
            ),
            (
                "made again under the same name",
                Some(known(|k| {
                    k.uid = "v";
                    k.subset = false;
                })),
                Some(entry("10", now)),
                Verdict::Write,
            ),
            (
                "versions that are no numbers",
                Some(Known {
                    version: "x",
                    ..unlike.clone()
                }),
                Some(entry("y", now)),
                Verdict::Write,
            ),
        ];
        for (name, live, entry, verdict) in table {
            assert_eq!(
                decide("h", live.as_ref(), entry.as_ref(), now, PRUNED_RETRY),
                verdict,
                "{name}"
            );
        }
    }

    #[test]
    fn pruned_fields_are_tried_again_after_a_while_and_reported_meanwhile() {
        let now = Instant::now();
        let entry = Entry {
            pruned: vec!["spec.x".into()],
            ..entry("5", now)
        };
        let unlike = Known {
            subset: false,
            ..live("5")
        };
        assert_eq!(
            decide("h", Some(&unlike), Some(&entry), now, PRUNED_RETRY),
            Verdict::Skip {
                pruned: vec!["spec.x".into()]
            }
        );
        assert_eq!(
            decide("h", Some(&unlike), Some(&entry), now + PRUNED_RETRY, PRUNED_RETRY),
            Verdict::Write
        );
    }

    #[test]
    fn a_new_desire_is_written_whatever_is_remembered() {
        let now = Instant::now();
        assert_eq!(
            decide("new", Some(&live("5")), Some(&entry("5", now)), now, PRUNED_RETRY),
            Verdict::Write
        );
    }
}
