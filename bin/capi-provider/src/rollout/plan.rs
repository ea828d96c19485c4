//! The plan for a fleet: who may be updated now, and what everybody else waits for.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::host::{Host, later};
use super::policy::Policy;
use super::verdict::{Verdict, Wait};

/// What to do about each host of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    verdicts: BTreeMap<String, Verdict>,
    /// When time alone changes something; none if only an event does.
    pub wake: Option<Timestamp>,
}

impl Plan {
    /// What to do about this host.
    pub fn verdict(&self, name: &str) -> Option<&Verdict> {
        self.verdicts.get(name)
    }

    /// Whether this host may be updated now.
    pub fn is_update(&self, name: &str) -> bool {
        matches!(self.verdict(name), Some(Verdict::Update { .. }))
    }

    /// All verdicts, by name.
    pub fn verdicts(&self) -> impl Iterator<Item = (&str, &Verdict)> {
        self.verdicts.iter().map(|(name, verdict)| (name.as_str(), verdict))
    }

    /// The hosts that may be updated now.
    pub fn updates(&self) -> impl Iterator<Item = &str> {
        let update = |(name, verdict)| matches!(verdict, &Verdict::Update { .. }).then_some(name);
        self.verdicts().filter_map(update)
    }
}

/// How a configuration fares so far.
#[derive(Debug, Default)]
struct Cohort {
    /// Hosts that should have it.
    size: usize,
    /// Hosts that have it, are well, and proved it.
    proved: usize,
    /// Hosts that have it, are well, and still have to prove it, with the time when they will have.
    soaking: Vec<(Timestamp, String)>,
    /// Hosts that get it for the first time right now, those of this plan included.
    trying: Vec<String>,
    /// Hosts on which it failed, or that have it and do not serve.
    failing: Vec<String>,
    /// Hosts among these that have it for so short a time that they cannot serve yet.
    starting: usize,
    /// Hosts that do not have it, those that get it right now apart.
    without: usize,
    /// Hosts among these that are lost.
    lost: usize,
}

impl Cohort {
    fn accept(&mut self, host: &Host, policy: &Policy, now: Timestamp) {
        self.size += 1;
        if host.drifted() {
            self.without += usize::from(!host.updating);
            self.lost += usize::from(!host.updating && host.is_lost(policy, now));
            if host.is_failing() {
                self.failing.push(host.name.clone());
            } else if host.updating {
                self.trying.push(host.name.clone());
            }
        } else if host.ready {
            // When it became so is not known yet: it has everything before it.
            let since = host.changed.unwrap_or(now).min(now);
            let proved_at = later(since, policy.soak);
            if proved_at <= now {
                self.proved += 1;
            } else {
                self.soaking.push((proved_at, host.name.clone()));
            }
        } else {
            // It took the configuration and does not serve.
            self.failing.push(host.name.clone());
            let young = |since: Timestamp| later(since.min(now), policy.lost_after) > now;
            self.starting += usize::from(host.changed.is_none_or(young));
        }
    }

    /// Whether every host that would get the configuration is lost, as all are when the API server has moved and what they have names
    /// the old place. Care protects what serves, and none of them does.
    fn protects_nobody(&self) -> bool {
        self.without > 0 && self.lost == self.without
    }

    /// How many hosts must have proved the configuration.
    fn needed(&self, policy: &Policy) -> usize {
        policy.canary.at_least(self.size).min(self.size)
    }

    /// Whether a host that never had this configuration may get it, and whether as a canary.
    fn admit(&self, policy: &Policy) -> Result<bool, Wait> {
        let limit = policy.pause_failures.at_least(self.size);
        // Hosts that were lost a moment ago have not had the time to serve again.
        let excused = if self.protects_nobody() { self.starting } else { 0 };
        if limit > 0 && self.failing.len().saturating_sub(excused) >= limit {
            return Err(Wait::Failing {
                hosts: self.failing.clone(),
            });
        }
        if self.protects_nobody() {
            return Ok(false);
        }
        let needed = self.needed(policy);
        if self.proved >= needed {
            return Ok(false);
        }
        if self.proved + self.soaking.len() + self.trying.len() < needed {
            return Ok(true);
        }
        if self.trying.is_empty() {
            // The last of those that are needed decides.
            let missing = needed.saturating_sub(self.proved).saturating_sub(1);
            if let Some((until, _)) = self.soaking.get(missing) {
                return Err(Wait::Soak {
                    hosts: self.soaking.iter().map(|(_, name)| name.clone()).collect(),
                    until: *until,
                });
            }
        }
        Err(Wait::Canary {
            hosts: self.trying.clone(),
        })
    }
}

/// Makes the plan. The order of the hosts does not matter.
pub fn plan(hosts: &[Host], policy: &Policy, now: Timestamp) -> Plan {
    let mut hosts: Vec<&Host> = hosts.iter().collect();
    hosts.sort_by(|a, b| a.name.cmp(&b.name));
    let fleet: Vec<&Host> = hosts
        .iter()
        .copied()
        .filter(|host| host.set_up && !host.deleting)
        .collect();
    let mut cohorts: BTreeMap<&str, Cohort> = BTreeMap::new();
    for host in &fleet {
        cohorts.entry(&host.desired).or_default().accept(host, policy, now);
    }
    for cohort in cohorts.values_mut() {
        cohort.soaking.sort();
    }
    let allowed = policy.max_unavailable.at_most(fleet.len()).max(1);
    let mut unavailable = fleet.iter().filter(|host| !host.ready || host.updating).count();

    let mut plan = Plan::default();
    let mut due: Vec<&Host> = Vec::new();
    for host in hosts {
        match standing(host, policy, now) {
            Some(verdict) => drop(plan.verdicts.insert(host.name.clone(), verdict)),
            None => due.push(host),
        }
    }
    due.sort_by_key(|host| {
        let cohort = cohorts.get(host.desired.as_str());
        turn(host, cohort.is_some_and(|cohort| cohort.proved < cohort.needed(policy)))
    });
    for host in due {
        let Some(cohort) = cohorts.get_mut(host.desired.as_str()) else {
            continue;
        };
        let budget = if host.ready && unavailable >= allowed {
            Err(Wait::Budget { unavailable, allowed })
        } else {
            Ok(())
        };
        let first = !host.is_failing();
        // Whoever failed before tries nothing new.
        let admitted = if first { cohort.admit(policy) } else { Ok(false) };
        // Of the Pods of a lost Node nobody hears that they are done.
        let patience = if cohort.protects_nobody() {
            Ok(())
        } else {
            patience(host, policy, now)
        };
        let verdict = match admitted.and_then(|canary| patience.and(budget).map(|()| canary)) {
            Ok(canary) => {
                unavailable += usize::from(host.ready);
                if first {
                    cohort.trying.push(host.name.clone());
                }
                Verdict::Update { canary }
            }
            Err(wait) => Verdict::Wait(wait),
        };
        plan.verdicts.insert(host.name.clone(), verdict);
    }
    let waits = plan.verdicts.values().filter_map(|verdict| match verdict {
        Verdict::Wait(wait) => wait.until(),
        _ => None,
    });
    plan.wake = waits.min();
    plan
}

/// The verdict about a host that needs no look at the others.
fn standing(host: &Host, policy: &Policy, now: Timestamp) -> Option<Verdict> {
    let tries = host.attempts;
    Some(Verdict::Wait(if host.deleting {
        Wait::Deleting
    } else if !host.set_up {
        Wait::NotSetUp
    } else if host.updating {
        Wait::Updating
    } else if !host.drifted() {
        return Some(Verdict::UpToDate);
    } else if host.paused {
        Wait::Paused
    } else if let Some(until) = host.given_up_until(policy, now) {
        Wait::GaveUp { tries, until }
    } else if let Some(at) = host.retry_at(policy, now) {
        Wait::Retry { tries, at }
    } else {
        return None;
    }))
}

/// Whether a busy host was waited for long enough.
fn patience(host: &Host, policy: &Policy, now: Timestamp) -> Result<(), Wait> {
    let Some(work) = &host.work else {
        return Ok(());
    };
    let until = later(work.since.min(now), policy.busy_patience);
    if until > now {
        Err(Wait::Busy {
            pods: work.pods.clone(),
            until,
        })
    } else {
        Ok(())
    }
}

/// Whose turn is first: hosts that cost nothing, then idle ones, then busy ones. A canary should be well to begin with. Whoever
/// failed before comes last, so that a broken host does not stand in the way of the others.
fn turn(host: &Host, canary: bool) -> (bool, u8, &str) {
    let class = match (host.work.is_some(), host.ready) {
        (false, false) if canary => 2,
        (false, false) => 0,
        (false, true) => 1,
        (true, _) => 3,
    };
    (host.is_failing(), class, &host.name)
}
