//! Every released format stays readable: the folders under `fixtures/` are stores older builds wrote.
//!
//! `SEGSTORE_WRITE_FIXTURE=1` writes the one of the current version, once, when it is released.

use std::path::{Path, PathBuf};

use russet_segstore::{Begin, Durability, Key, Put, Store, format};

use crate::world::{BLOB, RESULT, body, body_of, fill_with, put, read, setting, small_options};

fn folder(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/v{version}"))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("segments")).unwrap();
    std::fs::copy(from.join("FORMAT"), to.join("FORMAT")).unwrap();
    for entry in std::fs::read_dir(from.join("segments")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join("segments").join(entry.file_name())).unwrap();
    }
}

fn write(dir: &Path) {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path(), small_options(42).0).unwrap();
    fill_with(&store, "ios", 0..30, 300);
    for n in 0..5_u64 {
        put(&store, RESULT, "ios", "result", body(100 + n, 50));
    }
    let blob = Key::new(BLOB, "ios", "7");
    store
        .put(Put::new(Key::new(RESULT, "ios", "refers"), body(200, 50)).references(&[blob]))
        .unwrap();
    put(&store, BLOB, "web", "doomed", body(300, 50));
    store.delete_namespace(b"web").unwrap();
    store.delete(&Key::new(BLOB, "ios", "3"), Durability::Power).unwrap();
    let solo = Key::new(BLOB, "ios", "solo");
    let Begin::Writer(mut writer) = store.writer(&Put::stream(solo), None).unwrap() else {
        panic!("exists")
    };
    writer.write(&body(400, 6000)).unwrap();
    writer.finish().unwrap();
    put(&store, BLOB, "web", "after", body(301, 50));
    // Copied while open: the last segment is unsealed, as a killed process leaves it.
    copy(home.path(), dir);
}

#[test]
fn every_released_format_opens_and_reads_as_it_was_written() {
    if setting("SEGSTORE_WRITE_FIXTURE", 0) == 1 && !folder(format::VERSION).exists() {
        write(&folder(format::VERSION));
    }
    for version in 1..=format::VERSION {
        let home = tempfile::tempdir().unwrap();
        copy(&folder(version), home.path());
        for _ in 0..2 {
            let store = Store::open(home.path(), small_options(1).0).unwrap();
            for n in (0..30_u64).filter(|n| *n != 3) {
                assert_eq!(body_of(&store, BLOB, "ios", &n), body(n, 300));
            }
            assert_eq!(read(&store, &Key::new(RESULT, "ios", "result")).unwrap(), body(104, 50));
            assert_eq!(read(&store, &Key::new(RESULT, "ios", "refers")).unwrap(), body(200, 50));
            assert_eq!(read(&store, &Key::new(BLOB, "ios", "solo")).unwrap(), body(400, 6000));
            assert_eq!(read(&store, &Key::new(BLOB, "web", "after")).unwrap(), body(301, 50));
            assert!(read(&store, &Key::new(BLOB, "web", "doomed")).is_none());
            assert!(read(&store, &Key::new(BLOB, "ios", "3")).is_none());
            assert!(store.verify().unwrap().is_sound());
            assert_eq!(store.stats().entries, 33);
        }
    }
}
