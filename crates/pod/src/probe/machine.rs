//! The probes of one instance of a container.

use super::{Answer, Kind};
use crate::facts::{ContainerFacts, Unhealthy};
use crate::time::{after, seconds};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Probe};
use std::time::Duration;

/// The probes of one instance of a container. A new instance has new ones.
#[derive(Clone, Debug)]
pub struct Probes {
    since: Timestamp,
    startup: Option<Course>,
    liveness: Option<Course>,
    readiness: Option<Course>,
    /// The container is being ended, and only its readiness still matters.
    ending: bool,
}

/// One probe and what it has said so far.
#[derive(Clone, Debug)]
struct Course {
    probe: Probe,
    delay: Duration,
    period: Duration,
    successes: u32,
    failures: u32,
    /// When it was last asked.
    asked: Option<Timestamp>,
    /// How often in a row it has given the same answer.
    run: u32,
    last: Option<bool>,
    /// What counts.
    passed: bool,
    gave_up: bool,
}

/// A probe to ask.
#[derive(Clone, Debug)]
pub struct Due<'a> {
    /// Which.
    pub kind: Kind,
    /// Not before.
    pub at: Timestamp,
    /// How.
    pub probe: &'a Probe,
    /// How long it may take.
    pub timeout: Duration,
}

/// What an answer has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The container has come up.
    Started,
    /// It can be given work.
    Ready,
    /// It cannot any more.
    NotReady,
    /// It has to be ended.
    Unhealthy(Kind),
}

impl Course {
    fn new(probe: &Probe, passed: bool) -> Self {
        let count = |value: Option<i32>, default: u32| {
            value
                .and_then(|value| u32::try_from(value).ok())
                .filter(|value| *value > 0)
                .unwrap_or(default)
        };
        Self {
            probe: probe.clone(),
            delay: seconds(probe.initial_delay_seconds.unwrap_or(0).into()),
            period: Duration::from_secs(count(probe.period_seconds, 10).into()),
            successes: count(probe.success_threshold, 1),
            failures: count(probe.failure_threshold, 3),
            asked: None,
            run: 0,
            last: None,
            passed,
            gave_up: false,
        }
    }

    fn due(&self, kind: Kind, since: Timestamp) -> Option<Due<'_>> {
        let first = after(since, self.delay);
        let at = self.asked.map_or(first, |asked| after(asked, self.period));
        let timeout = seconds(self.probe.timeout_seconds.unwrap_or(1).max(1).into());
        (!self.gave_up).then_some(Due {
            kind,
            at,
            probe: &self.probe,
            timeout,
        })
    }

    /// Counts an answer. Returns whether what counts has changed.
    fn observe(&mut self, answer: &Answer, asked: Timestamp) -> Option<bool> {
        self.asked = Some(asked);
        let good = match answer {
            Answer::Good => true,
            Answer::Bad(_) => false,
            // Thrown away: neither a success nor a failure, and no break in a row of either.
            Answer::Unknown(_) => return None,
        };
        self.run = if self.last == Some(good) {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.last = Some(good);
        let enough = if good { self.successes } else { self.failures };
        (self.run >= enough).then_some(good)
    }
}

impl Probes {
    /// For an instance that runs since then.
    pub fn new(container: &Container, since: Timestamp) -> Self {
        let course = |probe: &Option<Probe>, passed| probe.as_ref().map(|probe| Course::new(probe, passed));
        Self {
            since,
            startup: course(&container.startup_probe, false),
            liveness: course(&container.liveness_probe, true),
            readiness: course(&container.readiness_probe, false),
            ending: false,
        }
    }

    /// For an instance that an earlier agent started: what it knew stays true until a probe says otherwise.
    pub fn adopted(container: &Container, since: Timestamp, facts: &ContainerFacts) -> Self {
        let mut probes = Self::new(container, since);
        if let Some(course) = &mut probes.startup {
            course.passed = facts.startup_passed;
        }
        if let Some(course) = &mut probes.readiness {
            course.passed = facts.readiness_passed;
        }
        probes
    }

    /// Its startup probe has passed, or there is none.
    pub fn started(&self) -> bool {
        self.startup.as_ref().is_none_or(|course| course.passed)
    }

    /// Its readiness probe has passed, or there is none; and it has come up.
    pub fn ready(&self) -> bool {
        self.started() && self.readiness.as_ref().is_none_or(|course| course.passed)
    }

    /// Which probe gave up on it.
    pub fn unhealthy(&self) -> Option<Unhealthy> {
        let all = [(Kind::Startup, &self.startup), (Kind::Liveness, &self.liveness)];
        all.into_iter().find_map(|(probe, course)| {
            let course = course.as_ref().filter(|course| course.gave_up)?;
            let grace = course.probe.termination_grace_period_seconds.map(seconds);
            Some(Unhealthy { probe, grace })
        })
    }

    /// Writes what counts into the facts.
    pub fn report(&self, facts: &mut ContainerFacts) {
        facts.startup_passed = self.started();
        facts.readiness_passed = self.ready();
        facts.unhealthy = self.unhealthy();
    }

    /// The container is being ended: whether it is alive is no question any more, and it is still told when it is not ready.
    pub fn end(&mut self) {
        self.ending = true;
    }

    /// What to ask next. Until the startup probe has passed nothing else is asked.
    pub fn due(&self) -> Option<Due<'_>> {
        self.courses().min_by_key(|due| due.at)
    }

    /// Everything to ask, each at its own time, so that a slow answer to one holds up no other. A clock that went back holds
    /// nobody up either: a question that is further away than its delay or its period is asked now.
    pub fn dues(&self, now: Timestamp) -> Vec<Due<'_>> {
        let mut dues: Vec<_> = self.courses().collect();
        for due in &mut dues {
            let delay = seconds(due.probe.initial_delay_seconds.unwrap_or(0).into());
            let period = seconds(due.probe.period_seconds.unwrap_or(10).max(1).into());
            // Not "at most so far away", which would move ahead of whoever waits for it.
            if due.at > after(now, delay.max(period)) {
                due.at = now;
            }
        }
        dues
    }

    fn courses(&self) -> impl Iterator<Item = Due<'_>> {
        let starting = self.startup.as_ref().filter(|course| !course.passed);
        let gated = starting.is_some();
        let startup = starting.filter(|_| !self.ending);
        let liveness = self.liveness.as_ref().filter(|_| !gated && !self.ending);
        let readiness = self.readiness.as_ref().filter(|_| !gated);
        let all = [
            (Kind::Startup, startup),
            (Kind::Liveness, liveness),
            (Kind::Readiness, readiness),
        ];
        all.into_iter()
            .filter_map(|(kind, course)| course?.due(kind, self.since))
    }

    /// Takes the answer to a probe that was asked at this time.
    pub fn observe(&mut self, kind: Kind, answer: &Answer, asked: Timestamp) -> Option<News> {
        let was_ready = self.ready();
        let course = match kind {
            Kind::Startup => self.startup.as_mut(),
            Kind::Liveness => self.liveness.as_mut(),
            Kind::Readiness => self.readiness.as_mut(),
        }?;
        let counts = course.observe(answer, asked)?;
        match (kind, counts) {
            (Kind::Startup, true) => {
                let first = !course.passed;
                course.passed = true;
                first.then_some(News::Started)
            }
            (Kind::Startup | Kind::Liveness, false) if !self.ending => {
                let first = !course.gave_up;
                course.gave_up = true;
                first.then_some(News::Unhealthy(kind))
            }
            (Kind::Readiness, passed) => {
                course.passed = passed;
                match (was_ready, self.ready()) {
                    (false, true) => Some(News::Ready),
                    (true, false) => Some(News::NotReady),
                    _ => None,
                }
            }
            (Kind::Startup | Kind::Liveness, _) => None,
        }
    }
}
