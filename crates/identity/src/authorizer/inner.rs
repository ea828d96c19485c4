//! What the clones of an authoriser share: the judgement of a request, the questions, the files.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{MAX_FLIGHTS, MAX_ROUNDS, RELOAD_EVERY};
use crate::backend::Backend;
use crate::clock::{Clock, Moment};
use crate::config::{Config, Error};
use crate::credential::{Credential, Fingerprint};
use crate::denial::{Denial, Refusal};
use crate::evidence::{Entry, FORBIDDEN, INVALID, Judgement, Rules, UNAVAILABLE};
use crate::memory::Memory;
use crate::observer::{Observer, Reload, Route, Stage};
use crate::scope::{Access, Scope};
use crate::verifiers::{Files, Verifiers};

const READ_ONLY: Denial = Denial::fixed(Refusal::Forbidden, "This cache is read-only");
const OTHER_TENANT: Denial = Denial::fixed(Refusal::Forbidden, "This node does not serve this account");

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) config: Config,
    pub(super) checks: bool,
    pub(super) rules: Rules,
    pub(super) verifiers: RwLock<Verifiers>,
    /// Of the files the verifiers were made from; held while they are read again.
    pub(super) files: Mutex<[u8; 32]>,
    pub(super) generation: AtomicU64,
    pub(super) memory: Memory,
    pub(super) backend: Option<Backend>,
    pub(super) flights: AtomicUsize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) runtime: Handle,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

/// A place among the flights, given back when the flight ends, also by a panic or a runtime that shuts down.
pub(super) struct Booking {
    pub(super) inner: Arc<Inner>,
    fingerprint: Fingerprint,
}

impl Booking {
    pub(super) fn try_new(inner: Arc<Inner>, fingerprint: Fingerprint) -> Option<Self> {
        let free = |flights| (flights < MAX_FLIGHTS).then_some(flights + 1);
        inner
            .flights
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, free)
            .ok()?;
        Some(Self { inner, fingerprint })
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        self.inner.flights.fetch_sub(1, Ordering::Relaxed);
        if let Some(mut shard) = self.inner.memory.shard(&self.fingerprint) {
            shard.flights.remove(&self.fingerprint);
        }
    }
}

impl Inner {
    /// The judgement, and whether the memory of answers had a part in it.
    pub(super) fn look(
        &self,
        credential: Option<&Credential<'_>>,
        scope: &Scope<'_>,
        access: Access,
        now: Moment,
    ) -> (Judgement, bool) {
        let settle = |stage: Stage, result: Result<(), Denial>| match result {
            Ok(()) => Judgement::Allow { stage, refresh: None },
            Err(denial) => Judgement::Deny { stage, denial },
        };
        let anonymous = self.config.anonymous.permits(access);
        if !self.checks {
            let result = if anonymous { Ok(()) } else { Err(READ_ONLY) };
            return (settle(Stage::Anonymous, result), false);
        }
        if credential.is_none() && !anonymous {
            return (settle(Stage::Anonymous, Err(Denial::missing_header())), false);
        }
        if self
            .config
            .tenant
            .as_ref()
            .is_some_and(|tenant| tenant.as_str() != scope.account())
        {
            return (settle(Stage::Tenant, Err(OTHER_TENANT)), false);
        }
        let Some(credential) = credential else {
            return (settle(Stage::Anonymous, Ok(())), false);
        };
        if self.config.tokens.is_some() {
            let verifiers = self.verifiers();
            if let Some(grants) = verifiers.tokens.find(credential.fingerprint()) {
                let result = if grants.permit(scope, access) {
                    Ok(())
                } else {
                    Err(FORBIDDEN)
                };
                return (settle(Stage::Static, result), false);
            }
            if self.config.jwt.is_none() && self.backend.is_none() {
                return (settle(Stage::Static, Err(INVALID)), false);
            }
        }
        (self.remember(credential, scope, access, now), true)
    }

    fn remember(&self, credential: &Credential<'_>, scope: &Scope<'_>, access: Access, now: Moment) -> Judgement {
        let fingerprint = credential.fingerprint();
        let generation = self.generation.load(Ordering::Acquire);
        if let Some(mut shard) = self.memory.shard(fingerprint)
            && let Some(entry) = shard.entry(fingerprint)
            && entry.stands(generation, now.instant, &self.rules)
        {
            return entry.judge(scope, access, now.instant, &self.rules);
        }
        // The signature is checked outside the lock. Another thread may have been faster, and may even have learned
        // something since, which must not be lost.
        let entry = self.fresh_entry(credential, now);
        let Some(mut shard) = self.memory.shard(fingerprint) else {
            return entry.judge(scope, access, now.instant, &self.rules);
        };
        if let Some(held) = shard.entry(fingerprint)
            && held.stands(generation, now.instant, &self.rules)
        {
            return held.judge(scope, access, now.instant, &self.rules);
        }
        let judgement = entry.judge(scope, access, now.instant, &self.rules);
        shard.file(*fingerprint, entry);
        judgement
    }

    fn fresh_entry(&self, credential: &Credential<'_>, now: Moment) -> Entry {
        // Read before the keys: if they change in between, the entry counts as checked with the old ones.
        let generation = self.generation.load(Ordering::Acquire);
        let verifiers = self.verifiers();
        let signed = verifiers.jwt.verify(credential.token(), now.unix_seconds);
        Entry::new(signed, now, generation)
    }

    /// Asks until the request is settled, and files what is learned.
    pub(super) async fn fly(
        &self,
        credential: &Credential<'_>,
        scope: &Scope<'_>,
        access: Access,
        first: Route,
    ) -> (Stage, Result<(), Denial>) {
        let nobody = (Stage::Backend, Err(UNAVAILABLE));
        let Some(backend) = &self.backend else {
            return nobody;
        };
        let mut route = first;
        for _ in 0..MAX_ROUNDS {
            let asked = self.clock.now();
            let answer = backend.ask(route, credential.token(), &*self.observer).await;
            let now = self.clock.now();
            let fingerprint = credential.fingerprint();
            let Some(mut shard) = self.memory.shard(fingerprint) else {
                return nobody;
            };
            let generation = self.generation.load(Ordering::Acquire);
            let entry = shard
                .take(fingerprint)
                .filter(|entry| entry.stands(generation, now.instant, &self.rules));
            // Rare: the entry was pushed out, or the keys changed, while the question was under way.
            let mut entry = entry.unwrap_or_else(|| self.fresh_entry(credential, now));
            match answer {
                Ok(answer) => entry.learn(route, asked, now, answer, &self.rules),
                Err(_) => entry.learn_silence(now.instant, &self.rules),
            }
            let judgement = entry.judge(scope, access, now.instant, &self.rules);
            shard.file(*fingerprint, entry);
            drop(shard);
            match judgement {
                Judgement::Allow { stage, .. } => return (stage, Ok(())),
                Judgement::Deny { stage, denial } => return (stage, Err(denial)),
                Judgement::Ask(next) => route = next,
            }
        }
        nobody
    }

    fn verifiers(&self) -> RwLockReadGuard<'_, Verifiers> {
        self.verifiers.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reload(&self) -> Result<Reload, Error> {
        // One reader at a time, or an older reading could win over a newer one.
        let mut digest = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |_: &Error| self.observer.reload(Reload::Failed);
        let files = Files::read(&self.config).inspect_err(failed)?;
        if *digest == files.digest() {
            self.observer.reload(Reload::Unchanged);
            return Ok(Reload::Unchanged);
        }
        let verifiers = Verifiers::build(&self.config, &files).inspect_err(failed)?;
        *digest = files.digest();
        *self.verifiers.write().unwrap_or_else(PoisonError::into_inner) = verifiers;
        self.generation.fetch_add(1, Ordering::Release);
        self.observer.reload(Reload::Applied);
        Ok(Reload::Applied)
    }
}

/// Looks at the files every two seconds. Complains once per kind of failure, not every time.
pub(super) async fn watch_files(inner: Weak<Inner>, stop: CancellationToken) {
    let mut complained = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RELOAD_EVERY) => {}
        }
        let Some(reader) = inner.upgrade() else {
            return;
        };
        match tokio::task::spawn_blocking(move || reader.reload()).await {
            Ok(Ok(Reload::Applied)) => {
                complained = None;
                tracing::info!("key and token files changed; the new content is in force");
            }
            Ok(Ok(_)) => complained = None,
            Ok(Err(error)) => {
                let complaint = error.to_string();
                if complained.as_ref() != Some(&complaint) {
                    tracing::error!(%error, "key or token file is not valid; what was read before stays in force");
                    complained = Some(complaint);
                }
            }
            // The runtime is shutting down.
            Err(_) => return,
        }
    }
}
