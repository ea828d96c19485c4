//! Bit flips anywhere in any file: noticed or harmless, never served.

use std::sync::Arc;

use russet_draw::Draw;
use russet_segstore::{Begin, Durability, Error, Key, MemoryBackend, Put, Small, Store};

use crate::ALWAYS;
use crate::world::{BLOB, Dice, RESULT, body, body_of, id_of, put, setting, small_options};

/// A store with sealed and unsealed segments, overwritten, deleted and streamed entries.
fn furnished(clean: bool) -> MemoryBackend {
    let disk = MemoryBackend::new();
    let store = Store::open_on(Arc::new(disk.clone()), small_options(1).0).unwrap();
    for n in 0..40_u64 {
        put(&store, BLOB, "ns", &n, body(n, (n * 37 % 800) as usize));
        put(&store, RESULT, "ns", &(n % 7), body(1000 + n, 60));
    }
    store.delete(&Key::new(BLOB, "ns", "5"), Durability::Power).unwrap();
    let Begin::Writer(mut writer) = store.writer(&Put::stream(Key::new(BLOB, "ns", "solo")), None).unwrap() else {
        panic!("exists")
    };
    writer.write(&body(77, 9000)).unwrap();
    writer.finish().unwrap();
    if clean {
        store.close().unwrap();
        return disk;
    }
    // A copy of the disk while the store is open is what a killed process leaves.
    disk.fork()
}

/// Reads everything by both ways; what comes back must be what was last written, or nothing.
fn check(disk: &MemoryBackend, clean: bool, story: &str) {
    let store = match Store::open_on(Arc::new(disk.clone()), small_options(2).0) {
        Ok(store) => store,
        Err(error) => {
            assert!(matches!(error, Error::UnsupportedVersion { .. }), "{story}: {error}");
            return;
        }
    };
    let look = |key: Key<'_>, expected: Option<u64>| {
        let seen = store.get(&key).unwrap().and_then(|e| e.read_all().ok());
        let seen = seen.map(|b| id_of(&b));
        assert!(seen.is_none() || seen == expected, "{story}: {key:?} shows {seen:?}");
        let mut buf = Vec::new();
        if let Small::Hit(hit) = store.read_into(&key, 100_000, &mut buf).unwrap() {
            assert_eq!(Some(id_of(&buf[hit.body])), expected, "{story}: {key:?}");
        }
    };
    for n in 0..40_u64 {
        // Number 5 was deleted. Until its segment is sealed the tombstone is there once, not twice; see durability.md.
        look(Key::new(BLOB, "ns", &n.to_string()), (n != 5 || !clean).then_some(n));
    }
    look(Key::new(BLOB, "ns", "solo"), Some(77));
    store.verify().unwrap();
}

/// Mutable entries: an unsealed record is the only copy of itself, so a flip in it may show the version before; that is
/// the price of one sync per write (durability.md), but it is never a mixture.
fn check_mutable(disk: &MemoryBackend, story: &str) {
    let Ok(store) = Store::open_on(Arc::new(disk.clone()), small_options(3).0) else {
        return;
    };
    for n in 0..7_u64 {
        let seen = store
            .get(&Key::new(RESULT, "ns", &n.to_string()))
            .unwrap()
            .and_then(|e| e.read_all().ok());
        if let Some(id) = seen.map(|b| id_of(&b)) {
            assert!(id >= 1000 && (id - 1000) % 7 == n, "{story}: {id}");
        }
    }
}

#[test]
fn a_flipped_bit_is_never_served() {
    let flips = setting("SEGSTORE_FLIPS", 400);
    for clean in [true, false] {
        let disk = furnished(clean);
        let files = disk.names();
        for n in Draw::cases("flipped bits", ALWAYS, 0..flips) {
            let mut dice = Dice(n * 31 + u64::from(clean));
            let name = &files[dice.below(files.len() as u64) as usize];
            let copy = disk.fork();
            let mut story = String::new();
            copy.tamper(name, |bytes| {
                if !bytes.is_empty() {
                    let at = dice.below(bytes.len() as u64) as usize;
                    let bit = dice.below(8);
                    bytes[at] ^= 1 << bit;
                    story = format!("flip {n}, clean {clean}: {name} byte {at} bit {bit}");
                }
            });
            check(&copy, clean, &story);
            check_mutable(&copy, &story);
        }
    }
}

#[test]
fn a_flip_under_an_open_store_is_noticed_by_the_scrub_and_by_readers() {
    let disk = furnished(true);
    let store = Store::open_on(Arc::new(disk.clone()), small_options(2).0).unwrap();
    let before = store.stats().entries;
    for name in disk.names().iter().filter(|n| n.ends_with(".seg")) {
        disk.tamper(name, |bytes| {
            let middle = bytes.len() / 3;
            bytes[middle] ^= 0x10;
        });
    }
    let checked = store.verify().unwrap();
    assert!(!checked.is_sound());
    assert_eq!(store.stats().entries, before - checked.damaged);
    assert_eq!(store.stats().damaged_entries, checked.damaged);
}

#[test]
fn a_lost_format_file_is_rebuilt_from_any_segment() {
    let disk = furnished(true);
    disk.tamper("FORMAT", Vec::clear);
    let store = Store::open_on(Arc::new(disk.clone()), small_options(9).0).unwrap();
    assert!(store.recovered().format_rebuilt);
    assert_eq!(id_of(&body_of(&store, BLOB, "ns", "3")), 3);
    drop(store);
    let store = Store::open_on(Arc::new(disk), small_options(9).0).unwrap();
    assert!(!store.recovered().format_rebuilt);
}
