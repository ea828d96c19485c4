//! A disk that fails, is full, or belongs to somebody else.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use russet_segstore::{Begin, Durability, Error, Key, MemoryBackend, Options, Put, State, Store};

use crate::world::{BLOB, RESULT, body, body_of, id_of, put, read, setting, small_options};

#[test]
fn a_failed_sync_stops_all_writes_until_restart_and_reads_go_on() {
    let disk = MemoryBackend::new();
    let store = Store::open_on(Arc::new(disk.clone()), small_options(1).0).unwrap();
    let (kept, lost) = (Key::new(BLOB, "ns", "kept"), Key::new(BLOB, "ns", "lost"));
    store.put(Put::new(kept, body(1, 100))).unwrap();
    disk.fail_syncs(true);
    let failed = store.put(Put::new(lost, body(2, 100)));
    assert!(matches!(failed, Err(Error::Poisoned { .. })), "{failed:?}");
    assert!(failed.unwrap_err().to_string().contains("restart"));
    // The disk says it is well again; nobody believes it.
    disk.fail_syncs(false);
    let late = store.put(Put::new(lost, body(3, 100)));
    assert!(matches!(late, Err(Error::Poisoned { .. })));
    let streamed = store.writer(&Put::stream(lost), Some(5000));
    assert!(matches!(streamed, Err(Error::Poisoned { .. })));
    assert!(matches!(store.delete_namespace(b"ns"), Err(Error::Poisoned { .. })));
    assert_eq!(store.stats().state, State::Poisoned);
    assert_eq!(read(&store, &kept).unwrap(), body(1, 100));
    assert!(read(&store, &lost).is_none());
    drop(store);
    let store = Store::open_on(Arc::new(disk), small_options(2).0).unwrap();
    assert_eq!(read(&store, &kept).unwrap(), body(1, 100));
    put(&store, BLOB, "ns", "after", body(4, 100));
}

#[test]
fn a_full_disk_is_read_only_and_recovers_without_losing_anything() {
    let disk = MemoryBackend::new();
    let (options, clock) = small_options(1);
    let store = Store::open_on(Arc::new(disk.clone()), options).unwrap();
    let mut stored = Vec::new();
    disk.limit_space(Some(20_000));
    let mut refused = None;
    for n in 0..200_u64 {
        let name = n.to_string();
        let key = Key::new(RESULT, "ns", &name);
        match store.put(Put::new(key, body(n, 300 + (n as usize * 97) % 2000))) {
            Ok(_) => stored.push(n),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let refused = refused.unwrap();
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
    assert!(refused.retry_after().is_some(), "{refused}");
    assert_eq!(store.stats().state, State::DiskFull);
    let key = Key::new(BLOB, "ns", "later");
    let late = store.put(Put::new(key, body(9, 10)));
    assert!(matches!(late, Err(Error::DiskFull { .. })));
    let streamed = store.writer(&Put::stream(key), None);
    assert!(matches!(streamed, Err(Error::DiskFull { .. })));
    let all_there = |store: &Store| {
        for n in &stored {
            assert_eq!(id_of(&body_of(store, RESULT, "ns", &n)), *n);
        }
    };
    all_there(&store);
    disk.limit_space(None);
    let early = store.put(Put::new(key, body(9, 10)));
    assert!(early.is_err(), "not asked before the interval is over");
    clock.steady_ms.fetch_add(2000, Ordering::SeqCst);
    store.put(Put::new(key, body(9, 10))).unwrap();
    assert_eq!(store.stats().state, State::Writable);
    all_there(&store);
    drop(store);
    let store = Store::open_on(Arc::new(disk), small_options(2).0).unwrap();
    all_there(&store);
    assert_eq!(read(&store, &key).unwrap(), body(9, 10));
}

#[test]
fn a_store_opens_and_reads_on_a_disk_that_is_full_or_refuses_writes() {
    let disk = MemoryBackend::new();
    let store = Store::open_on(Arc::new(disk.clone()), small_options(1).0).unwrap();
    let key = Key::new(BLOB, "ns", "k");
    store.put(Put::new(key, body(1, 100))).unwrap();
    let killed = disk.fork();
    for refuse in [false, true] {
        let disk = killed.fork();
        if refuse {
            disk.refuse_writes(true);
        } else {
            disk.limit_space(Some(0));
        }
        let store = Store::open_on(Arc::new(disk.clone()), small_options(2).0).unwrap();
        assert_eq!(read(&store, &key).unwrap(), body(1, 100));
        let new = Key::new(BLOB, "ns", "new");
        let failed = store.put(Put::new(new, body(2, 100))).unwrap_err();
        match failed {
            Error::Io { .. } => assert!(refuse && failed.to_string().contains("check that the folder")),
            Error::DiskFull { .. } => assert!(!refuse),
            other => panic!("{other}"),
        }
        disk.refuse_writes(false);
        if refuse {
            store.put(Put::new(new, body(2, 100))).unwrap();
        }
    }
}

#[test]
fn a_newer_format_is_left_alone() {
    let disk = MemoryBackend::new();
    drop(Store::open_on(Arc::new(disk.clone()), small_options(1).0).unwrap());
    disk.tamper("FORMAT", |bytes| {
        bytes[8] = 9;
        let sum = crc32(&bytes[..92]);
        bytes[92..].copy_from_slice(&sum.to_le_bytes());
    });
    let refused = Store::open_on(Arc::new(disk), small_options(1).0).unwrap_err();
    let newer = matches!(refused, Error::UnsupportedVersion { found: 9, supported: 1 });
    assert!(newer, "{refused}");
}

/// Bit by bit, to check the checksum too.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| {
        if crc & 1 == 1 {
            (crc >> 1) ^ 0xedb8_8320
        } else {
            crc >> 1
        }
    };
    !bytes
        .iter()
        .fold(u32::MAX, |crc, &b| (0..8).fold(crc ^ u32::from(b), step))
}

fn file_options() -> Options {
    let mut options = Options::new(1 << 30);
    options.segment_size = 256 << 10;
    options.min_free = 0;
    options
}

/// Not a test of its own: the child of the two below.
#[test]
fn child_process() {
    let role = setting("SEGSTORE_CHILD", 0);
    if role == 0 {
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "the parent passes the folder")]
    let dir = std::env::var("SEGSTORE_CHILD_DIR").unwrap();
    let store = Store::open(dir, file_options()).unwrap();
    println!("\nopen");
    for n in 0.. {
        let name = n.to_string();
        let key = Key::new(BLOB, "ns", &name);
        let durability = [Durability::Power, Durability::Process][usize::from(n % 2 != 0)];
        let len = if n % 10 == 0 { 200_000 } else { 500 };
        store.put(Put::new(key, body(n, len)).durability(durability)).unwrap();
        println!("acked {n}");
    }
}

fn spawn_child(dir: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "faults::child_process", "--nocapture"])
        .env("SEGSTORE_CHILD", "1")
        .env("SEGSTORE_CHILD_DIR", dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A real second process, and a real SIGKILL in the middle of writing.
#[test]
fn a_second_process_is_refused_and_a_killed_one_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let mut child = spawn_child(dir.path());
        let mut acked = Vec::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut tested = false;
        for line in &mut lines {
            let line = line.unwrap();
            if line == "open" && !tested {
                tested = true;
                let refused = Store::open(dir.path(), file_options()).unwrap_err();
                let locked = matches!(refused, Error::Locked { pid: Some(pid), .. } if pid == child.id());
                assert!(locked, "{refused}");
            }
            acked.extend(line.strip_prefix("acked ").and_then(|n| n.parse::<u64>().ok()));
            if acked.len() == 60 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(tested && acked.len() >= 60);
        let store = Store::open(dir.path(), file_options()).unwrap();
        for n in acked {
            let seen = read(&store, &Key::new(BLOB, "ns", &n.to_string())).unwrap_or_else(|| panic!("{n} is lost"));
            assert_eq!(id_of(&seen), n);
        }
        assert_eq!(store.stats().damaged_entries, 0);
    }
}

#[test]
fn a_permission_lost_on_the_folder_names_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"not a folder").unwrap();
    let refused = Store::open(file.join("store"), file_options()).unwrap_err();
    assert!(refused.to_string().contains("check that the folder"), "{refused}");
}

#[test]
fn a_stream_cut_off_by_a_full_disk_leaves_the_others_alone() {
    let disk = MemoryBackend::new();
    let store = Store::open_on(Arc::new(disk.clone()), small_options(1).0).unwrap();
    let key = Key::new(BLOB, "ns", "stream");
    let Begin::Writer(mut writer) = store.writer(&Put::stream(key), None).unwrap() else {
        panic!("exists")
    };
    writer.write(&[1; 3000]).unwrap();
    disk.limit_space(Some(100));
    assert!(matches!(writer.write(&[1; 300_000]), Err(Error::DiskFull { .. })));
    drop(writer);
    assert!(read(&store, &key).is_none());
}
