//! Many threads at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use russet_segstore::{Background, Begin, Durability, Key, MemoryBackend, Outcome, Put, Store};

use crate::world::{BLOB, Dice, RESULT, body, id_of, read, small_options};

/// Of 100 racing PUTs 61 to 100 were told 201, and readers saw about ten different bodies.
#[test]
fn of_a_hundred_racing_writers_one_wins_and_every_reader_sees_it_whole() {
    for background in [Background::Caller, Background::Threads] {
        for streamed in [false, true] {
            let mut options = small_options(1).0;
            options.background = background;
            let store = Store::open_on(Arc::new(MemoryBackend::new()), options).unwrap();
            let key = Key::new(BLOB, "ns", "contended");
            let start = Barrier::new(104);
            let seen = AtomicU64::new(0);
            let over = AtomicBool::new(false);
            let created = thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        start.wait();
                        while !over.load(Ordering::SeqCst) {
                            if let Some(bytes) = read(&store, &key) {
                                let id = id_of(&bytes);
                                let first = seen.compare_exchange(0, id, Ordering::SeqCst, Ordering::SeqCst);
                                assert!(first.is_ok() || first == Err(id), "two truths");
                            }
                        }
                    });
                }
                let writers: Vec<_> = (1..=100_u64)
                    .map(|id| {
                        let (store, start) = (&store, &start);
                        scope.spawn(move || {
                            let bytes = body(id, 3000);
                            start.wait();
                            let outcome = if streamed && id % 2 == 0 {
                                match store.writer(&Put::stream(key), Some(3000)).unwrap() {
                                    Begin::Exists => Outcome::Exists,
                                    Begin::Writer(mut writer) => {
                                        writer.write(&bytes).unwrap();
                                        writer.finish().unwrap()
                                    }
                                }
                            } else {
                                store.submit(Put::new(key, &bytes)).unwrap().wait().unwrap()
                            };
                            // Whoever is answered finds the entry there.
                            let now = id_of(&read(store, &key).unwrap());
                            assert!(!outcome.is_created() || now == id);
                            outcome
                        })
                    })
                    .collect();
                let created = writers.into_iter().filter(|_| true).map(|w| w.join().unwrap());
                let created = created.filter(|o| o.is_created()).count();
                over.store(true, Ordering::SeqCst);
                created
            });
            assert_eq!(created, 1);
        }
    }
}

/// Threads own their keys, so each knows what it must see, while eviction, deletes and reopening go on around them.
#[test]
fn threads_see_their_own_last_acknowledged_writes() {
    let disk = MemoryBackend::new();
    let options = |seed| {
        let mut options = small_options(seed).0;
        options.background = Background::Threads;
        options.segment_size = 64 << 10;
        options
    };
    let mut store = Store::open_on(Arc::new(disk.clone()), options(1)).unwrap();
    let mut models: Vec<HashMap<u64, Option<u64>>> = vec![HashMap::new(); 8];
    for round in 0..3_u64 {
        thread::scope(|scope| {
            for (who, model) in models.iter_mut().enumerate() {
                let store = &store;
                scope.spawn(move || {
                    let mut dice = Dice(round * 1000 + who as u64 * 77);
                    let namespace = format!("thread-{who}");
                    for n in 0..300_u64 {
                        let number = dice.below(20);
                        let name = number.to_string();
                        let key = Key::new(RESULT, &namespace, &name);
                        let id = round << 40 | (who as u64) << 32 | n;
                        match dice.below(10) {
                            0..=5 => {
                                let bytes = body(id, dice.below(3000) as usize);
                                assert!(store.put(Put::new(key, bytes)).unwrap().is_created());
                                model.insert(number, Some(id));
                            }
                            6 => {
                                store.delete(&key, Durability::Process).unwrap();
                                model.insert(number, None);
                            }
                            7 if n % 50 == 0 => {
                                store.delete_namespace(namespace.as_bytes()).unwrap();
                                model.clear();
                            }
                            _ => {}
                        }
                        let seen = read(store, &key).map(|b| id_of(&b));
                        assert_eq!(seen, model.get(&number).copied().flatten());
                    }
                });
            }
        });
        if round == 1 {
            store.close().unwrap();
        }
        drop(store);
        store = Store::open_on(Arc::new(disk.clone()), options(2 + round)).unwrap();
        for (who, model) in models.iter().enumerate() {
            for (number, wrote) in model {
                let (namespace, name) = (format!("thread-{who}"), number.to_string());
                let seen = read(&store, &Key::new(RESULT, &namespace, &name)).map(|b| id_of(&b));
                assert_eq!(seen, *wrote, "after reopening");
            }
        }
        assert!(store.verify().unwrap().is_sound());
    }
}

#[test]
fn readers_and_writers_survive_constant_eviction() {
    let mut options = small_options(1).0;
    options.background = Background::Threads;
    options.capacity = 400 << 10;
    options.segment_size = 32 << 10;
    let store = Store::open_on(Arc::new(MemoryBackend::new()), options).unwrap();
    thread::scope(|scope| {
        for who in 0..6_u64 {
            let store = &store;
            scope.spawn(move || {
                let mut dice = Dice(who);
                for n in 0..600_u64 {
                    let number = dice.below(300);
                    let name = number.to_string();
                    let kind = if number % 3 == 0 { RESULT } else { BLOB };
                    let key = Key::new(kind, "ns", &name);
                    if dice.below(3) == 0 {
                        store
                            .put(Put::new(
                                key,
                                body(number << 32 | who << 24 | n, dice.below(4000) as usize),
                            ))
                            .unwrap();
                    } else if let Some(bytes) = read(store, &key) {
                        assert_eq!(id_of(&bytes) >> 32, number, "another key's body");
                    }
                }
            });
        }
    });
    store.close().unwrap();
    let stats = store.stats();
    assert!(stats.evicted_segments > 0 && stats.damaged_entries == 0, "{stats:?}");
    assert!(stats.disk_bytes <= 400 << 10, "{stats:?}");
}
