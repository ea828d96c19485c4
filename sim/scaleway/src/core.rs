//! The shell around the world: the lock, the clock, the faults, the journal.

use crate::boxes::{BoxEvent, Told};
use crate::call::{Call, Reply};
use crate::deed::{Deed, DeedError};
use crate::fault::{Act, Faults, Instead, too_many};
use crate::feed::Feed;
use crate::host::{HostChange, HostEvent};
use crate::ids::Id;
use crate::journal::{Entry, Journal};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::world::World;
use http::Method;
use jiff::Timestamp;
use russet_sim_kit::When;
use russet_sim_kit::clock::Clock;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// What everything shares.
#[derive(Debug)]
pub(crate) struct Core {
    state: Mutex<State>,
    /// Wakes the ticker: something may be due earlier than it thought.
    pub(crate) stirred: Notify,
    /// Wakes the keeper of the state file.
    pub(crate) dirty: Notify,
    /// The number of the last event.
    pub(crate) events: watch::Sender<u64>,
    /// The number of the last event about a Linux machine.
    pub(crate) box_events: watch::Sender<u64>,
}

pub(crate) struct State {
    pub(crate) world: World,
    pub(crate) clock: Clock,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    events: Feed<HostEvent>,
    told: Told,
    box_events: Feed<BoxEvent>,
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

/// What the wire does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Reply(Reply),
    Cut,
    Hang,
}

impl From<Instead> for Outcome {
    fn from(instead: Instead) -> Self {
        match instead {
            Instead::Reply(reply) => Self::Reply(reply),
            Instead::Cut => Self::Cut,
            Instead::Hang => Self::Hang,
        }
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
                journal: Journal::default(),
                events: Feed::default(),
                told: Told::default(),
                box_events: Feed::default(),
                windows: BTreeMap::new(),
            }),
            stirred: Notify::new(),
            dirty: Notify::new(),
            events: watch::Sender::new(0),
            box_events: watch::Sender::new(0),
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
        self.publish(&mut state);
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
            self.publish(&mut state);
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

    fn publish(&self, state: &mut State) {
        for (change, host) in std::mem::take(&mut state.world.announcements) {
            state.events.push(|number| HostEvent { number, change, host });
        }
        state.events.tell(&self.events);
        if std::mem::take(&mut state.world.stirred) {
            self.publish_boxes(state);
        }
    }

    fn publish_boxes(&self, state: &mut State) {
        for (change, fields, row) in state.told.catch_up(state.world.boxes()) {
            state.box_events.push(|number| BoxEvent {
                number,
                change,
                fields,
                row,
            });
        }
        state.box_events.tell(&self.box_events);
    }

    /// Events about Linux machines after a number.
    pub(crate) fn box_events_after(&self, number: u64) -> Vec<BoxEvent> {
        self.lock().box_events.after(number)
    }

    /// Events after a number.
    pub(crate) fn events_after(&self, number: u64) -> Vec<HostEvent> {
        self.lock().events.after(number)
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
            let old: Vec<Id> = state
                .world
                .apple
                .servers
                .iter()
                .map(|server| server.id.clone())
                .collect();
            for id in old.iter().filter(|id| snapshot.world.apple.servers.get(id).is_none()) {
                state.world.announce(HostChange::Gone, id);
            }
            let gone = std::mem::take(&mut state.world.announcements);
            state.clock.set(snapshot.now);
            state.world = snapshot.world;
            state.world.announcements = gone;
            let present: Vec<Id> = state
                .world
                .apple
                .servers
                .iter()
                .map(|server| server.id.clone())
                .collect();
            for id in present {
                state.world.announce(HostChange::Installed, &id);
            }
        });
        Ok(())
    }
}

impl State {
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
        self.journal.add(entry);
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
                return instead.into();
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
                return instead.into();
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
