//! The shell around the world: the lock, the clock, the faults, the limits, the journal.

use crate::call::Call;
use crate::deed::{Deed, DeedError};
use crate::fault::{Act, Faults};
use crate::journal::Entry;
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use russet_sim_kit::control::Common;
use russet_sim_kit::wire::{Outcome, Reply};
use russet_sim_kit::{Clock, Log, When};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The version this emulator speaks.
const VERSION: &str = "2022-11-28";

/// Requests that are kept.
const JOURNAL: usize = 100_000;

/// What everything shares.
pub(crate) struct Core(Mutex<State>);

/// The world holds tokens, and whoever prints a handle does not want them.
impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

pub(crate) struct State {
    pub(crate) world: World,
    pub(crate) clock: Clock,
    pub(crate) faults: Faults,
    pub(crate) journal: Log<Entry>,
    limits: Limits,
}

impl Core {
    pub(crate) fn new(world: World, clock: Clock) -> Self {
        Self(Mutex::new(State {
            world,
            clock,
            faults: Faults::default(),
            journal: Log::new(JOURNAL),
            limits: Limits::default(),
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere is reported there; the state itself is changed only by code that cannot be interrupted.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// GitHub's time.
    pub(crate) fn now(&self) -> Timestamp {
        let skew = SignedDuration::from_secs(self.world.settings.skew_seconds);
        let now = self.clock.now();
        now.checked_add(skew).unwrap_or(now)
    }

    pub(crate) fn common(&mut self) -> Common<'_, Settings, Act, Entry> {
        Common {
            clock: &mut self.clock,
            settings: &mut self.world.settings,
            faults: &mut self.faults,
            journal: &mut self.journal,
        }
    }

    /// Does deeds, all or none of them.
    pub(crate) fn perform(&mut self, deeds: Vec<Deed>) -> Result<(), DeedError> {
        let now = self.now();
        let mut world = self.world.clone();
        for deed in deeds {
            world.perform(now, deed)?;
        }
        self.world = world;
        Ok(())
    }

    /// Answers a call of a client.
    pub(crate) fn serve(&mut self, call: &Call) -> Outcome {
        let now = self.now();
        let mut entry = Entry {
            number: 0,
            at: now,
            method: call.method.to_string(),
            path: call.path.clone(),
            query: call.query.clone(),
            status: 0,
            message: None,
            bearer: None,
            fault: None,
        };
        let mut outcome = self.decide(now, call, &mut entry);
        if let Outcome::Reply(reply) = &mut outcome {
            entry.status = reply.status.as_u16();
            let number = self.journal.last() + 1;
            reply.headers.extend([
                ("date", now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()),
                ("x-github-request-id", format!("5171:{number:04X}")),
                ("x-github-api-version-selected", VERSION.to_owned()),
                ("x-github-media-type", "github.v3; format=json".to_owned()),
            ]);
        }
        self.journal.push(|number| Entry { number, ..entry });
        outcome
    }

    fn decide(&mut self, now: Timestamp, call: &Call, entry: &mut Entry) -> Outcome {
        let struck = self.faults.strike(call.method.as_str(), &call.path, None);
        entry.fault = struck.as_ref().map(|(id, ..)| *id);
        if let Some((_, When::BeforeEffect, act)) = &struck {
            self.meanwhile(act);
            if let Some(instead) = act.instead(now) {
                return instead;
            }
        }
        let reply = self.reply(now, call, entry).unwrap_or_else(|refusal| {
            entry.message = Some(refusal.message.clone());
            refusal.reply()
        });
        if let Some((_, When::AfterEffect, act)) = &struck {
            self.meanwhile(act);
            if let Some(instead) = act.instead(now) {
                return instead;
            }
        }
        Outcome::Reply(reply)
    }

    fn reply(&mut self, now: Timestamp, call: &Call, entry: &mut Entry) -> Result<Reply, Refusal> {
        if call.header("user-agent").is_none_or(str::is_empty) {
            let why =
                "Request forbidden by administrative rules. Please make sure your request has a User-Agent header";
            return Ok(Reply::text(403, "text/plain", why));
        }
        self.check_headers(call)?;
        let caller = self.world.caller(now, call)?;
        let who = caller.name();
        entry.bearer = Some(who.clone());
        let left = self.limits.count(&who, self.world.settings.hourly_limit, now);
        if left.spent() {
            return Err(Refusal::primary_limit(403, &who, left.reset));
        }
        let mut reply = match self.world.answer(now, caller, call) {
            Ok(reply) => reply,
            Err(refusal) => {
                entry.message = Some(refusal.message.clone());
                refusal.reply()
            }
        };
        reply.headers.extend(left.headers());
        Ok(reply)
    }

    fn check_headers(&self, call: &Call) -> Result<(), Refusal> {
        match call.header("x-github-api-version") {
            Some(VERSION) => {}
            Some(other) => {
                let message = format!("\"{other}\" is not a supported version. Supported versions: \"{VERSION}\".");
                return Err(Refusal::new(400, message));
            }
            None if self.world.settings.require_api_version => {
                return Err(Refusal::new(400, "the X-GitHub-Api-Version header is missing"));
            }
            None => {}
        }
        let accept = call.header("accept").unwrap_or("*/*");
        if !["application/vnd.github+json", "application/json", "*/*"].contains(&accept) {
            let message = format!("Unsupported 'Accept' header: [{accept}]. Must accept 'application/json'.");
            return Err(Refusal::new(415, message));
        }
        Ok(())
    }

    /// Lets somebody else act. A deed that cannot be done any more is not done.
    fn meanwhile(&mut self, act: &Act) {
        let Act::Meanwhile(deeds) = act else { return };
        if let Err(error) = self.perform(deeds.clone()) {
            tracing::warn!(%error, "a deed of a fault could not be done");
        }
    }
}
