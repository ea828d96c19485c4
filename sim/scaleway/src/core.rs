//! The shell around the world: the lock, the clock, the faults, the journal.

use crate::boxes::{BoxEvent, Told};
use crate::call::{Call, Reply};
use crate::deed::{Deed, DeedError};
use crate::fault::{Act, Faults, too_many};
use crate::host::{HostChange, HostEvent};
use crate::ids::Id;
use crate::journal::Entry;
use crate::settings::Settings;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::world::World;
use http::Method;
use jiff::Timestamp;
use russet_sim_kit::control::Common;
use russet_sim_kit::wire::Outcome;
use russet_sim_kit::{Clock, Log, When};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// Requests that are kept.
const JOURNAL: usize = 200_000;
/// Events of a kind that are kept.
const EVENTS: usize = 10_000;

/// What everything shares.
#[derive(Debug)]
pub(crate) struct Core {
    state: Mutex<State>,
    /// Wakes the ticker: something may be due earlier than it thought.
    pub(crate) stirred: Notify,
    /// Wakes the keeper of the state file.
    pub(crate) dirty: Notify,
}

pub(crate) struct State {
    pub(crate) world: World,
    pub(crate) clock: Clock,
    pub(crate) faults: Faults,
    pub(crate) journal: Log<Entry>,
    pub(crate) events: Log<HostEvent>,
    told: Told,
    /// About Linux machines.
    pub(crate) box_events: Log<BoxEvent>,
    /// Calls per key in the present real second.
    windows: BTreeMap<String, (Instant, u32)>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn new(world: World, clock: Clock) -> Self {
        let mut world = world;
        let ids: Vec<Id> = world.apple.servers.iter().map(|server| server.id.clone()).collect();
        // Minis that were seeded announced themselves already.
        if world.announcements.is_empty() {
            for id in ids {
                world.announce(HostChange::Installed, &id);
            }
        }
        let core = Self {
            state: Mutex::new(State {
                world,
                clock,
                faults: Faults::default(),
                journal: Log::new(JOURNAL),
                events: Log::new(EVENTS),
                told: Told::default(),
                box_events: Log::new(EVENTS),
                windows: BTreeMap::new(),
            }),
            stirred: Notify::new(),
            dirty: Notify::new(),
        };
        core.tick();
        core
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere is reported there; the state itself is changed only by code that cannot be interrupted.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the present.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut State, Timestamp) -> R) -> R {
        let mut state = self.lock();
        let now = state.clock.now();
        state.world.settle(now);
        let result = look(&mut state, now);
        state.publish();
        result
    }

    /// Changes the present; what becomes due by it happens at once.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State, Timestamp) -> R) -> R {
        let result = {
            let mut state = self.lock();
            let now = state.clock.now();
            state.world.settle(now);
            let result = change(&mut state, now);
            let now = state.clock.now();
            state.world.settle(now);
            state.world.stirred = true;
            state.publish();
            result
        };
        self.stirred.notify_one();
        self.dirty.notify_one();
        result
    }

    /// Lets the present catch up with the clock.
    pub(crate) fn tick(&self) {
        self.look(|_, _| ());
    }

    /// Real time until something happens by itself.
    pub(crate) fn next_tick(&self) -> Option<Duration> {
        let state = self.lock();
        state
            .world
            .next_moment()
            .and_then(|moment| state.clock.real_time_until(moment))
    }

    /// One of the logs of events, as far as it is now.
    pub(crate) fn events<E: Clone>(&self, of: fn(&State) -> &Log<E>, after: u64) -> Vec<E> {
        of(&self.lock()).after(after)
    }

    /// The number of the last event, as it grows.
    pub(crate) fn last_event<E: Clone>(&self, of: fn(&State) -> &Log<E>) -> watch::Receiver<u64> {
        of(&self.lock()).subscribe()
    }

    /// Answers a call of a client.
    pub(crate) fn serve(&self, call: &Call) -> Outcome {
        if call.method == Method::GET {
            self.look(|state, now| state.serve(now, call))
        } else {
            self.change(|state, now| state.serve(now, call))
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.look(|state, now| Snapshot::new(now, state.world.clone()))
    }

    /// Puts another world in place of this one.
    pub(crate) fn restore(&self, snapshot: Snapshot) -> Result<(), SnapshotError> {
        let snapshot = snapshot.check()?;
        self.change(|state, _| {
            let minis =
                |world: &World| -> Vec<Id> { world.apple.servers.iter().map(|server| server.id.clone()).collect() };
            let old = minis(&state.world);
            for id in old.iter().filter(|id| snapshot.world.apple.servers.get(id).is_none()) {
                state.world.announce(HostChange::Gone, id);
            }
            let gone = std::mem::take(&mut state.world.announcements);
            state.clock.set(snapshot.now);
            state.world = snapshot.world;
            state.world.announcements = gone;
            for id in minis(&state.world) {
                state.world.announce(HostChange::Installed, &id);
            }
        });
        Ok(())
    }
}

impl State {
    pub(crate) fn common(&mut self) -> Common<'_, Settings, Act, Entry> {
        Common {
            clock: &mut self.clock,
            settings: &mut self.world.settings,
            faults: &mut self.faults,
            journal: &mut self.journal,
        }
    }

    /// Tells what happened since it was last told.
    fn publish(&mut self) {
        for (change, host) in std::mem::take(&mut self.world.announcements) {
            self.events.push(|number| HostEvent { number, change, host });
        }
        if std::mem::take(&mut self.world.stirred) {
            for (change, fields, row) in self.told.catch_up(self.world.boxes()) {
                self.box_events.push(|number| BoxEvent {
                    number,
                    change,
                    fields,
                    row,
                });
            }
        }
    }

    fn serve(&mut self, now: Timestamp, call: &Call) -> Outcome {
        let key = self.world.accounts.authenticate(call.token.as_deref(), now).ok();
        let access_key = key.map(|key| key.access_key.clone());
        let mut entry = Entry {
            number: 0,
            at: now,
            method: call.method.to_string(),
            path: call.path.clone(),
            query: call.query.clone(),
            status: 0,
            error: None,
            access_key,
            fault: None,
            reached: false,
        };
        let outcome = self.decide(now, call, &mut entry);
        if let Outcome::Reply(reply) = &outcome {
            entry.status = reply.status.as_u16();
        }
        self.journal.push(|number| Entry { number, ..entry });
        outcome
    }

    fn decide(&mut self, now: Timestamp, call: &Call, entry: &mut Entry) -> Outcome {
        if self.too_fast(entry.access_key.as_deref()) {
            return Outcome::Reply(too_many(1));
        }
        let struck = self
            .faults
            .strike(call.method.as_str(), &call.path, entry.access_key.as_deref());
        entry.fault = struck.as_ref().map(|(id, ..)| *id);
        let before = struck
            .as_ref()
            .filter(|(_, when, _)| *when == When::BeforeEffect)
            .map(|(.., act)| act);
        if let Some(act) = before {
            self.meanwhile(now, act);
            if let Some(instead) = act.instead() {
                return instead;
            }
        }
        entry.reached = true;
        let reply = self.world.answer(now, call).unwrap_or_else(|refusal| {
            entry.error = Some(refusal.kind().to_owned());
            Reply::from(&refusal)
        });
        if let Some((_, When::AfterEffect, act)) = &struck {
            self.meanwhile(now, act);
            if let Some(instead) = act.instead() {
                return instead;
            }
        }
        Outcome::Reply(reply)
    }

    /// Lets somebody else act. A deed that cannot be done any more is not done: the server may be gone already.
    fn meanwhile(&mut self, now: Timestamp, act: &Act) {
        let Act::Meanwhile(deeds) = act else { return };
        for deed in deeds {
            if let Err(error) = self.world.perform(now, deed.clone()) {
                tracing::warn!(%error, "a deed of a fault could not be done");
            }
        }
    }

    fn too_fast(&mut self, key: Option<&str>) -> bool {
        let Some(quota) = self.world.settings.rate_limit else {
            return false;
        };
        let window = self
            .windows
            .entry(key.unwrap_or_default().to_owned())
            .or_insert_with(|| (Instant::now(), 0));
        if window.0.elapsed() >= Duration::from_secs(1) {
            *window = (Instant::now(), 0);
        }
        window.1 = window.1.saturating_add(1);
        window.1 > quota
    }

    /// Does deeds, all or none of them.
    pub(crate) fn perform(&mut self, now: Timestamp, deeds: Vec<Deed>) -> Result<Vec<Id>, DeedError> {
        let mut world = self.world.clone();
        let mut made = Vec::new();
        for deed in deeds {
            made.extend(world.perform(now, deed)?);
        }
        self.world = world;
        Ok(made)
    }
}
