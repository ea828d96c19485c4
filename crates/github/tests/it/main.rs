//! The client against the emulator, which was written from the same facts and shares nothing with it.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

mod auth;
mod limits;
mod runners;
mod silence;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use russet_github::clock::Sleep;
use russet_github::config::Proxy;
use russet_github::credentials::{APP_ID, INSTALLATION_ID, PRIVATE_KEY};
use russet_github::{Chance, Client, Clock, Config, Context, Credentials, Org};
use russet_sim_github::{AppKey, Deed, Factor, Handle, Options, Sim};

const APP: u64 = 1001;
const INSTALLATION: u64 = 2002;

/// The clock of the emulated world, wrong by some seconds if told so. Waits pass at once and are remembered.
#[derive(Debug)]
struct WorldClock {
    world: Handle,
    wrong_by: AtomicI64,
    sleeps: Mutex<Vec<Duration>>,
}

impl Clock for WorldClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> Timestamp {
        self.world.now() + SignedDuration::from_secs(self.wrong_by.load(Ordering::SeqCst))
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.sleeps.lock().unwrap().push(duration);
        Box::pin(std::future::ready(()))
    }
}

#[derive(Debug)]
struct Half;

impl Chance for Half {
    fn fraction(&self) -> f64 {
        0.5
    }
}

/// One key for the whole program: making one takes longer than any test.
fn key() -> &'static AppKey {
    static KEY: OnceLock<AppKey> = OnceLock::new();
    KEY.get_or_init(|| AppKey::generate().unwrap())
}

fn another_key() -> &'static AppKey {
    static KEY: OnceLock<AppKey> = OnceLock::new();
    KEY.get_or_init(|| AppKey::generate().unwrap())
}

fn credentials(app: u64, installation: u64, pem: &str) -> Credentials {
    let (app, installation) = (app.to_string(), installation.to_string());
    Credentials::read(|field| match field {
        APP_ID => Some(app.as_bytes()),
        INSTALLATION_ID => Some(installation.as_bytes()),
        PRIVATE_KEY => Some(pem.as_bytes()),
        _ => None,
    })
    .unwrap()
}

/// An emulator with an App in the organisation `tuist`, and a client of it.
struct World {
    sim: Sim,
    clock: Arc<WorldClock>,
    client: Client,
}

impl World {
    async fn new() -> Self {
        Self::with(credentials(APP, INSTALLATION, &key().pkcs1_pem()), |_| ()).await
    }

    async fn with(credentials: Credentials, change: impl FnOnce(&mut Config)) -> Self {
        russet_sim_kit::logged::listen();
        let deeds = vec![
            Deed::AddApp {
                app: APP,
                public_key: key().public_pem(),
            },
            Deed::install(APP, INSTALLATION, "tuist"),
            Deed::AddOrg { org: "acme".to_owned() },
        ];
        let sim = Sim::start(Options {
            clock_factor: Factor::MANUAL,
            start: Some("2026-11-15T12:00:00Z".parse().unwrap()),
            deeds,
            ..Options::default()
        })
        .await
        .unwrap();
        let clock = Arc::new(WorldClock {
            world: sim.handle().clone(),
            wrong_by: AtomicI64::new(0),
            sleeps: Mutex::default(),
        });
        let mut config = Config::new(sim.url()).unwrap();
        config.proxy = Proxy::Never;
        change(&mut config);
        let context = Context {
            clock: clock.clone(),
            chance: Arc::new(Half),
        };
        let client = Client::new(&config, credentials, context).unwrap();
        Self { sim, clock, client }
    }

    fn handle(&self) -> &Handle {
        self.sim.handle()
    }

    /// How often an installation token was asked for.
    fn mints(&self) -> usize {
        self.handle().calls("POST", "/app/installations/*/access_tokens")
    }

    /// How often a registration token was asked for.
    fn registrations(&self) -> usize {
        self.handle()
            .calls("POST", "/orgs/*/actions/runners/registration-token")
    }
}

fn tuist() -> Org {
    "tuist".parse().unwrap()
}
