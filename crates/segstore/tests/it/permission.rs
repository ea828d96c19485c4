//! A folder that stops to obey while the store is open, and then obeys again. With real permissions of a real user.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use russet_segstore::{Error, Key, MemoryBackend, Options, Put, State, Store};

use crate::world::{BLOB, RESULT, alone, body, id_of, put, read, setting, small_options};

fn options() -> Options {
    let mut options = Options::new(1 << 30);
    options.segment_size = 64 << 10;
    options.min_free = 0;
    options
}

fn allow(folder: &Path, mode: u32) {
    fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
}

/// Writes until one is refused, and returns what was acknowledged before.
fn until_refused(store: &Store, from: u64) -> (Vec<u64>, Error) {
    let mut stored = Vec::new();
    for n in from..from + 1000 {
        match store.put(Put::new(Key::new(BLOB, "ns", &n.to_string()), body(n, 2000))) {
            Ok(_) => stored.push(n),
            Err(error) => return (stored, error),
        }
    }
    panic!("nothing was refused");
}

/// Not a test of its own: root may do anything, so the one below runs this as another user.
#[test]
fn child_without_privileges() {
    if setting("SEGSTORE_UNPRIVILEGED", 0) == 0 {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let segments = dir.path().join("segments");
    let store = Store::open(dir.path(), options()).unwrap();
    let first = Key::new(RESULT, "ns", "first");
    store.put(Put::new(first, body(7, 500))).unwrap();
    allow(&segments, 0o500);
    // The open segment takes what still fits; the store needs a new one for the rest, sooner or later.
    store.delete_namespace(b"other").unwrap();
    let (mut stored, refused) = until_refused(&store, 0);
    assert!(matches!(refused, Error::Io { .. }), "{refused:?}");
    assert!(refused.to_string().contains("belongs to this user"), "{refused}");
    assert_eq!(store.stats().state, State::Writable, "the next write is tried again");
    assert_eq!(id_of(&read(&store, &first).unwrap()), 7);
    allow(&segments, 0o700);
    for n in 5000..5100 {
        put(&store, BLOB, "ns", &n, body(n, 2000));
        stored.push(n);
    }
    drop(store);
    // Unreadable at start: the message says what to look at. Readable but not writable: it serves.
    allow(&segments, 0o000);
    let refused = Store::open(dir.path(), options()).unwrap_err();
    assert!(refused.to_string().contains("belongs to this user"), "{refused}");
    allow(&segments, 0o500);
    let store = Store::open(dir.path(), options()).unwrap();
    for n in stored {
        assert_eq!(id_of(&read(&store, &Key::new(BLOB, "ns", &n.to_string())).unwrap()), n);
    }
    assert_eq!(id_of(&read(&store, &first).unwrap()), 7);
    drop(store);
    allow(&segments, 0o700);
}

#[test]
fn a_permission_lost_while_running_is_an_error_that_passes() {
    let program = std::env::current_exe().unwrap();
    let mut command = if rustix::process::geteuid().is_root() {
        let other = || {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]);
            command.arg(&program);
            command
        };
        let able = other().arg("--list").output();
        if !able.is_ok_and(|output| output.status.success()) {
            russet_skip::skipped(russet_skip::test_name!(), "another user cannot run this program");
            return;
        }
        other()
    } else {
        Command::new(&program)
    };
    alone(
        &mut command,
        "permission::child_without_privileges",
        "SEGSTORE_UNPRIVILEGED",
    );
}

/// The same without any user: every kind of call is refused for a while, and nothing is lost or poisoned by it.
#[test]
fn writes_refused_for_a_while_lose_nothing() {
    let disk = MemoryBackend::new();
    let store = Store::open_on(Arc::new(disk.clone()), small_options(1).0).unwrap();
    let key = Key::new(RESULT, "ns", "k");
    store.put(Put::new(key, body(1, 300))).unwrap();
    disk.refuse_writes(true);
    for refused in [
        store.put(Put::new(key, body(2, 300))).unwrap_err(),
        store.put(Put::new(key, body(3, 20_000))).unwrap_err(),
        store.delete_namespace(b"ns").unwrap_err(),
    ] {
        assert!(matches!(refused, Error::Io { .. }), "{refused:?}");
    }
    store.maintain();
    assert_eq!(store.stats().state, State::Writable);
    assert_eq!(id_of(&read(&store, &key).unwrap()), 1);
    disk.refuse_writes(false);
    store.put(Put::new(key, body(4, 300))).unwrap();
    drop(store);
    let store = Store::open_on(Arc::new(disk), small_options(2).0).unwrap();
    assert_eq!(id_of(&read(&store, &key).unwrap()), 4);
}
