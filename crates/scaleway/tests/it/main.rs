//! The client against a strict server of one file: what is sent, to the letter, and what is made of every answer.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests, outside of test functions"
)]

mod server;

mod addresses;
mod answers;
mod cancel;
mod emulated_instances;
mod emulated_metal;
mod emulator;
mod instances;
mod metal;
mod products;
mod repeats;
mod silence;
mod volumes;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use russet_scaleway::clock::Sleep;
use russet_scaleway::config::Proxy;
use russet_scaleway::error::EffectKnown;
use russet_scaleway::observer::{Exchange, Outcome};
use russet_scaleway::{Chance, Client, Clock, Config, Context, Endpoint, Kind, Observer, Rate};
use russet_telemetry::Secret;
use server::{Script, Server};

const PROJECT: &str = "11111111-2222-3333-4444-555555555555";
const KEY: &str = "canary-secret-key";

/// A clock on which a wait passes at once, and which remembers how long the waits were.
#[derive(Debug)]
struct JumpyClock {
    start: Instant,
    passed_ms: AtomicU64,
    sleeps: Mutex<Vec<Duration>>,
}

impl Default for JumpyClock {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            passed_ms: AtomicU64::new(0),
            sleeps: Mutex::default(),
        }
    }
}

impl Clock for JumpyClock {
    fn now(&self) -> Instant {
        self.start + Duration::from_millis(self.passed_ms.load(Ordering::SeqCst))
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.sleeps.lock().unwrap().push(duration);
        let ms = u64::try_from(duration.as_millis()).unwrap() + 1;
        self.passed_ms.fetch_add(ms, Ordering::SeqCst);
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

#[derive(Debug, Default)]
struct Log {
    outcomes: Mutex<Vec<Outcome>>,
    shifts: AtomicU64,
}

impl Observer for Log {
    fn exchange(&self, e: &Exchange) {
        self.outcomes.lock().unwrap().push(e.outcome);
    }

    fn list_shifted(&self, _: &'static Endpoint) {
        self.shifts.fetch_add(1, Ordering::SeqCst);
    }
}

/// A client, the server it talks to, and everything that can be seen from outside.
struct World {
    client: Client,
    server: Server,
    clock: Arc<JumpyClock>,
    log: Arc<Log>,
}

impl World {
    async fn new(script: Script) -> Self {
        Self::with(script, |_| ()).await
    }

    async fn with(script: Script, change: impl FnOnce(&mut Config)) -> Self {
        russet_sim_kit::logged::listen();
        let server = Server::start(script).await;
        let mut config = Config::new("SCWKEY", Secret::from(KEY), PROJECT.parse().unwrap(), &server.url()).unwrap();
        config.proxy = Proxy::Never;
        config.rate = Rate {
            burst: NonZeroU32::new(1000).unwrap(),
            interval: Duration::from_millis(1),
        };
        change(&mut config);
        let clock = Arc::new(JumpyClock::default());
        let log = Arc::new(Log::default());
        let context = Context {
            clock: clock.clone(),
            chance: Arc::new(Half),
            observer: log.clone(),
            ..Context::default()
        };
        Self {
            client: Client::new(&config, context).unwrap(),
            server,
            clock,
            log,
        }
    }

    fn sleeps(&self) -> Vec<Duration> {
        self.clock.sleeps.lock().unwrap().clone()
    }

    fn outcomes(&self) -> Vec<Outcome> {
        self.log.outcomes.lock().unwrap().clone()
    }

    /// The script was followed to its end and nothing else was sent.
    fn finish(self) {
        self.server.finish();
    }
}

fn zone() -> russet_api::values::Zone {
    "fr-par-1".parse().unwrap()
}

fn mac_id() -> russet_api::values::ServerId {
    "2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b".parse().unwrap()
}

/// A Mac as the API describes it.
fn mac(id: &str, name: &str, project: &str) -> serde_json::Value {
    serde_json::json!({
        "id": id, "type": "M2-L", "name": name, "project_id": project,
        "organization_id": "99999999-2222-3333-4444-555555555555", "ip": "51.159.120.4",
        "vnc_url": "vnc://m1:canary-vnc-password@51.159.120.4:5900", "vnc_port": 5900, "ssh_username": "m1",
        "sudo_password": "canary-sudo-password",
        "os": {
            "id": "b6a3c8a0-0000-4000-8000-000000000001", "name": "macos-tahoe-26.3", "label": "macOS Tahoe 26.3",
            "image_url": "", "family": "Tahoe", "is_beta": false, "version": "26.3", "xcode_version": "26",
            "compatible_server_types": ["M2-L"], "supported_server_types": [], "zone": "fr-par-1",
        },
        "status": "ready", "created_at": "2026-11-01T10:00:00Z", "updated_at": "2026-11-02T10:00:00.123456Z",
        "deletable_at": "2026-11-02T10:00:00Z", "deletion_scheduled": false, "zone": "fr-par-1", "srn": "",
        "delivered": true, "vpc_status": "vpc_disabled", "commitment": {"type": "none", "cancelled": false},
        "public_bandwidth_bps": 1_000_000_000, "tags": [],
    })
}

/// The answer was lost, and this is known of it.
#[track_caller]
fn assert_unknown(error: &russet_scaleway::Error, known: EffectKnown, statuses: &[Option<u16>]) {
    let Kind::Unknown { effect, status, .. } = &error.kind else {
        panic!("{error}")
    };
    assert!(*effect == known && statuses.contains(status), "{error}");
}

impl World {
    fn clock_now(&self) -> Instant {
        self.clock.now()
    }
}
