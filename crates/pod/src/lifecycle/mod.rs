//! What runs next: from the spec and the facts to actions, without doing anything.
//!
//! ```text
//!   prepare ─▶ init 1 ─▶ sidecar (up) ─▶ init 2 ─▶ main containers ─▶ all done ─▶ sidecars, last first ─▶ finish
//!                        └───────────── restarted after a back-off, as the policies say ──┘
//!   deletion, deadline, eviction ─▶ main containers stop ─▶ sidecars, last first ─▶ finish
//! ```
//!
//! [`next`] is called after every change and at [`Plan::wake`]. An action is given again until the facts show that it was
//! begun, so none is lost when an agent dies between the decision and the deed.
//!
//! What is promised, and held by the property tests:
//! - never two instances of a container, and never more starts than there is room for;
//! - stops come before starts, so that a host at its limit gets room first;
//! - an init container starts when all before it are done, a main container when all of them are;
//! - a Pod that is being ended starts nothing, and finishes once nothing of it is live.

mod plan;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use plan::{Action, Plan, Room, Stop, StopWhy};

use crate::backoff;
use crate::evict;
use crate::facts::{ContainerFacts, Ending, Hook, PodFacts, State, Unhealthy, Why};
use crate::spec::{self, Kind};
use crate::time::{after, left, seconds};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::time::Duration;

/// What a container is given to end at least, however long its hook took.
pub const LEAST_GRACE: Duration = Duration::from_secs(2);

/// What a container is given to end after its hook, which left so much of the time of both.
pub fn after_hook(left: Duration) -> Duration {
    left.max(LEAST_GRACE)
}

/// How a Pod ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every container did what it was to do.
    Succeeded,
    /// One did not, and will not be started again.
    Failed,
}

/// Whether the Pod came to its end by itself: nothing is to be started again. Sidecars may still run.
pub fn outcome(pod: &Pod, facts: &PodFacts) -> Option<Outcome> {
    let mut failed = false;
    for (kind, container) in spec::containers(pod).filter(|(kind, _)| *kind != Kind::Sidecar) {
        let known = facts.container(&container.name);
        let exit = match &known.state {
            State::Exited(exit) if !known.replaced && !spec::restarts(pod, kind, container, exit.code) => exit,
            _ if kind == Kind::Init => continue,
            _ => return None,
        };
        if kind == Kind::Init && exit.code != 0 {
            return Some(Outcome::Failed);
        }
        failed |= exit.code != 0;
    }
    Some(if failed { Outcome::Failed } else { Outcome::Succeeded })
}

/// Whether a container is up: it runs, its hook is done and its startup probe has passed.
pub fn is_started(container: &Container, facts: &ContainerFacts) -> bool {
    let hook = spec::post_start(container).is_none() || facts.post_start == Hook::Done;
    let probe = container.startup_probe.is_none() || facts.startup_passed;
    matches!(facts.state, State::Running { .. }) && hook && probe
}

/// What to do next.
pub fn next(pod: &Pod, facts: &PodFacts, room: Room, now: Timestamp) -> Plan {
    let ending = ending(pod, facts, now);
    let mut decision = Decision {
        pod,
        facts,
        now,
        free: room.free,
        plan: Plan::default(),
    };
    if let Some(ending) = &ending {
        decision.wind_down(Some(ending));
    } else if outcome(pod, facts).is_some() {
        decision.wind_down(None);
    } else if facts.prepared {
        decision.care();
        decision.advance();
    } else {
        decision.plan.actions.push(Action::Prepare);
    }
    // One that has passed changes nothing any more: the Pod is done, and only its sidecars are still being stopped.
    let deadline = active_deadline(pod, facts).filter(|deadline| *deadline > now);
    if let Some(deadline) = deadline.filter(|_| ending.is_none()) {
        decision.wake(deadline);
    }
    let mut plan = decision.plan;
    if ending != facts.ending {
        plan.ending = ending;
    }
    plan
}

/// How long a container that an earlier agent told to end may still take. [`next`] does not give that stop again, since it was
/// begun; whoever goes on with the VM has to see to it.
pub fn left_to_stop(pod: &Pod, facts: &PodFacts, container: &str, now: Timestamp) -> Option<Duration> {
    let known = facts.container(container);
    let told = known.stopping?;
    let granted = match (&facts.ending, &known.unhealthy) {
        (Some(ending), _) => ending.grace,
        (None, Some(Unhealthy { grace: Some(grace), .. })) => *grace,
        _ => spec::grace(pod),
    };
    // Also when the clock went back: nobody gets more than was granted.
    Some(left(now, told).min(granted.max(LEAST_GRACE)))
}

/// Why the Pod ends, if it does: what is known already, or what is seen now. A deletion only ever shortens.
fn ending(pod: &Pod, facts: &PodFacts, now: Timestamp) -> Option<Ending> {
    let deleted = pod.metadata.deletion_timestamp.is_some().then(|| {
        let asked = pod.metadata.deletion_grace_period_seconds.map(seconds);
        asked.unwrap_or_else(|| spec::grace(pod))
    });
    let Some(mut ending) = facts.ending.clone() else {
        let expired = || {
            let passed = active_deadline(pod, facts).is_some_and(|deadline| now >= deadline);
            (passed && outcome(pod, facts).is_none()).then(|| Ending::new(Why::DeadlineExceeded, spec::grace(pod), now))
        };
        return deleted
            .map(|grace| Ending::new(Why::Deleted, grace, now))
            .or_else(expired);
    };
    ending.grace = deleted.map_or(ending.grace, |grace| grace.min(ending.grace));
    // Also when the clock went back: nobody gets more than was granted.
    ending.deadline = ending.deadline.min(after(now, ending.grace));
    Some(ending)
}

/// How a Pod that has to go ends, if that is news: without delay, since the disk is full. One that ends already has no longer than that
/// any more, and keeps its cause. One that is done, and has sidecars left, keeps what it did: it is ended as if it were deleted.
pub fn evicted(pod: &Pod, facts: &PodFacts, why: Why, now: Timestamp) -> Option<Ending> {
    match &facts.ending {
        Some(ending) => (ending.grace > evict::GRACE).then(|| Ending {
            grace: evict::GRACE,
            deadline: ending.deadline.min(after(now, evict::GRACE)),
            ..ending.clone()
        }),
        None if outcome(pod, facts).is_none() => Some(Ending::new(why, evict::GRACE, now)),
        None => (facts.live() > 0).then(|| Ending::new(Why::Deleted, evict::GRACE, now)),
    }
}

fn active_deadline(pod: &Pod, facts: &PodFacts) -> Option<Timestamp> {
    let allowed = pod.spec.as_ref()?.active_deadline_seconds?;
    Some(after(facts.started?, seconds(allowed)))
}

struct Decision<'a> {
    pod: &'a Pod,
    facts: &'a PodFacts,
    now: Timestamp,
    free: usize,
    plan: Plan,
}

impl Decision<'_> {
    fn wake(&mut self, at: Timestamp) {
        self.plan.wake = Some(self.plan.wake.map_or(at, |wake| wake.min(at)));
    }

    /// Stops everything, sidecars after all others and in reverse, and finishes when nothing is left.
    fn wind_down(&mut self, ending: Option<&Ending>) {
        if self.facts.live() == 0 {
            self.plan.actions.push(Action::Finish);
            return;
        }
        let late = ending.is_some_and(|ending| self.now >= ending.deadline);
        let why = match ending {
            Some(ending) => StopWhy::PodEnds(ending.why.clone()),
            None => StopWhy::PodDone,
        };
        let deadline = ending.map_or_else(|| after(self.now, spec::grace(self.pod)), |ending| ending.deadline);
        let mut waits = false;
        let live = |kinds: &'static [Kind]| {
            spec::containers(self.pod)
                .filter(move |(kind, _)| kinds.contains(kind))
                .filter(|(_, container)| self.facts.container(&container.name).state.is_live())
                .map(|(_, container)| container)
        };
        let others: Vec<_> = live(&[Kind::Init, Kind::Main]).collect();
        let sidecars: Vec<_> = live(&[Kind::Sidecar]).rev().collect();
        for container in others {
            waits = true;
            self.stop(container, why.clone(), deadline);
        }
        for container in sidecars {
            if !waits || late {
                self.stop(container, why.clone(), deadline);
            }
            waits = true;
        }
        if let Some(ending) = ending.filter(|_| !late) {
            self.wake(ending.deadline);
        }
    }

    /// Hooks after a start, and containers that must end because of themselves.
    fn care(&mut self) {
        for (kind, container) in spec::containers(self.pod) {
            let facts = self.facts.container(&container.name);
            if !facts.state.is_live() || facts.stopping.is_some() {
                continue;
            }
            if kind != Kind::Init && facts.is_outdated(container.image.as_deref()) {
                self.stop(container, StopWhy::Changed, after(self.now, spec::grace(self.pod)));
                continue;
            }
            if !matches!(facts.state, State::Running { .. }) {
                continue;
            }
            let hook = spec::post_start(container);
            if let Some(unhealthy) = &facts.unhealthy {
                let grace = unhealthy.grace.unwrap_or_else(|| spec::grace(self.pod));
                self.stop(container, StopWhy::Unhealthy(unhealthy.probe), after(self.now, grace));
            } else if let Hook::Failed(message) = &facts.post_start {
                let why = StopWhy::PostStartFailed(message.clone());
                self.stop(container, why, after(self.now, spec::grace(self.pod)));
            } else if let (Hook::Waiting, Some(hook)) = (&facts.post_start, hook) {
                self.plan.actions.push(Action::PostStart {
                    container: container.name.clone(),
                    hook: hook.clone(),
                });
            }
        }
    }

    /// Starts what comes next, and again what ended and should not have.
    fn advance(&mut self) {
        let all: Vec<_> = spec::containers(self.pod).collect();
        let begun = |(_, container): &(Kind, &Container)| self.facts.container(&container.name).was_begun();
        let initialized = all.iter().filter(|(kind, _)| *kind == Kind::Main).any(begun);
        for (index, (kind, container)) in all.iter().enumerate() {
            let facts = self.facts.container(&container.name);
            let passed = match kind {
                Kind::Main => true,
                Kind::Init => initialized || matches!(&facts.state, State::Exited(exit) if exit.code == 0),
                // One that went down later does not hold up what has come after it.
                Kind::Sidecar => {
                    is_started(container, facts) || facts.was_begun() && all.iter().skip(index + 1).any(begun)
                }
            };
            let over = *kind == Kind::Init && passed;
            if !facts.state.is_live() && !over {
                self.start(*kind, container, facts);
            }
            if !passed {
                return;
            }
        }
    }

    fn start(&mut self, kind: Kind, container: &Container, facts: &ContainerFacts) {
        let (ready, attempt) = match &facts.state {
            State::Exited(exit) => {
                if !facts.replaced && !spec::restarts(self.pod, kind, container, exit.code) {
                    return;
                }
                let waits = facts.crash.after_exit(exit.finished, self.now);
                (waits.filter(|_| !facts.replaced), facts.restarts.saturating_add(1))
            }
            State::Stuck(stuck) => {
                // No wait is longer than the longest one, so one that seems to be was set by a clock that has gone back.
                let waits = self.now < stuck.retry && stuck.retry <= after(self.now, backoff::LONGEST);
                // What was wrong with another image is no reason to wait either.
                let waits = waits && !facts.is_outdated(container.image.as_deref());
                (Some(stuck.retry).filter(|_| waits), facts.restarts)
            }
            _ => (None, facts.restarts),
        };
        let container = container.name.clone();
        if let Some(ready) = ready {
            self.wake(ready);
        } else if let Some(free) = self.free.checked_sub(1) {
            self.free = free;
            self.plan.actions.push(Action::Start { container, attempt });
        } else {
            self.plan.held.push(container);
        }
    }

    fn stop(&mut self, container: &Container, why: StopWhy, wanted: Timestamp) {
        let facts = self.facts.container(&container.name);
        let runs = matches!(facts.state, State::Running { .. });
        // A VM that is not up yet has nobody inside to be polite to.
        let deadline = if runs {
            wanted.max(after(self.now, LEAST_GRACE))
        } else {
            self.now
        };
        if facts.stopping.is_some_and(|told| told <= deadline) {
            return;
        }
        let stop = Stop {
            container: container.name.clone(),
            why,
            deadline,
            grace: left(self.now, deadline),
            pre_stop: spec::pre_stop(container)
                .filter(|_| runs && facts.stopping.is_none())
                .cloned(),
        };
        // In front of every start, in the order of the decisions.
        let before = self
            .plan
            .actions
            .iter()
            .take_while(|action| matches!(action, Action::Stop(_)))
            .count();
        self.plan.actions.insert(before, Action::Stop(stop));
    }
}
