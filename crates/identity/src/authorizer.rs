//! The decision about a request.
//!
//! [`Authorizer::decide_now`] is for the thread that reads requests: it never waits and, once a credential is known,
//! neither allocates nor computes anything expensive. A signature is checked on the first sight of a token only. When
//! someone else has to be asked it says so, and [`Authorizer::decide`] or [`Authorizer::decide_then`] do the asking on a
//! tokio runtime, one question per credential however many requests wait for it.

mod inner;

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::inner::{Booking, Inner, watch_files};
use crate::backend::Backend;
use crate::clock::{Clock, Moment};
use crate::config::{Config, Error, SignedTokens};
use crate::credential::Credential;
use crate::denial::{Denial, Refusal};
use crate::evidence::{Backing, Judgement, Rules, UNAVAILABLE};
use crate::memory::{Flight, Landing, Memory};
use crate::observer::{CacheResult, Observer, Reload, Route, Stage, Verdict};
use crate::scope::{Access, Scope};
use crate::verifiers::{Files, Verifiers};

/// How often key and token files are looked at.
pub const RELOAD_EVERY: Duration = Duration::from_secs(2);

/// Most credentials being asked about at once, waiting ones included. Beyond it the answer is 503 at once: a flood of
/// made-up tokens must not pile up work.
const MAX_FLIGHTS: usize = 1024;

/// Most rounds a request waits. Each round brings an answer about its credential, so two are enough; the rest is slack
/// for entries that were pushed out in between.
const MAX_ROUNDS: usize = 4;

/// What follows for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// Go on.
    Allow,
    /// Answer with this.
    Deny(Denial),
    /// Nobody knows yet: ask with [`Authorizer::decide`].
    NeedsBackend,
}

/// Decides. Cheap to clone; all clones share what they learn.
#[derive(Clone, Debug)]
pub struct Authorizer {
    inner: Arc<Inner>,
}

impl Authorizer {
    /// Reads files and keys, and starts watching them. Background work runs on `runtime`; [`Authorizer::shutdown`] ends it.
    pub fn new(
        config: Config,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
        runtime: Handle,
    ) -> Result<Self, Error> {
        config.validate()?;
        let backend = config.control_plane.as_ref().map(Backend::new).transpose()?;
        let backing = match &backend {
            None => Backing::Nobody,
            Some(backend) if backend.introspects() => Backing::Both,
            Some(_) => Backing::AccessOnly,
        };
        let files = Files::read(&config)?;
        let inner = Arc::new(Inner {
            checks: config.checks_credentials(),
            rules: Rules {
                memory: config.memory,
                backing,
                introspect_signed: config
                    .jwt
                    .as_ref()
                    .is_some_and(|jwt| jwt.signed_tokens == SignedTokens::AlsoIntrospect),
            },
            verifiers: RwLock::new(Verifiers::build(&config, &files)?),
            files: Mutex::new(files.digest()),
            generation: AtomicU64::new(0),
            memory: Memory::new(config.memory.entries),
            backend,
            flights: AtomicUsize::new(0),
            clock,
            observer,
            runtime,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            config,
        });
        if Files::named_by(&inner.config) {
            let watch = watch_files(Arc::downgrade(&inner), inner.stop.clone());
            inner.tasks.spawn_on(watch, &inner.runtime);
        }
        Ok(Self { inner })
    }

    /// Whether credentials are looked at. If not, the tenant of a request is not compared either.
    pub fn checks_credentials(&self) -> bool {
        self.inner.checks
    }

    /// The decision, if it can be made without waiting. Call it with the credential of the request, if it has one.
    pub fn decide_now(
        &self,
        credential: Option<&Credential<'_>>,
        scope: &Scope<'_>,
        access: Access,
        now: Moment,
    ) -> Decision {
        let inner = &*self.inner;
        let (judgement, remembered) = inner.look(credential, scope, access, now);
        if remembered {
            inner.observer.cache(match &judgement {
                Judgement::Ask(_) => CacheResult::Miss,
                Judgement::Allow { refresh: Some(_), .. } => CacheResult::Stale,
                Judgement::Allow { .. } | Judgement::Deny { .. } => CacheResult::Hit,
            });
        }
        match judgement {
            Judgement::Allow { stage, refresh } => {
                if let (Some(route), Some(credential)) = (refresh, credential) {
                    self.refresh(credential, scope, access, route);
                }
                inner.observer.decision(stage, Verdict::Allow, None);
                Decision::Allow
            }
            Judgement::Deny { stage, denial } => {
                inner.observer.decision(stage, verdict(&denial), None);
                Decision::Deny(denial)
            }
            Judgement::Ask(_) => Decision::NeedsBackend,
        }
    }

    /// The decision, after asking whoever has to be asked. Cancel-safe: an answer under way is still learned from.
    pub async fn decide(
        &self,
        credential: Option<&Credential<'_>>,
        scope: &Scope<'_>,
        access: Access,
    ) -> Result<(), Denial> {
        let inner = &*self.inner;
        let started = inner.clock.now().instant;
        let mut settled = (Stage::Backend, Err(UNAVAILABLE));
        for _ in 0..MAX_ROUNDS {
            let (judgement, _) = inner.look(credential, scope, access, inner.clock.now());
            let route = match judgement {
                Judgement::Allow { stage, refresh } => {
                    if let (Some(route), Some(credential)) = (refresh, credential) {
                        self.refresh(credential, scope, access, route);
                    }
                    settled = (stage, Ok(()));
                    break;
                }
                Judgement::Deny { stage, denial } => {
                    settled = (stage, Err(denial));
                    break;
                }
                Judgement::Ask(route) => route,
            };
            let Some((mut landing, same)) =
                credential.and_then(|credential| self.join_or_start(credential, scope, access, route))
            else {
                break;
            };
            // The sender is dropped when the flight ends, however it ends.
            let landed = landing
                .wait_for(Option::is_some)
                .await
                .ok()
                .and_then(|landing| landing.clone());
            if let (true, Some(landed)) = (same, landed) {
                settled = landed;
                break;
            }
        }
        let waited = inner.clock.now().instant.saturating_duration_since(started);
        let outcome = settled.1.as_ref().map_or_else(verdict, |()| Verdict::Allow);
        inner.observer.decision(settled.0, outcome, Some(waited));
        settled.1
    }

    /// [`Authorizer::decide`] for a thread without a runtime: `then` is called on the runtime with the decision.
    pub fn decide_then(
        &self,
        credential: Option<Credential<'static>>,
        scope: Scope<'static>,
        access: Access,
        then: impl FnOnce(Result<(), Denial>) + Send + 'static,
    ) {
        let this = self.clone();
        let task = async move { then(this.decide(credential.as_ref(), &scope, access).await) };
        self.inner.tasks.spawn_on(task, &self.inner.runtime);
    }

    /// What to answer when the request has no valid scope: a missing credential is complained about first, so that
    /// nobody without one learns how the parameters are read.
    pub fn refuse_unscoped(&self, credential: Option<&Credential<'_>>, scope_denial: Denial) -> Denial {
        let anonymous = self.inner.config.anonymous.permits(Access::Read);
        if self.inner.checks && credential.is_none() && !anonymous {
            Denial::missing_header()
        } else {
            scope_denial
        }
    }

    /// Reads key and token files again if they changed. If the new content is not valid, the old one stays in force.
    /// Happens every two seconds by itself; call it to have it at once. Blocks on the file system.
    pub fn reload(&self) -> Result<Reload, Error> {
        self.inner.reload()
    }

    /// Forgets all answers, say because memory is short. Costs questions, changes no decision.
    pub fn forget(&self) {
        self.inner.memory.clear();
    }

    /// How many credentials are remembered.
    pub fn remembered(&self) -> usize {
        self.inner.memory.len()
    }

    /// Ends background work: waits for questions under way (they have timeouts) and stops watching files.
    pub async fn shutdown(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    fn refresh(&self, credential: &Credential<'_>, scope: &Scope<'_>, access: Access, route: Route) {
        // Dropping the receiver is fine: the flight files what it learns.
        drop(self.join_or_start(credential, scope, access, route));
    }

    /// A flight about this credential, and whether it is about this very target. None if there are too many.
    fn join_or_start(
        &self,
        credential: &Credential<'_>,
        scope: &Scope<'_>,
        access: Access,
        route: Route,
    ) -> Option<(watch::Receiver<Landing>, bool)> {
        let inner = &self.inner;
        let fingerprint = *credential.fingerprint();
        let mut shard = inner.memory.shard(&fingerprint)?;
        if let Some(flight) = shard.flights.get(&fingerprint) {
            let same = flight.access == access && flight.scope == *scope;
            return Some((flight.landing.clone(), same));
        }
        let booking = Booking::try_new(inner.clone(), fingerprint)?;
        let (announce, landing) = watch::channel(None);
        let scope = scope.clone().into_owned();
        if let Some(vacant) = shard.vacant(fingerprint) {
            vacant.insert(Flight {
                scope: scope.clone(),
                access,
                landing: landing.clone(),
            });
        }
        drop(shard);
        let credential = credential.clone().into_owned();
        let flight = async move {
            let landed = booking.inner.fly(&credential, &scope, access, route).await;
            // Taken off the board first: whoever looks after the announcement must not join a flight that is over.
            drop(booking);
            announce.send_replace(Some(landed));
        };
        inner.tasks.spawn_on(flight, &inner.runtime);
        Some((landing, true))
    }
}

fn verdict(denial: &Denial) -> Verdict {
    match denial.refusal() {
        Refusal::Unavailable => Verdict::Unavailable,
        _ => Verdict::Deny,
    }
}
