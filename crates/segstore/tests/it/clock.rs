//! A wall clock that steps: nobody sets one right without somebody else being in the middle of a write.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use russet_segstore::{Key, MemoryBackend, Outcome, Put, Store};

use crate::world::{BLOB, RESULT, body, fill_with, id_of, put, read, small_options};

const DAY: u64 = 86_400_000;

fn version(outcome: Outcome) -> u64 {
    match outcome {
        Outcome::Created { version, .. } => version,
        other => panic!("{other:?}"),
    }
}

/// A node that boots with a dead battery thinks it is years ago. Versions are what followers compare, so they must go on
/// rising, whether the store was closed or killed.
#[test]
fn versions_rise_across_restarts_that_step_back() {
    let mut disk = MemoryBackend::new();
    let key = Key::new(RESULT, "ns", "k");
    let mut last = 0;
    for restart in 0..6_u64 {
        let (options, clock) = small_options(restart);
        clock.wall.fetch_sub(restart * 100 * DAY, Ordering::SeqCst);
        let store = Store::open_on(Arc::new(disk.clone()), options).unwrap();
        if restart > 0 {
            let found = id_of(&read(&store, &key).unwrap());
            assert_eq!(found, restart * 10 - 1, "the last acknowledged one");
        }
        for n in restart * 10..restart * 10 + 10 {
            let made = version(store.put(Put::new(key, body(n, 200))).unwrap());
            assert!(made > last, "{made} after {last}");
            last = made;
        }
        if restart % 2 == 0 {
            // Killed: the copy holds what was on disk, nothing was sealed.
            disk = disk.fork();
        }
    }
}

/// The same through eviction, which decides by sequence what is older.
#[test]
fn an_overwritten_value_does_not_return_when_the_clock_steps_back_between_versions() {
    let disk = MemoryBackend::new();
    let (mut options, clock) = small_options(1);
    options.capacity = 100 << 10;
    let store = Store::open_on(Arc::new(disk.clone()), options).unwrap();
    let key = Key::new(RESULT, "ns", "k");
    for n in 0..600_u64 {
        let step = if n % 7 == 0 { 3 * DAY } else { 0 };
        clock.wall.fetch_sub(step, Ordering::SeqCst);
        store.put(Put::new(key, body(n, 400))).unwrap();
        put(&store, BLOB, "scan", &n, body(n, 500));
        assert_eq!(id_of(&read(&store, &key).unwrap()), n);
    }
    assert!(store.stats().evicted_segments > 0);
    let killed = disk.fork();
    drop(store);
    for disk in [disk, killed] {
        let store = Store::open_on(Arc::new(disk), small_options(2).0).unwrap();
        assert_eq!(id_of(&read(&store, &key).unwrap()), 599);
    }
}

/// Leases and probes run on the steady clock: a step neither ends them early nor keeps them for a year.
#[test]
fn leases_do_not_notice_the_wall_clock() {
    let (mut options, clock) = small_options(1);
    options.capacity = 200 << 10;
    let store = Store::open_on(Arc::new(MemoryBackend::new()), options).unwrap();
    let key = Key::new(BLOB, "ns", "leased");
    store.put(Put::new(key, body(1, 500))).unwrap();
    assert_eq!(store.lease(&[key], Duration::from_secs(60)).unwrap().held, 1);
    let scan = |from: u64| fill_with(&store, "scan", from..from + 1500, 600);
    clock.wall.fetch_add(365 * DAY, Ordering::SeqCst);
    scan(0);
    assert!(store.contains(&key).is_some(), "a step forward ended the lease");
    clock.wall.fetch_sub(730 * DAY, Ordering::SeqCst);
    scan(10_000);
    assert!(store.contains(&key).is_some());
    assert_eq!(store.stats().leases, 1);
    clock.steady_ms.fetch_add(61_000, Ordering::SeqCst);
    scan(20_000);
    assert_eq!(store.stats().leases, 0, "a step back kept the lease");
}
