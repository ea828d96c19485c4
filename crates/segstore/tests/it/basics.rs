//! What the store does when nothing goes wrong.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use russet_segstore::{
    Action, Background, Begin, Completeness, Durability, Error, Key, Kind, MemoryBackend, Options, Outcome, Put, Small,
    State, Store,
};

use crate::world::{BLOB, RESULT, body, body_of, fill_with, id_of, put, read, small_options};

fn memory() -> (Store, MemoryBackend) {
    let disk = MemoryBackend::new();
    let store = Store::open_on(Arc::new(disk.clone()), small_options(1).0).unwrap();
    (store, disk)
}

#[test]
fn an_entry_is_read_back_by_every_way_of_reading() {
    let (store, _) = memory();
    for len in [0, 1, 7, 8, 700, 5000, 70_000] {
        let name = format!("key-{len}");
        let key = Key::new(BLOB, "ns", &name);
        let bytes = vec![7; len];
        assert!(store.put(Put::new(key, &bytes)).unwrap().is_created());
        assert_eq!(store.contains(&key).unwrap().len, len as u64);
        assert_eq!(read(&store, &key).unwrap(), bytes);
        let mut entry = store.get(&key).unwrap().unwrap();
        let mut part = [0; 10];
        let n = entry.read_at(&mut part, 3).unwrap();
        assert_eq!(&part[..n], bytes.get(3..).unwrap_or_default().get(..n).unwrap());
        assert_eq!(entry.file_range().unwrap().len, len as u64);
        let mut buf = b"prefix".to_vec();
        match store.read_into(&key, 6000, &mut buf).unwrap() {
            Small::Hit(hit) => assert_eq!(buf[hit.body], bytes),
            Small::Large(presence) => assert_eq!((presence.len, len), (70_000, 70_000)),
            Small::Miss => panic!("a miss"),
        }
        assert!(buf.starts_with(b"prefix"));
    }
    let other = Key::new(BLOB, "other", "key-8");
    assert!(store.get(&other).unwrap().is_none() && store.contains(&other).is_none());
    let other = Key::new(Kind::immutable(2), "ns", "key-8");
    assert!(store.get(&other).unwrap().is_none());
}

#[test]
fn everything_survives_a_clean_close_and_is_read_from_footers() {
    let (store, disk) = memory();
    for n in 0..200_u64 {
        let name = n.to_string();
        store
            .put(Put::new(Key::new(BLOB, "ns", &name), body(n, (n * 13 % 900) as usize)))
            .unwrap();
    }
    store.close().unwrap();
    let late = store.put(Put::new(Key::new(BLOB, "ns", "late"), b"x".as_slice()));
    assert!(matches!(late, Err(Error::Closed)));
    drop(store);
    let store = Store::open_on(Arc::new(disk), small_options(2).0).unwrap();
    let recovered = store.recovered();
    assert_eq!((recovered.scanned, recovered.entries), (0, 200), "{recovered:?}");
    for n in 0..200_u64 {
        let name = n.to_string();
        assert_eq!(body_of(&store, BLOB, "ns", &name), body(n, (n * 13 % 900) as usize));
    }
    assert!(store.verify().unwrap().is_sound());
}

#[test]
fn the_first_write_of_an_immutable_kind_wins() {
    let (store, _) = memory();
    let key = Key::new(BLOB, "ns", "k");
    assert!(store.put(Put::new(key, b"one".as_slice())).unwrap().is_created());
    assert_eq!(store.put(Put::new(key, b"two".as_slice())).unwrap(), Outcome::Exists);
    assert!(matches!(store.writer(&Put::stream(key), None).unwrap(), Begin::Exists));
    assert_eq!(read(&store, &key).unwrap(), b"one");
}

/// Two writes in one millisecond lost the later one; a clock that stepped back lost all of them.
#[test]
fn the_last_write_of_a_mutable_kind_wins_whatever_the_clock_says() {
    let disk = MemoryBackend::new();
    let (options, clock) = small_options(1);
    let store = Store::open_on(Arc::new(disk.clone()), options).unwrap();
    let key = Key::new(RESULT, "ns", "k");
    let mut last_version = 0;
    for n in 0..50_u64 {
        if n == 25 {
            clock.wall.fetch_sub(86_400_000, Ordering::SeqCst);
        }
        let outcome = store.put(Put::new(key, body(n, 20))).unwrap();
        let Outcome::Created { version, .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(version > last_version);
        last_version = version;
        assert_eq!(read(&store, &key).unwrap(), body(n, 20));
    }
    drop(store);
    let store = Store::open_on(Arc::new(disk), small_options(2).0).unwrap();
    assert_eq!(read(&store, &key).unwrap(), body(49, 20));
}

#[test]
fn deleting_a_namespace_frees_its_disk_space_and_a_later_put_stays() {
    let (store, disk) = memory();
    for n in 0..100_u64 {
        let name = n.to_string();
        store
            .put(Put::new(Key::new(BLOB, "doomed", &name), body(n, 5000)))
            .unwrap();
        store.put(Put::new(Key::new(BLOB, "kept", &name), body(n, 50))).unwrap();
    }
    let before = store.stats().disk_bytes;
    store.delete_namespace(b"doomed").unwrap();
    let after = store.stats();
    assert!(after.disk_bytes < before / 10, "{before} -> {}", after.disk_bytes);
    assert_eq!(after.entries, 100);
    let key = Key::new(BLOB, "doomed", "7");
    assert!(read(&store, &key).is_none());
    assert!(store.put(Put::new(key, b"again".as_slice())).unwrap().is_created());
    drop(store);
    let store = Store::open_on(Arc::new(disk), small_options(2).0).unwrap();
    assert_eq!(read(&store, &key).unwrap(), b"again");
    assert!(read(&store, &Key::new(BLOB, "doomed", "8")).is_none());
    assert_eq!(read(&store, &Key::new(BLOB, "kept", "8")).unwrap(), body(8, 50));
}

/// Punching holes gave nothing back here: none was as large as a page, so the disk stayed as full as it was.
#[test]
fn deleting_a_namespace_frees_its_space_even_between_entries_smaller_than_a_page() {
    let (store, _disk) = memory();
    for n in 0..400_u64 {
        let namespace = if n % 4 == 0 { "kept" } else { "doomed" };
        put(&store, BLOB, namespace, &n, body(n, 300));
    }
    let before = store.stats().disk_bytes;
    store.delete_namespace(b"doomed").unwrap();
    let after = store.stats().disk_bytes;
    assert!(after < before / 2, "{after} of {before} bytes are still there");
    for n in (0..400_u64).step_by(4) {
        assert_eq!(id_of(&body_of(&store, BLOB, "kept", &n)), n);
    }
}

#[test]
fn a_deleted_key_stays_deleted_even_after_its_tombstone_was_evicted() {
    let disk = MemoryBackend::new();
    let options = || {
        let mut options = small_options(1).0;
        options.capacity = 100 << 10;
        options
    };
    let store = Store::open_on(Arc::new(disk.clone()), options()).unwrap();
    let (deleted, overwritten) = (Key::new(BLOB, "ns", "gone"), Key::new(RESULT, "ns", "new"));
    // The old versions lie in a segment that is read all the time and so survives.
    store.put(Put::new(deleted, body(1, 600))).unwrap();
    store.put(Put::new(overwritten, body(2, 600))).unwrap();
    fill_with(&store, "hot", 0..8, 600);
    store.delete(&deleted, Durability::Power).unwrap();
    store.put(Put::new(overwritten, body(3, 600))).unwrap();
    for n in 0..600_u64 {
        for hot in 0..8_u64 {
            store.contains(&Key::new(BLOB, "hot", &hot.to_string()));
        }
        put(&store, BLOB, "scan", &n, body(n, 600));
    }
    assert!(store.stats().evicted_segments > 10);
    for round in 0..2 {
        assert!(read(&store, &deleted).is_none(), "round {round}");
        let seen = read(&store, &overwritten);
        let newest = seen.is_none() || seen == Some(body(3, 600));
        assert!(newest, "round {round}: an old version came back");
    }
    drop(store);
    let store = Store::open_on(Arc::new(disk), options()).unwrap();
    assert!(read(&store, &deleted).is_none());
    let seen = read(&store, &overwritten);
    assert!(seen.is_none() || seen == Some(body(3, 600)), "an old version came back");
}

#[test]
fn leased_entries_and_what_they_refer_to_outlive_eviction_until_the_lease_ends() {
    let (mut options, clock) = small_options(1);
    options.capacity = 200 << 10;
    let store = Store::open_on(Arc::new(MemoryBackend::new()), options).unwrap();
    let blob = Key::new(BLOB, "ns", "blob");
    let result = Key::new(RESULT, "ns", "result");
    store.put(Put::new(blob, body(1, 500))).unwrap();
    store.put(Put::new(result, body(2, 100)).references(&[blob])).unwrap();
    let leased = store
        .lease(&[result, Key::new(BLOB, "ns", "nothing")], Duration::from_secs(60))
        .unwrap();
    assert_eq!((leased.held, leased.missing, leased.refused), (2, 1, 0));
    let fill = |from: u64| fill_with(&store, "scan", from..from + 2000, 600);
    fill(0);
    assert!(store.stats().evicted_segments > 50);
    assert_eq!(read(&store, &blob).unwrap(), body(1, 500));
    assert_eq!(read(&store, &result).unwrap(), body(2, 100));
    // Enough of them that they do not all sit in the one segment eviction is writing.
    let names: Vec<String> = (0..60).map(|n| format!("leased-{n}")).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|n| Key::new(BLOB, "ns", n)).collect();
    for key in &keys {
        store.put(Put::new(*key, body(9, 500))).unwrap();
    }
    assert_eq!(store.lease(&keys, Duration::from_secs(30)).unwrap().held, 60);
    fill(10_000);
    assert!(keys.iter().all(|k| store.contains(k).is_some()));
    clock.steady_ms.store(61_000, Ordering::SeqCst);
    fill(20_000);
    assert_eq!(store.stats().leases, 0);
    let left = keys.iter().filter(|k| store.contains(k).is_some()).count();
    assert!(left < 20, "{left} of 60 still there");
    assert!(store.stats().disk_bytes <= 200 << 10);
}

#[test]
fn leases_take_only_their_share_of_the_capacity() {
    let mut options = small_options(1).0;
    options.capacity = 100 << 10;
    options.lease_percent = 10;
    let store = Store::open_on(Arc::new(MemoryBackend::new()), options).unwrap();
    let names: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|n| Key::new(BLOB, "ns", n)).collect();
    for key in &keys {
        store.put(Put::new(*key, body(1, 500))).unwrap();
    }
    let leased = store.lease(&keys, Duration::from_secs(60)).unwrap();
    assert!(leased.held > 0 && leased.refused > 0, "{leased:?}");
    assert!(store.stats().leased_bytes <= 10 << 10);
}

#[test]
fn an_entry_whose_reference_is_gone_is_a_miss_and_does_not_return_with_it() {
    let (store, _) = memory();
    let (blob, result) = (Key::new(BLOB, "ns", "blob"), Key::new(RESULT, "ns", "result"));
    store.put(Put::new(blob, b"bytes".as_slice())).unwrap();
    store
        .put(Put::new(result, b"old".as_slice()).references(&[blob]))
        .unwrap();
    assert_eq!(read(&store, &result).unwrap(), b"old");
    let mut buf = Vec::new();
    let small = store.read_into(&result, 100, &mut buf).unwrap();
    assert!(matches!(small, Small::Hit(_)));
    store.delete(&blob, Durability::Power).unwrap();
    assert!(read(&store, &result).is_none());
    assert_eq!(store.stats().dangling_entries, 1);
    store.put(Put::new(blob, b"bytes".as_slice())).unwrap();
    assert!(read(&store, &result).is_none());
}

#[test]
fn a_dropped_writer_leaves_nothing() {
    let (store, disk) = memory();
    for length in [None, Some(3000), Some(6000)] {
        let key = Key::new(BLOB, "ns", "k");
        let Begin::Writer(mut writer) = store.writer(&Put::stream(key), length).unwrap() else {
            panic!("exists")
        };
        writer.write(&[1; 2000]).unwrap();
        assert!(read(&store, &key).is_none());
        drop(writer);
        assert!(read(&store, &key).is_none());
        let Begin::Writer(writer) = store.writer(&Put::stream(key), Some(5)).unwrap() else {
            panic!("exists")
        };
        let short = writer.finish().unwrap_err();
        assert!(matches!(
            short,
            Error::ShortBody {
                written: 0,
                expected: 5
            }
        ));
    }
    drop(store);
    let store = Store::open_on(Arc::new(disk), small_options(2).0).unwrap();
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn an_entry_being_read_outlives_its_eviction_and_its_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small_options(1).0;
    options.capacity = 100 << 10;
    let store = Store::open(dir.path(), options).unwrap();
    let key = Key::new(BLOB, "ns", "k");
    store.put(Put::new(key, body(1, 3000))).unwrap();
    let held = store.get(&key).unwrap().unwrap();
    store.delete_namespace(b"ns").unwrap();
    fill_with(&store, "scan", 0..500, 600);
    assert!(read(&store, &key).is_none());
    assert_eq!(held.read_all().unwrap(), body(1, 3000));
}

#[test]
fn followers_see_every_change_in_order_and_are_told_of_gaps() {
    for history in [0, 4, 1000] {
        let mut options = small_options(1).0;
        options.history = history;
        options.capacity = 120 << 10;
        let store = Store::open_on(Arc::new(MemoryBackend::new()), options).unwrap();
        for n in 0..10_u64 {
            put(&store, RESULT, "ns", &(n % 5), body(n, 30));
        }
        store.delete(&Key::new(RESULT, "ns", "3"), Durability::Power).unwrap();
        store.delete_namespace(b"other").unwrap();
        let mut seen = Vec::new();
        let mut after = 0;
        loop {
            let page = store.changes(after, 3).unwrap();
            assert_eq!(page.history, Completeness::Whole);
            seen.extend(page.changes.iter().map(|c| (c.sequence, c.action.clone())));
            if page.next == after {
                break;
            }
            after = page.next;
        }
        assert!(seen.is_sorted_by_key(|(s, _)| *s), "history {history}: {seen:?}");
        let puts = seen.iter().filter(|(_, a)| matches!(a, Action::Put { .. })).count();
        assert_eq!(puts, 4, "superseded and deleted ones are left out");
        let mut actions = seen.iter().map(|(_, action)| action);
        assert!(actions.any(|a| matches!(a, Action::Delete { key, .. } if key == b"3")));
        assert_eq!(seen.last().unwrap().1, Action::DeleteNamespace);
        fill_with(&store, "scan", 0..500, 600);
        let history = store.changes(1, 10).unwrap().history;
        assert!(matches!(history, Completeness::Gap { .. }));
        let now = store.stats().sequence;
        assert_eq!(store.changes(now, 10).unwrap().history, Completeness::Whole);
    }
}

#[test]
fn inspection_tells_what_is_there_by_namespace_and_kind() {
    let (store, _) = memory();
    for n in 0..10_u64 {
        put(&store, BLOB, "a", &n, vec![0; 100]);
        put(&store, RESULT, "b", &n, vec![0; 10]);
    }
    let found = store.inspect();
    let groups = found.groups.iter();
    let groups: Vec<_> = groups
        .map(|g| (g.namespace.as_slice(), g.kind, g.entries, g.bytes))
        .collect();
    assert_eq!(
        groups,
        [(b"a".as_slice(), BLOB, 10, 1000), (b"b".as_slice(), RESULT, 10, 100)]
    );
    assert_eq!(found.segments.iter().map(|s| s.live_entries).sum::<u64>(), 20);
}

#[test]
fn a_scrub_comes_round_in_steps() {
    let (store, _) = memory();
    fill_with(&store, "a", 0..100, 400);
    let (mut steps, mut records) = (0, 0);
    loop {
        let step = store.scrub(5000).unwrap();
        assert!(step.is_sound());
        steps += 1;
        records += step.records;
        if step.finished {
            break;
        }
    }
    assert!(steps > 5);
    assert_eq!(records, 100);
}

#[test]
fn many_submitted_writes_share_one_commit() {
    let (store, _) = memory();
    let tickets: Vec<_> = (0..50_u64)
        .map(|n| {
            store
                .submit(Put::new(Key::new(BLOB, "a", &n.to_string()), body(n, 40)))
                .unwrap()
        })
        .collect();
    assert!(tickets.iter().all(|t| !t.is_done()));
    store.commit();
    assert!(tickets.iter().all(russet_segstore::Ticket::is_done));
    let stats = store.stats();
    assert_eq!((stats.batches, stats.group_syncs, stats.batched_records), (1, 1, 50));
}

#[test]
fn callbacks_are_answered_by_the_commit_thread() {
    let mut options = Options::new(1 << 30);
    options.min_free = 0;
    assert_eq!(options.background, Background::Threads);
    let store = Store::open_on(Arc::new(MemoryBackend::new()), options).unwrap();
    let (send, answers) = std::sync::mpsc::channel();
    for n in 0..500_u64 {
        let send = send.clone();
        let name = (n % 250).to_string();
        let put = Put::new(Key::new(BLOB, "a", &name), body(n, 40));
        store
            .submit_with(put, move |answer| send.send(answer).unwrap())
            .unwrap();
    }
    let mut created = 0;
    for _ in 0..500 {
        let answer = answers.recv_timeout(Duration::from_secs(30)).unwrap();
        created += u64::from(answer.unwrap().is_created());
    }
    assert_eq!(created, 250);
    assert_eq!(store.stats().state, State::Writable);
    store.close().unwrap();
    assert_eq!(store.stats().state, State::Closed);
}

#[test]
fn limits_are_errors_that_name_them() {
    let (store, _) = memory();
    let long = vec![b'x'; 20_000];
    let too_long = store.put(Put::new(Key::new(BLOB, "ns", &long), b"".as_slice()));
    assert!(matches!(too_long, Err(Error::TooLarge { what: "key", .. })));
    let huge = store.writer(&Put::stream(Key::new(BLOB, "ns", "k")), Some(600 << 20));
    assert!(matches!(huge, Err(Error::OverCapacity { .. })));
}

#[test]
fn many_restarts_do_not_leave_many_small_segments() {
    let disk = MemoryBackend::new();
    for n in 0..60_u64 {
        let mut options = small_options(n).0;
        options.segment_size = 64 << 10;
        let store = Store::open_on(Arc::new(disk.clone()), options).unwrap();
        put(&store, RESULT, "ns", &(n % 40), body(n, 200));
        store.close().unwrap();
    }
    let store = Store::open_on(Arc::new(disk), small_options(99).0).unwrap();
    assert!(store.stats().segments < 20, "{:?}", store.stats());
    for n in 0..40_u64 {
        let last = if n < 20 { n + 40 } else { n };
        assert_eq!(body_of(&store, RESULT, "ns", &n), body(last, 200));
    }
}
