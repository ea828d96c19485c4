//! Deletes on a disk without a single byte left: on a disk in memory, and on a real small one.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use russet_segstore::{Begin, Error, Key, MemoryBackend, Options, Outcome, Put, State, Store};

use crate::world::{BLOB, alone, body, id_of, read, setting, small_options};

/// Fills the disk to the last byte; names what was stored, by namespace.
fn fill(store: &Store, stream: bool) -> Vec<(&'static str, u64)> {
    let mut stored = Vec::new();
    for n in 0_u64.. {
        // Runs of one namespace, as builds write them: holes smaller than a page free nothing.
        let run = if stream { n } else { n / 40 };
        let namespace = if run % 3 == 0 { "kept" } else { "doomed" };
        let (name, len) = (n.to_string(), if stream { 40_000 } else { 300 });
        let key = Key::new(BLOB, namespace, &name);
        let put = if stream {
            store
                .writer(&Put::stream(key), Some(len as u64))
                .and_then(|begin| match begin {
                    Begin::Exists => panic!("{n} was never written"),
                    Begin::Writer(mut writer) => writer.write(&body(n, len)).and_then(|()| writer.finish()),
                })
        } else {
            store.put(Put::new(key, body(n, len)))
        };
        match put {
            Ok(_) => stored.push((namespace, n)),
            Err(Error::DiskFull { .. }) => return stored,
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!("the disk is endless");
}

fn check(store: &Store, stored: &[(&'static str, u64)], doomed_is_there: bool) {
    for (namespace, n) in stored {
        let seen = read(store, &Key::new(BLOB, *namespace, &n.to_string()));
        if *namespace == "kept" || doomed_is_there {
            assert_eq!(id_of(&seen.unwrap_or_else(|| panic!("{n} is lost"))), *n);
        } else {
            assert!(seen.is_none(), "{n} was deleted");
        }
    }
}

/// Through the server this was a 503: the tombstone had no room, and creating a segment for it was refused although deletes
/// are what frees space. So a full disk could not be helped by deleting what filled it.
#[test]
fn a_namespace_can_be_deleted_when_not_a_byte_is_left() {
    for stream in [false, true] {
        for min_free in [0, 20_000] {
            let disk = MemoryBackend::new();
            let (mut options, _) = small_options(1);
            options.ballast = 4096;
            options.min_free = min_free;
            disk.limit_space(Some(400_000));
            let store = Store::open_on(Arc::new(disk.clone()), options).unwrap();
            store.maintain();
            let stored = fill(&store, stream);
            assert!(stored.len() > 5, "{} entries", stored.len());
            disk.limit_space(Some(0));
            check(&store, &stored, true);
            let outcome = store.delete_namespace(b"doomed").unwrap();
            assert!(matches!(outcome, Outcome::Deleted { .. }), "{outcome:?}");
            check(&store, &stored, false);
            assert_eq!(store.stats().state, State::Writable, "there is room again");
            store.put(Put::new(Key::new(BLOB, "new", "k"), body(1, 300))).unwrap();
            let killed = disk.fork();
            drop(store);
            for disk in [disk, killed] {
                let (options, _) = small_options(2);
                let store = Store::open_on(Arc::new(disk), options).unwrap();
                check(&store, &stored, false);
                assert!(read(&store, &Key::new(BLOB, "new", "k")).is_some());
            }
        }
    }
}

/// Without ballast there is no promise, but no harm either.
#[test]
fn a_delete_without_room_fails_whole_and_says_so() {
    let disk = MemoryBackend::new();
    disk.limit_space(Some(100_000));
    let store = Store::open_on(Arc::new(disk.clone()), small_options(1).0).unwrap();
    let stored = fill(&store, false);
    disk.limit_space(Some(0));
    let refused = store.delete_namespace(b"doomed").unwrap_err();
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
    check(&store, &stored, true);
}

#[test]
fn the_ballast_comes_back_once_there_is_room() {
    let disk = MemoryBackend::new();
    let (mut options, _) = small_options(1);
    options.ballast = 4096;
    disk.limit_space(Some(100_000));
    let store = Store::open_on(Arc::new(disk.clone()), options).unwrap();
    store.maintain();
    assert!(disk.names().contains(&"BALLAST".to_owned()), "{:?}", disk.names());
    fill(&store, false);
    disk.limit_space(Some(0));
    store.delete_namespace(b"doomed").unwrap();
    store.delete_namespace(b"kept").unwrap();
    store.maintain();
    assert!(disk.names().contains(&"BALLAST".to_owned()), "{:?}", disk.names());
}

/// Not a test of its own: runs inside a small file system that the one below mounts.
#[test]
fn child_on_a_small_disk() {
    if setting("SEGSTORE_SMALL_DISK", 0) == 0 {
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "the parent passes the folder")]
    let mount = std::env::var("SEGSTORE_SMALL_DISK_DIR").unwrap();
    let mut options = Options::new(1 << 30);
    options.segment_size = 1 << 20;
    let store = Store::open(Path::new(&mount).join("store"), options.clone()).unwrap();
    store.maintain();
    let mut stored = fill(&store, false);
    assert!(!stored.is_empty());
    // The store kept `min_free`; somebody else on the same disk does not.
    fill_up(&Path::new(&mount).join("somebody-else"));
    store.delete_namespace(b"doomed").unwrap();
    check(&store, &stored, false);
    let freed = free_bytes(Path::new(&mount));
    assert!(freed > 1 << 20, "{freed} bytes are free");
    drop(store);
    stored.retain(|(namespace, _)| *namespace == "kept");
    let store = Store::open(Path::new(&mount).join("store"), options).unwrap();
    check(&store, &stored, true);
}

/// Writes until there is no room for a single byte more.
fn fill_up(path: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    for piece in [65_536, 4096, 512, 64, 1] {
        while file.write_all(&vec![b'x'; piece]).is_ok() {}
    }
    let _ = file.sync_all();
}

fn free_bytes(path: &Path) -> u64 {
    let stat = rustix::fs::statvfs(path).unwrap();
    stat.f_bavail * stat.f_frsize
}

/// A file system of 96 MiB in memory, in a mount namespace of its own, so that nothing is left behind. Where the machine does
/// not let this user make one, there is the disk in memory above.
#[test]
fn a_namespace_can_be_deleted_on_a_real_disk_that_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user", "--"]);
        command
    };
    let possible = unshare()
        .args(["mount", "-t", "tmpfs", "-o", "size=1m", "none"])
        .arg(dir.path())
        .output();
    if !possible.is_ok_and(|output| output.status.success()) {
        let why = "this user cannot mount a file system in a namespace";
        russet_skip::skipped(russet_skip::test_name!(), why);
        return;
    }
    let script = "mount -t tmpfs -o size=96m none \"$SEGSTORE_SMALL_DISK_DIR\" && exec \"$@\"";
    let mut command = unshare();
    command
        .args(["sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap());
    command.env("SEGSTORE_SMALL_DISK_DIR", dir.path());
    alone(&mut command, "full::child_on_a_small_disk", "SEGSTORE_SMALL_DISK");
}
