//! What was vouched for stays, and what is listed can be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use russet_segstore::{Background, Key, Kind, MemoryBackend, Put, Store};

use crate::world::{BLOB, RESULT, body, fill_with, put, small_options};

#[test]
fn what_was_vouched_for_outlives_eviction_until_the_lease_ends() {
    let (mut options, clock) = small_options(1);
    options.capacity = 200 << 10;
    let store = Store::open_on(Arc::new(MemoryBackend::new()), options).unwrap();
    let kept = Key::new(BLOB, "ns", "kept");
    store.put(Put::new(kept, body(1, 500))).unwrap();
    let mut vouch = store.vouch();
    assert_eq!(vouch.find(&kept).unwrap().len, 500);
    assert!(vouch.find(&Key::new(BLOB, "ns", "nothing")).is_none());
    assert!(vouch.settle(Duration::from_secs(60)));
    let fill = |from: u64| fill_with(&store, "scan", from..from + 2000, 600);
    fill(0);
    assert!(store.stats().evicted_segments > 50);
    assert!(store.contains(&kept).is_some());
    assert_eq!(store.stats().leases, 1);
    clock.steady_ms.store(61_000, Ordering::SeqCst);
    fill(10_000);
    assert_eq!(store.stats().leases, 0, "and no longer");
}

/// Ends the filling however the test ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Eviction runs all the time; a vouch that settled is never broken, however the two interleave.
#[test]
fn a_vouch_that_settled_is_true_whatever_eviction_does_meanwhile() {
    let (mut options, clock) = small_options(1);
    options.background = Background::Threads;
    options.capacity = 400 << 10;
    let store = Store::open_on(Arc::new(MemoryBackend::new()), options).unwrap();
    let names: Vec<String> = (0..40).map(|n| format!("key-{n}")).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|name| Key::new(BLOB, "ns", name)).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            let mut n = 0_u64;
            while !over.load(Ordering::SeqCst) {
                n += 1;
                put(&store, BLOB, "scan", &n, body(n, 600));
            }
        });
        for round in 0..60_u64 {
            // The leases of the last round end, so that eviction is after these keys again.
            clock.steady_ms.fetch_add(10_000, Ordering::SeqCst);
            for key in keys.iter().skip(round as usize % 2).step_by(2) {
                store.put(Put::new(*key, body(1, 500))).unwrap();
            }
            let evicted = store.stats().evicted_segments;
            while store.stats().evicted_segments < evicted + round % 5 {
                thread::yield_now();
            }
            let mut vouch = store.vouch();
            let found: Vec<&Key<'_>> = keys.iter().filter(|key| vouch.find(key).is_some()).collect();
            if !vouch.settle(Duration::from_secs(5)) {
                continue;
            }
            let evicted = store.stats().evicted_segments;
            while store.stats().evicted_segments < evicted + 60 {
                thread::yield_now();
            }
            let lost = found.iter().filter(|key| store.contains(key).is_none()).count();
            assert_eq!(lost, 0, "of {} in round {round}", found.len());
        }
    });
}

#[test]
fn a_kind_is_listed_and_read_entry_by_entry() {
    let store = Store::open_on(Arc::new(MemoryBackend::new()), small_options(1).0).unwrap();
    for n in 0..50_u64 {
        let name = n.to_string();
        store.put(Put::new(Key::new(RESULT, "a", &name), body(n, 100))).unwrap();
        store
            .put(Put::new(Key::new(RESULT, "b", &name), body(n, 2000)))
            .unwrap();
        store.put(Put::new(Key::new(BLOB, "a", &name), body(n, 100))).unwrap();
    }
    assert_eq!(store.list(RESULT, None).len(), 100);
    assert_eq!(store.list(RESULT, Some(b"nobody")).len(), 0);
    assert_eq!(store.list(Kind::mutable(9), None).len(), 0);
    let mut listed = store.list(RESULT, Some(b"b"));
    listed.sort_by_key(russet_segstore::Listed::sequence);
    for (n, entry) in (0..50_u64).zip(&listed) {
        let opened = store.open_listed(entry).unwrap().unwrap();
        let seen = (&opened.namespace[..], opened.key);
        assert_eq!(seen, (&b"b"[..], n.to_string().into_bytes()));
        assert_eq!((opened.body, entry.len()), (body(n, 2000), 2000));
    }
    store.put(Put::new(Key::new(RESULT, "b", "0"), body(9, 9))).unwrap();
    assert_eq!(store.open_listed(&listed[0]).unwrap(), None, "it was written again");
}
