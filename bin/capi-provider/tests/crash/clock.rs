//! The clock of a world. It runs like a real one, stands still while a lost call is on its way, and steps over the time in which such
//! a call may arrive: a provider that waits for that goes on at once, and the call arrived before.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use russet_capi_provider::clock::Clock;
use russet_sim_scaleway::Handle;

/// What is longer than any wait in these tests but one for lost calls.
const LONG: Duration = Duration::from_secs(3);
/// How much later a lost call arrives that no follower waits for: within the time that calls may be in flight, and late enough for a
/// follower that did not wait to have done everything by then.
const LATE: Duration = Duration::from_secs(5);
/// How soon a provider that waits for lost calls asks again.
const SOON: Duration = Duration::from_millis(20);

/// Whether time is stepped over. Two providers at once have calls on their way that are not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Steps,
    Real,
}

#[derive(Default)]
struct State {
    ahead: SignedDuration,
    /// The time since the first call that is lost now.
    frozen: Option<Timestamp>,
}

#[derive(Clone)]
pub(crate) struct WorldClock {
    pub(crate) pace: Pace,
    sim: Handle,
    state: Arc<Mutex<State>>,
    /// Locked as long as they arrive: no step is made meanwhile.
    lost: Arc<tokio::sync::Mutex<Vec<BoxFuture<'static, ()>>>>,
}

impl std::fmt::Debug for WorldClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorldClock")
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

impl WorldClock {
    pub(crate) fn new(sim: &Handle, pace: Pace) -> Self {
        Self {
            pace,
            sim: sim.clone(),
            state: Arc::default(),
            lost: Arc::default(),
        }
    }

    /// The sender of this call dies now. The call arrives when a follower waits for it, or believes that all is done.
    pub(crate) async fn lose(&self, call: BoxFuture<'static, ()>) {
        if self.pace == Pace::Real {
            tokio::spawn(async move {
                tokio::time::sleep(LATE).await;
                call.await;
            });
            return;
        }
        let mut lost = self.lost.lock().await;
        let now = self.now();
        self.state.lock().unwrap().frozen = Some(now);
        lost.push(call);
        let clock = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LATE).await;
            let frozen = clock.state.lock().unwrap().frozen;
            if frozen == Some(now) {
                clock.arrive().await;
            }
        });
    }

    /// All lost calls arrive, and time goes on.
    pub(crate) async fn arrive(&self) {
        self.pass_to(self.now()).await;
    }

    /// All lost calls arrive, and then so much time passes.
    pub(crate) async fn pass(&self, by: Duration) {
        self.pass_to(self.now() + by).await;
    }

    async fn pass_to(&self, moment: Timestamp) {
        let mut lost = self.lost.lock().await;
        for call in lost.drain(..) {
            call.await;
        }
        let now = self.now();
        let then = moment.max(now);
        {
            let mut state = self.state.lock().unwrap();
            state.frozen = None;
            state.ahead = then.duration_since(Timestamp::now());
        }
        self.sim.advance(then.duration_since(now).unsigned_abs());
    }
}

impl Clock for WorldClock {
    fn now(&self) -> Timestamp {
        let state = self.state.lock().unwrap();
        state.frozen.unwrap_or_else(|| Timestamp::now() + state.ahead)
    }

    fn requeue_at(&self, moment: Timestamp) -> Duration {
        let left = moment.duration_since(self.now()).try_into().unwrap_or_default();
        let lost = self.state.lock().unwrap().frozen.is_some();
        if self.pace == Pace::Real || !lost && left < LONG {
            return left;
        }
        let clock = self.clone();
        tokio::spawn(async move { clock.pass_to(moment).await });
        SOON
    }
}
