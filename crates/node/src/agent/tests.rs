//! Agents against an API server of the tests' own, which knows nobody when a story needs that, and on a disk that may be full.

mod server;

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::SystemTime;

use rcgen::{CertificateParams, KeyPair};
use russet_telemetry::Secret;
use tokio::sync::Notify;

use self::server::Server;
use super::*;
use crate::spec::Capacity;

/// A minute of an agent is a tenth of a second here.
const PACE: Pace = Pace {
    first: Duration::from_millis(2),
    longest: Duration::from_millis(20),
    doubt: Duration::from_millis(100),
    grant: Duration::from_millis(300),
};
const RHYTHM: Rhythm = Rhythm {
    lease: Duration::from_millis(10),
    status: Duration::from_secs(1),
};
/// Long enough for a busy machine; what holds is noticed at once.
const PATIENCE: Duration = Duration::from_secs(30);

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The certificate that a node has when its story begins.
#[derive(Clone, Copy)]
enum Papers {
    /// None yet.
    Missing,
    /// One that is good for long.
    Young,
    /// One that is to be renewed.
    Old,
    /// One that ended, by our clock.
    Over,
}

fn days(count: u64) -> Duration {
    Duration::from_hours(24 * count)
}

impl Papers {
    fn identity(self, server: String) -> Option<Identity> {
        let now = SystemTime::now();
        let (from, until) = match self {
            Self::Missing => return None,
            Self::Young => (now - days(1), now + days(99)),
            Self::Old => (now - days(99), now + days(1)),
            Self::Over => (now - days(100), now - days(1)),
        };
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.not_before = from.into();
        params.not_after = until.into();
        let certificate = params.self_signed(&key).unwrap();
        Some(Identity {
            node_name: "mac-1".to_owned(),
            server,
            key_pem: Secret::new(key.serialize_pem()),
            certificate_pem: Some(certificate.pem()),
        })
    }
}

/// What an agent remembers.
#[derive(Default)]
struct Disk {
    kept: Mutex<Memory>,
    full: AtomicBool,
    failures: AtomicUsize,
}

impl Disk {
    fn fill(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    fn failures(&self) -> usize {
        self.failures.load(Ordering::Relaxed)
    }

    /// Key and certificate.
    fn papers(&self) -> Option<(String, Option<String>)> {
        let identity = self.load().identity?;
        Some((identity.key_pem.expose().clone(), identity.certificate_pem))
    }
}

impl Store for Disk {
    fn load(&self) -> Memory {
        self.kept.lock().unwrap().clone()
    }

    fn save(&self, memory: &Memory) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        *self.kept.lock().unwrap() = memory.clone();
        Ok(())
    }
}

#[derive(Default)]
struct Body {
    deleted: Notify,
}

impl Machine for Body {
    async fn look(&self) -> Sight {
        Sight::default()
    }

    async fn deleted(&self) {
        self.deleted.notified().await;
    }
}

/// A machine and its API server.
struct World {
    server: Server,
    spec: Spec,
    body: Body,
    disk: Disk,
    rhythm: Rhythm,
    told: Mutex<Vec<News>>,
}

impl World {
    async fn with(papers: Papers) -> Self {
        let server = Server::start().await;
        let disk = Disk::default();
        disk.kept.lock().unwrap().identity = papers.identity(server.connection().cluster_url.to_string());
        Self {
            server,
            spec: Spec {
                name: "mac-1".to_owned(),
                provider_id: String::new(),
                labels: BTreeMap::new(),
                taints: Vec::new(),
                capacity: Capacity::default(),
                kubelet_version: crate::KUBELET_VERSION.to_owned(),
            },
            body: Body::default(),
            disk,
            rhythm: RHYTHM,
            told: Mutex::default(),
        }
    }

    fn agent<'a>(&'a self, news: &'a (dyn Fn(News) + Send + Sync)) -> Agent<'a, Body, Disk> {
        Agent {
            spec: &self.spec,
            connection: self.server.connection(),
            moved: None,
            machine: &self.body,
            store: &self.disk,
            rhythm: self.rhythm,
            news,
        }
    }

    /// Has an agent for as long as a story takes.
    async fn live(&self, story: impl Future<Output = ()>) {
        let news = |news: News| self.told.lock().unwrap().push(news);
        let agent = self.agent(&news);
        tokio::select! {
            ended = Box::pin(agent.run_at(PACE)) => panic!("the agent ended: {ended:?}"),
            () = story => {}
        }
    }

    /// Why an agent ends.
    async fn end(&self) -> Error {
        let news = |_: News| {};
        let agent = self.agent(&news);
        match timeout(PATIENCE, Box::pin(agent.run_at(PACE))).await.unwrap() {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    /// How often it told this.
    fn times(&self, news: &News) -> usize {
        self.told.lock().unwrap().iter().filter(|told| *told == news).count()
    }

    async fn hears_a_renewal(&self) {
        let before = self.times(&News::Renewed);
        until("a renewal of the Lease", || self.times(&News::Renewed) > before).await;
    }
}

/// Three refusals within a second made a node throw its key away, and then it asked with a token that had ended long before. An API
/// server that came up with the wrong authority for clients, or a balancer that led to another one, would have cost the whole fleet in
/// five seconds, for good.
#[tokio::test]
async fn an_api_server_that_knows_nobody_for_a_while_costs_a_node_nothing() {
    let world = World::with(Papers::Young).await;
    let before = world.disk.papers();
    world
        .live(async {
            world.hears_a_renewal().await;
            let (tokens, nodes) = world.server.asked();
            world.server.knows(false, false);
            until("many refusals", || {
                let asked = world.server.asked();
                asked.0 > tokens + 3 && asked.1 > nodes + 20
            })
            .await;
            assert_eq!(world.disk.papers(), before);
            // The token stays worthless.
            world.server.knows(false, true);
            world.hears_a_renewal().await;
        })
        .await;
    assert_eq!(world.disk.papers(), before);
    assert_eq!(world.server.requests(), 0);
}

/// The authority that signed it may be gone for good: then the token, if it is still worth something, is the way back.
#[tokio::test]
async fn a_certificate_that_is_not_known_is_tried_until_another_was_granted() {
    let world = World::with(Papers::Young).await;
    let before = world.disk.papers();
    world.server.knows(true, false);
    world
        .live(async {
            until("a request", || world.server.requests() == 1).await;
            let (_, nodes) = world.server.asked();
            until("more tries with the old one", || world.server.asked().1 > nodes + 2).await;
            assert_eq!(world.disk.papers(), before);
            world.server.signs();
            world.hears_a_renewal().await;
        })
        .await;
    assert_ne!(world.disk.papers(), before);
    assert!(world.disk.load().next.is_none());
    assert_eq!(world.server.requests(), 1, "it asked with another key each time");
}

/// A start with a clock that was ahead cost a node its key.
#[tokio::test]
async fn a_certificate_that_is_over_by_our_clock_is_tried_all_the_same() {
    let world = World::with(Papers::Over).await;
    let before = world.disk.papers();
    world.live(world.hears_a_renewal()).await;
    assert_eq!(world.disk.papers(), before);
    assert_eq!(world.server.asked().0, 0, "it asked with its token");
}

#[tokio::test]
async fn a_node_that_never_had_a_certificate_ends_when_its_token_is_worthless() {
    let world = World::with(Papers::Missing).await;
    world.server.knows(false, true);
    let error = world.end().await;
    assert!(error.is_refusal(), "{error}");
    assert_eq!(world.server.asked(), (6, 0));
}

/// A certificate was to be renewed while the disk was full, and the agent ended: just then, images had to be deleted and Pods evicted.
#[tokio::test]
async fn a_full_disk_ends_no_agent_and_what_it_owes_is_written_down_later() {
    let world = World::with(Papers::Old).await;
    let before = world.disk.papers();
    world.disk.fill(true);
    world
        .live(async {
            world.hears_a_renewal().await;
            until("saves that fail", || world.disk.failures() > 5).await;
            world.hears_a_renewal().await;
            assert_eq!(world.server.requests(), 0, "it asked with a key that it may forget");

            world.disk.fill(false);
            until("a request", || world.server.requests() == 1).await;
            // Full again before the certificate is there.
            world.disk.fill(true);
            world.server.signs();
            until("a life with the new one", || world.times(&News::Joined) == 2).await;
            world.hears_a_renewal().await;
            assert_eq!(world.disk.papers(), before);
            assert!(
                world.disk.load().next.is_some(),
                "after a restart it would ask with another key"
            );

            world.disk.fill(false);
            until("the new one on the disk", || world.disk.papers() != before).await;
        })
        .await;
    assert!(world.disk.load().next.is_none());
    assert_eq!(world.server.requests(), 1);
    assert_eq!(world.server.asked().0, 0, "it asked with its token");
}

#[tokio::test]
async fn a_first_key_that_cannot_be_kept_is_not_asked_with() {
    let world = World::with(Papers::Missing).await;
    world.disk.fill(true);
    let error = world.end().await;
    assert!(matches!(error, Error::Store(_)), "{error}");
    assert_eq!(world.server.asked(), (0, 0));
}

/// A Node that was deleted while the controller manager was away stayed away for up to five minutes: its Lease was renewed as ever, and
/// nobody looked at the Node itself before its status was due.
#[tokio::test]
async fn a_machine_that_sees_its_node_deleted_is_a_node_again_whatever_becomes_of_its_lease() {
    let mut world = World::with(Papers::Young).await;
    world.rhythm.status = Duration::from_hours(1);
    let world = world;
    world
        .live(async {
            world.hears_a_renewal().await;
            world.server.delete("/api/v1/nodes/mac-1");
            world.hears_a_renewal().await;
            assert!(!world.server.has("/api/v1/nodes/mac-1"), "the Lease told of it");
            // It does not work at once, and is tried again.
            world.server.fails(3);
            world.body.deleted.notify_one();
            until("another Node", || world.server.has("/api/v1/nodes/mac-1")).await;
            world.hears_a_renewal().await;
        })
        .await;
}
