//! zstd from strangers: no more comes out than was announced, the same however the bytes are cut, and the same as a second decoder gives.
//! Stored compressed, content is read in any order like any other.
#![no_main]

use kura::blob::{Blobs, Kind, Put, Target, packed_key};
use kura::config::Durability;
use libfuzzer_sys::fuzz_target;
use russet_reapi::pack::{Error, Inflate, deflate, inflate};
use std::io::Read as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// More than this is not decompressed here.
const MOST: u64 = 1 << 18;

static STORE: LazyLock<(tempfile::TempDir, Blobs)> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a folder");
    let blobs = Blobs::open(dir.path(), Some(256 << 20), Durability::ProcessCrash).expect("a store");
    (dir, blobs)
});
static NEXT: AtomicU64 = AtomicU64::new(0);

fn in_pieces(input: &[u8], size: u64, step: usize) -> Result<Vec<u8>, Error> {
    let mut decoder = Inflate::new(size)?;
    let mut content = Vec::new();
    for piece in input.chunks(step) {
        decoder.push(piece, |bytes| {
            content.extend_from_slice(bytes);
            Ok::<_, Error>(())
        })?;
        assert_eq!(decoder.given(), content.len() as u64);
    }
    decoder.finish()?;
    Ok(content)
}

/// What the library's own reader gives, if it is no more than `MOST`.
fn reference(input: &[u8]) -> Option<Vec<u8>> {
    // No frames are no content to us, and a missing frame to the library.
    if input.is_empty() {
        return Some(Vec::new());
    }
    let mut decoder = zstd::stream::read::Decoder::new(input).ok()?;
    decoder.window_log_max(23).ok()?;
    let mut content = Vec::new();
    decoder.take(MOST + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= MOST).then_some(content)
}

/// Stores frames as an upload would, and reads their content here and there.
fn stored(frames: &[u8], size: u64, content: Option<&[u8]>, places: &[u8]) {
    let mut key = [1; 33];
    key[1..9].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    let target = Target {
        kind: Kind::Cas,
        namespace: "x".into(),
        key: packed_key(&key).expect("a key that is not marked").into(),
    };
    let body = [&size.to_le_bytes()[..], frames].concat();
    let blobs = &STORE.1;
    let mut writer = blobs.writer(&target, Some(body.len() as u64)).expect("a writer");
    writer.write(&body).expect("room");
    assert_eq!(writer.commit().ok(), Some(Put::Created));
    let Ok(Some(hit)) = blobs.find(Kind::Cas, "x", &key) else {
        panic!("it is not there although it was stored");
    };
    assert_eq!(hit.length(), size);
    for place in places.chunks_exact(4) {
        let start = u64::from(u16::from_le_bytes([place[0], place[1]]));
        let mut into = vec![0; usize::from(u16::from_le_bytes([place[2], place[3]]))];
        let read = hit.read_at(start, &mut into);
        let Some(content) = content else {
            continue;
        };
        match content
            .get(usize::from(u16::from_le_bytes([place[0], place[1]]))..)
            .and_then(|rest| rest.get(..into.len()))
        {
            Some(expected) => {
                read.expect("content that was stored whole");
                assert_eq!(into, expected, "{start}");
            }
            None => assert!(into.is_empty() || read.is_err(), "beyond the end"),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(([step, announced @ .., _], rest)) = data.split_first_chunk::<4>() else {
        return;
    };
    let Some((places, frames)) = rest.split_at_checked(12) else {
        return;
    };
    let step = usize::from(*step).max(1);
    let announced = u64::from(u16::from_le_bytes(*announced)) * 4;
    let reference = reference(frames);
    let whole = inflate(frames, announced);
    match (&whole, in_pieces(frames, announced, step)) {
        (Ok(whole), cut) => {
            assert!(whole.len() as u64 <= announced);
            assert_eq!(cut.as_ref(), Ok(whole), "the content depends on how it arrived");
            assert_eq!(Some(whole), reference.as_ref());
        }
        (Err(_), cut) => assert!(cut.is_err(), "the answer depends on how the frames arrived"),
    }
    if let Some(content) = &reference {
        let size = content.len() as u64;
        assert_eq!(
            inflate(frames, size).as_ref(),
            Ok(content),
            "another decoder reads this"
        );
        if size > 0 {
            assert!(inflate(frames, size - 1).is_err());
        }
        let packed = deflate(content, 1).expect("memory to compress in");
        assert_eq!(in_pieces(&packed, size, step).as_ref(), Ok(content));
        stored(frames, size, Some(content), places);
    } else {
        stored(frames, announced, None, places);
    }
});
