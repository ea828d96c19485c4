//! Resource names: a name that is understood says the same when it is written again, a second reading of it from its other end agrees,
//! and what may be read may be written below `uploads/` and means the same there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_reapi::name::{self, Encoding, MAX_NAME, Sink, Source};
use russet_reapi::{Digest, Function};

/// The same grammar from the right: size, hash, function, kind; what is left is the instance.
fn from_the_right(name: &str) -> Option<(&str, String, u64, Function, Encoding)> {
    let (rest, size) = name.rsplit_once('/')?;
    let (rest, hash) = rest.rsplit_once('/')?;
    let split = |text: &'static str, rest: &mut &'_ str| {
        let before = rest.strip_suffix(text)?;
        if !before.is_empty() && !before.ends_with('/') {
            return None;
        }
        Some(before.len())
    };
    let mut rest = rest;
    let function = match split("blake3", &mut rest) {
        Some(at) => {
            rest = rest[..at].strip_suffix('/')?;
            Function::Blake3
        }
        None => {
            if let Some(at) = split("sha256", &mut rest) {
                rest = rest[..at].strip_suffix('/')?;
            }
            Function::Sha256
        }
    };
    let (before, encoding) = match (split("compressed-blobs/zstd", &mut rest), split("blobs", &mut rest)) {
        (Some(at), _) => (&rest[..at], Encoding::Zstd),
        (None, Some(at)) => (&rest[..at], Encoding::Identity),
        (None, None) => return None,
    };
    let instance = if before.is_empty() {
        ""
    } else {
        before.strip_suffix('/')?
    };
    Some((instance, hash.to_owned(), size.parse().ok()?, function, encoding))
}

fn check_source(text: &str, source: &Source<'_>) {
    let Digest { function, size, .. } = source.digest;
    assert!(text.len() <= MAX_NAME && i64::try_from(size).is_ok());
    assert!(!source.instance.starts_with('/') && !source.instance.ends_with('/') && !source.instance.contains("//"));
    let again = name::of_source(source);
    assert_eq!(name::read(&again).as_ref(), Ok(source), "{again}");
    assert_eq!(
        from_the_right(text),
        Some((source.instance, source.digest.hex(), size, function, source.encoding)),
        "{text}"
    );
    let uploaded = again
        .strip_prefix(source.instance)
        .unwrap_or(&again)
        .trim_start_matches('/');
    let slash = if source.instance.is_empty() { "" } else { "/" };
    let write = format!("{}{slash}uploads/0c3a-1/{uploaded}/any/thing", source.instance);
    if write.len() <= MAX_NAME {
        let sink = Sink {
            instance: source.instance,
            upload: "0c3a-1",
            digest: source.digest,
            encoding: source.encoding,
        };
        assert_eq!(name::write(&write), Ok(sink), "{write}");
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (read, write) = (name::read(text), name::write(text));
    assert!(read.is_err() || write.is_err(), "{text} is both read and written");
    if let Ok(source) = read {
        check_source(text, &source);
    }
    if let Ok(sink) = write {
        assert!(!sink.upload.is_empty() && !sink.upload.contains('/'));
        let again = name::of_sink(&sink);
        assert_eq!(name::write(&again), Ok(sink), "{again}");
        let source = Source {
            instance: sink.instance,
            digest: sink.digest,
            encoding: sink.encoding,
        };
        check_source(&name::of_source(&source), &source);
    }
});
