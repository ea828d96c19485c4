//! Where hosts are set up: a bounded number at a time, each in a task of its own.
//!
//! ```text
//!   Free ──start──▶ Running ──▶ Ended ──acknowledge──▶ Resting ──time──▶ Free
//!                      └── forget: told to stop, and nobody waits for how it ended
//! ```
//!
//! A result stays until the reconcile has written it down. After a restart nothing is here, and a set-up that was under way begins
//! again, which does no harm.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use russet_api::machine::{Step, StepState};
use russet_api::values::ServerId;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{Done, Failed, Progress, Trouble};
use crate::clock::Clock;
use crate::metrics::ProviderMetrics;
use crate::registry::{Key, Registry};

/// Progress is written to the API server at most this often.
const TELL_EVERY: Duration = Duration::from_secs(3);
/// No set-up takes longer; a bootstrapper has deadlines of its own for its steps.
const LONGEST: Duration = Duration::from_hours(2);

/// What is done for one host.
pub type Work = Box<dyn FnOnce(Progress, CancellationToken) -> BoxFuture<'static, Result<Done, Trouble>> + Send>;

/// The pool. Cheap to clone.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    limit: usize,
    retry: Duration,
    registry: Registry,
    metrics: ProviderMetrics,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    sender: UnboundedSender<Task>,
    receiver: Mutex<Option<UnboundedReceiver<Task>>>,
}

#[derive(Default)]
struct State {
    places: HashMap<String, Place>,
    waiting: VecDeque<Key>,
}

impl State {
    fn running(&self) -> usize {
        self.places
            .values()
            .filter(|place| matches!(place.what, What::Running { .. }))
            .count()
    }
}

struct Place {
    server: ServerId,
    steps: Vec<Step>,
    what: What,
}

enum What {
    Running { stop: CancellationToken, told: Instant },
    Ended(Arc<Result<Done, Trouble>>),
    Resting { until: Instant },
}

struct Task {
    uid: String,
    key: Key,
    stop: CancellationToken,
    work: Work,
}

/// How a host stands.
#[derive(Clone, Debug)]
pub enum Seat {
    /// It can be set up now.
    Free,
    /// Others come first; whoever asked for a place is woken.
    Full,
    /// It is being set up.
    Running(Vec<Step>),
    /// It was, and this is how that ended.
    Ended(Vec<Step>, Arc<Result<Done, Trouble>>),
    /// It failed, and is tried again after this long.
    Resting(Duration),
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("limit", &self.0.limit)
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// An empty pool. Nothing happens in it before [`Pool::run`].
    pub fn new(
        limit: usize,
        retry: Duration,
        registry: Registry,
        metrics: ProviderMetrics,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self(Arc::new(Inner {
            limit,
            retry,
            registry,
            metrics,
            clock,
            state: Mutex::default(),
            sender,
            receiver: Mutex::new(Some(receiver)),
        }))
    }

    /// How this machine's set-up of this host stands. What is known of another host is forgotten. If the pool is full, the machine
    /// stands in the queue from now on and is woken.
    pub fn seat(&self, uid: &str, key: &Key, server: &ServerId) -> Seat {
        self.ask(uid, server, Some(key))
    }

    /// The same for a machine that has no use for a place now: the place it would be woken for would be lost to those who have.
    pub fn look(&self, uid: &str, server: &ServerId) -> Seat {
        self.ask(uid, server, None)
    }

    fn ask(&self, uid: &str, server: &ServerId, queue: Option<&Key>) -> Seat {
        let mut state = self.lock();
        if state.places.get(uid).is_some_and(|place| place.server != *server) {
            drop(state);
            self.forget(uid);
            state = self.lock();
        }
        if let Some(Place { what, steps, .. }) = state.places.get(uid) {
            match what {
                What::Running { .. } => return Seat::Running(steps.clone()),
                What::Ended(result) => return Seat::Ended(steps.clone(), Arc::clone(result)),
                What::Resting { until } if *until > Instant::now() => {
                    return Seat::Resting(until.saturating_duration_since(Instant::now()));
                }
                What::Resting { .. } => {}
            }
        }
        if state.running() < self.0.limit {
            return Seat::Free;
        }
        if let Some(key) = queue
            && !state.waiting.contains(key)
        {
            state.waiting.push_back(key.clone());
        }
        Seat::Full
    }

    /// Whether something runs for this machine, or ran and was not written down yet.
    pub fn is_busy(&self, uid: &str) -> bool {
        let state = self.lock();
        matches!(
            state.places.get(uid).map(|place| &place.what),
            Some(What::Running { .. } | What::Ended(_))
        )
    }

    /// Begins, unless something is under way for this machine.
    pub fn start(&self, uid: &str, key: &Key, server: &ServerId, steps: Vec<Step>, work: Work) {
        let mut state = self.lock();
        let busy = matches!(
            state.places.get(uid).map(|place| &place.what),
            Some(What::Running { .. } | What::Ended(_))
        );
        if busy {
            return;
        }
        let stop = CancellationToken::new();
        let place = Place {
            server: server.clone(),
            steps,
            what: What::Running {
                stop: stop.clone(),
                told: Instant::now(),
            },
        };
        state.places.insert(uid.to_owned(), place);
        drop(state);
        // Fails only when the pool has ended, and then the process ends.
        let _ = self.0.sender.send(Task {
            uid: uid.to_owned(),
            key: key.clone(),
            stop,
            work,
        });
    }

    /// The result was written down. After a failure there is a rest.
    pub fn acknowledge(&self, uid: &str) {
        let mut state = self.lock();
        let Some(place) = state.places.get_mut(uid) else { return };
        let What::Ended(result) = &place.what else { return };
        let rest = match &**result {
            Ok(_) | Err(Trouble::NoCredentials | Trouble::Stopped) => None,
            Err(Trouble::Preparation(problem)) => Some(problem.retry),
            Err(Trouble::Host(_)) => Some(self.0.retry),
        };
        match rest {
            Some(rest) => {
                let until = Instant::now() + rest;
                place.what = What::Resting { until };
            }
            None => drop(state.places.remove(uid)),
        }
    }

    /// Whatever is under way for this machine is of no use any more.
    pub fn forget(&self, uid: &str) {
        if let Some(place) = self.lock().places.remove(uid)
            && let What::Running { stop, .. } = place.what
        {
            stop.cancel();
        }
    }

    /// Works until `stop`; what is under way is told to end.
    pub async fn run(self, stop: CancellationToken) {
        let receiver = self.0.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut receiver) = receiver else {
            stop.cancelled().await;
            return;
        };
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(task) = receiver.recv() => drop(tasks.spawn(self.clone().work(task))),
                Some(_) = tasks.join_next() => {}
            }
        }
        for place in self.lock().places.values() {
            if let What::Running { stop, .. } = &place.what {
                stop.cancel();
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn work(self, task: Task) {
        let Task { uid, key, stop, work } = task;
        self.0.metrics.bootstrap_started();
        let progress = {
            let (pool, uid, key) = (self.clone(), uid.clone(), key.clone());
            Progress::new(move |name, state, message| pool.step(&uid, &key, name, state, message))
        };
        let work = std::panic::AssertUnwindSafe(work(progress, stop.clone())).catch_unwind();
        let result = match tokio::time::timeout(LONGEST, work).await {
            Ok(Ok(_)) if stop.is_cancelled() => Err(Trouble::Stopped),
            Ok(Ok(result)) => result,
            Ok(Err(_)) => {
                error!(machine = %key, "setting up a host panicked");
                Err(failed("a bug in the provider; see its log"))
            }
            Err(_) => Err(failed("it took more than two hours and was given up")),
        };
        self.0.metrics.bootstrap_ended(match &result {
            Ok(done) if done.looked => "looked",
            Ok(_) => "ok",
            Err(Trouble::Host(_)) => "failed",
            Err(Trouble::Preparation(_) | Trouble::NoCredentials) => "not_started",
            Err(Trouble::Stopped) => "stopped",
        });
        let next: Vec<Key> = {
            let mut state = self.lock();
            // Whoever forgot it does not want to hear of it; it may have been begun anew by now.
            if let Some(place) = state.places.get_mut(&uid)
                && matches!(place.what, What::Running { .. })
                && !stop.is_cancelled()
            {
                place.what = What::Ended(Arc::new(result));
            }
            // One for each free place, not only for this one: a machine that was woken may have no use for it any more.
            let free = self.0.limit.saturating_sub(state.running()).min(state.waiting.len());
            state.waiting.drain(..free).collect()
        };
        for key in std::iter::once(key).chain(next) {
            self.0.registry.wake(&key);
        }
    }

    fn step(&self, uid: &str, key: &Key, name: &str, state: StepState, message: Option<String>) {
        let now = self.0.clock.now();
        let tell = {
            let mut pool = self.lock();
            let Some(place) = pool.places.get_mut(uid) else { return };
            note_step(&mut place.steps, name, state, message, now);
            match &mut place.what {
                What::Running { told, .. } if told.elapsed() >= TELL_EVERY => {
                    *told = Instant::now();
                    true
                }
                _ => false,
            }
        };
        if tell {
            self.0.registry.wake(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(message: &str) -> Trouble {
    Trouble::Host(Failed {
        step: "bootstrap".to_owned(),
        message: message.to_owned(),
        fingerprint: None,
    })
}

/// Writes down that a step is in this state now.
pub(crate) fn note_step(steps: &mut Vec<Step>, name: &str, state: StepState, message: Option<String>, now: Timestamp) {
    let index = steps.iter().position(|step| step.name == name).unwrap_or_else(|| {
        steps.push(Step {
            name: name.to_owned(),
            state: StepState::Pending,
            started_at: None,
            finished_at: None,
            deadline: None,
            attempts: None,
            output_tail: None,
            message: None,
        });
        steps.len() - 1
    });
    let Some(step) = steps.get_mut(index) else { return };
    match state {
        StepState::Running => {
            step.started_at = Some(Time(now));
            step.finished_at = None;
            step.attempts = Some(step.attempts.unwrap_or_default().saturating_add(1));
        }
        StepState::Succeeded | StepState::Failed | StepState::Skipped => step.finished_at = Some(Time(now)),
        _ => {}
    }
    step.state = state;
    // The last line tells; what led to it is kept beside it.
    let text = message.unwrap_or_default();
    let text = text.trim();
    let last = text.lines().last().map(str::to_owned).filter(|line| !line.is_empty());
    step.output_tail = Some(text.to_owned()).filter(|text| text.contains('\n'));
    step.message = last;
}

#[cfg(test)]
mod tests;
