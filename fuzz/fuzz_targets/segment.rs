//! A whole segment file: opening a store on it never fails, never panics, and every answer is checked.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use russet_segstore::{Background, Key, Kind, MemoryBackend, Options, Put, Store};

fn options() -> Options {
    let mut options = Options::new(1 << 30);
    options.background = Background::Caller;
    options.min_free = 0;
    options
}

static DISK: LazyLock<MemoryBackend> = LazyLock::new(|| {
    let disk = MemoryBackend::new();
    let store = Store::open_on(Arc::new(disk.clone()), options()).unwrap();
    for n in 0..5_u8 {
        store
            .put(Put::new(Key::new(Kind::immutable(1), "ns", &[n]), vec![n; 40]))
            .unwrap();
    }
    disk.fork()
});

// Pairs of place and byte are written over a good segment.
fuzz_target!(|data: &[u8]| {
    let disk = DISK.fork();
    let Some(name) = disk.names().into_iter().find(|n| n.ends_with(".seg")) else {
        return;
    };
    disk.tamper(&name, |bytes| {
        for edit in data.chunks_exact(3) {
            let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % (bytes.len() + 16);
            if at >= bytes.len() {
                bytes.push(edit[2]);
            } else {
                bytes[at] = edit[2];
            }
        }
    });
    let Ok(store) = Store::open_on(Arc::new(disk), options()) else {
        return;
    };
    for n in 0..5_u8 {
        if let Ok(Some(entry)) = store.get(&Key::new(Kind::immutable(1), "ns", &[n])) {
            assert_eq!(entry.read_all().unwrap(), vec![n; 40]);
        }
    }
});
