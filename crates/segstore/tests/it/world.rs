//! What the tests share: clocks that obey, bodies that tell who wrote them, small options.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use russet_segstore::{Background, Clock, Durability, Entropy, Key, Kind, Options, Put, Store};

pub(crate) const BLOB: Kind = Kind::immutable(1);
pub(crate) const RESULT: Kind = Kind::mutable(1);

/// A clock the test moves.
#[derive(Debug, Default)]
pub(crate) struct HandClock {
    pub(crate) wall: AtomicU64,
    pub(crate) steady_ms: AtomicU64,
}

impl Clock for HandClock {
    fn wall_ms(&self) -> u64 {
        self.wall.load(Ordering::SeqCst)
    }

    fn steady(&self) -> Duration {
        Duration::from_millis(self.steady_ms.load(Ordering::SeqCst))
    }
}

#[derive(Debug)]
pub(crate) struct SeededEntropy(pub(crate) AtomicU64);

impl Entropy for SeededEntropy {
    fn next(&self) -> u128 {
        let n = self.0.fetch_add(1, Ordering::SeqCst);
        u128::from(mix(n)) << 64 | u128::from(mix(n ^ 0xabcd_ef01))
    }
}

/// splitmix64: a number from a number.
pub(crate) fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % n
    }
}

/// A body that carries the number of its write: 8 bytes of id, then bytes that follow from it.
pub(crate) fn body(id: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 8);
    out.extend_from_slice(&id.to_le_bytes());
    let mut n = id;
    while out.len() < len {
        n = mix(n);
        out.extend_from_slice(&n.to_le_bytes());
    }
    out.truncate(len.max(8));
    out
}

/// The number of the write a body came from; panics when the bytes are not exactly what was written.
pub(crate) fn id_of(bytes: &[u8]) -> u64 {
    let id = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, body(id, bytes.len()), "bytes nobody wrote");
    id
}

pub(crate) fn small_options(seed: u64) -> (Options, Arc<HandClock>) {
    let clock = Arc::new(HandClock::default());
    clock.wall.store(1_700_000_000_000, Ordering::SeqCst);
    let mut options = Options::new(1 << 30);
    options.segment_size = 8 << 10;
    options.small_limit = 700;
    options.min_free = 0;
    options.ballast = 0;
    options.history = 64;
    options.background = Background::Caller;
    options.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    options.entropy = Arc::new(SeededEntropy(AtomicU64::new(seed)));
    options.durability = Durability::Power;
    (options, clock)
}

/// Stores an entry that must be taken.
pub(crate) fn put(store: &Store, kind: Kind, namespace: &str, name: &(impl ToString + ?Sized), body: Vec<u8>) {
    let name = name.to_string();
    store.put(Put::new(Key::new(kind, namespace, &name), body)).unwrap();
}

/// A blob under each of these numbers.
pub(crate) fn fill_with(store: &Store, namespace: &str, numbers: std::ops::Range<u64>, len: usize) {
    for n in numbers {
        put(store, BLOB, namespace, &n, body(n, len));
    }
}

/// Runs one test of this program by itself, with that variable set, which is what it waits for.
pub(crate) fn alone(command: &mut std::process::Command, test: &str, variable: &str) {
    let command = command.args(["--exact", test, "--nocapture"]).env(variable, "1");
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// The body of an entry that must be there.
pub(crate) fn body_of(store: &Store, kind: Kind, namespace: &str, name: &(impl ToString + ?Sized)) -> Vec<u8> {
    read(store, &Key::new(kind, namespace, &name.to_string())).unwrap()
}

/// The body of an entry, or `None` for a miss.
pub(crate) fn read(store: &Store, key: &Key<'_>) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|entry| entry.read_all().unwrap())
}

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "how long to test is asked of the environment, in this one place"
    )]
    let value = std::env::var(name);
    value.ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}
