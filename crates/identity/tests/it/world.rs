//! A clock that is moved by hand, and shorthands.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use russet_identity::config::Error;
use russet_identity::observer::{BackendRequest, CacheResult, Reload, Stage, Verdict};
use russet_identity::{Access, Authorizer, Clock, Config, Credential, Decision, Denial, Moment, Observer, Scope};

/// When every test begins, in seconds since 1970.
pub(crate) const START: u64 = 1_700_000_000;

#[derive(Debug)]
pub(crate) struct HandClock {
    start: Instant,
    millis: AtomicU64,
    /// The wall clock can be set on its own.
    wall_seconds: Mutex<u64>,
}

impl HandClock {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            millis: AtomicU64::new(0),
            wall_seconds: Mutex::new(START),
        }
    }
}

impl Clock for HandClock {
    fn now(&self) -> Moment {
        let millis = self.millis.load(Ordering::SeqCst);
        Moment {
            instant: self.start + Duration::from_millis(millis),
            unix_seconds: *self.wall_seconds.lock().unwrap() + millis / 1000,
        }
    }
}

/// Writes down what it is told.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) decisions: Mutex<Vec<(Stage, Verdict, bool)>>,
    pub(crate) cache: Mutex<Vec<CacheResult>>,
    pub(crate) backend: Mutex<Vec<BackendRequest>>,
    pub(crate) reloads: Mutex<Vec<Reload>>,
}

impl Observer for Notes {
    fn decision(&self, stage: Stage, outcome: Verdict, waited: Option<Duration>) {
        self.decisions.lock().unwrap().push((stage, outcome, waited.is_some()));
    }

    fn cache(&self, result: CacheResult) {
        self.cache.lock().unwrap().push(result);
    }

    fn backend(&self, request: BackendRequest) {
        self.backend.lock().unwrap().push(request);
    }

    fn reload(&self, outcome: Reload) {
        self.reloads.lock().unwrap().push(outcome);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) authorizer: Authorizer,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) notes: Arc<Notes>,
}

impl World {
    pub(crate) fn new(config: Config) -> Self {
        Self::try_new(config).unwrap()
    }

    pub(crate) fn try_new(config: Config) -> Result<Self, Error> {
        let clock = Arc::new(HandClock::new());
        let notes = Arc::new(Notes::default());
        let runtime = tokio::runtime::Handle::current();
        Ok(Self {
            authorizer: Authorizer::new(config, clock.clone(), notes.clone(), runtime)?,
            clock,
            notes,
        })
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.millis.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    pub(crate) fn advance_millis(&self, millis: u64) {
        self.clock.millis.fetch_add(millis, Ordering::SeqCst);
    }

    pub(crate) fn set_wall_clock(&self, unix_seconds: u64) {
        *self.clock.wall_seconds.lock().unwrap() = unix_seconds;
    }

    pub(crate) fn now(&self, token: &str, target: &str, access: Access) -> Decision {
        let header = format!("Bearer {token}");
        match Credential::from_header(header.as_bytes()) {
            Ok(credential) => self
                .authorizer
                .decide_now(Some(&credential), &scope(target), access, self.clock.now()),
            Err(denial) => Decision::Deny(denial),
        }
    }

    pub(crate) async fn ask(&self, token: &str, target: &str, access: Access) -> Result<(), Denial> {
        let header = format!("Bearer {token}");
        let credential = Credential::from_header(header.as_bytes())?;
        self.authorizer.decide(Some(&credential), &scope(target), access).await
    }

    /// 200 for an allow, else the status.
    pub(crate) async fn status(&self, token: &str, target: &str, access: Access) -> u16 {
        self.ask(token, target, access)
            .await
            .map_or_else(|d| d.http_status(), |()| 200)
    }

    /// The status without waiting; 0 if someone would have to be asked.
    pub(crate) fn status_now(&self, token: &str, target: &str, access: Access) -> u16 {
        match self.now(token, target, access) {
            Decision::Allow => 200,
            Decision::Deny(denial) => denial.http_status(),
            Decision::NeedsBackend => 0,
        }
    }
}

/// `account` or `account/project`.
pub(crate) fn scope(text: &str) -> Scope<'_> {
    let (account, project) = text.split_once('/').unwrap_or((text, ""));
    Scope::parse(account, project).unwrap()
}

/// Waits for a condition, for at most ten seconds.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within ten seconds");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
