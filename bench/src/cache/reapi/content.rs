//! What is stored: blobs that differ from each other and are the same in every run.

use super::super::key::Bodies;
use super::super::zipf::Random;
use super::client::wire;
use super::reapi;
use bytes::Bytes;
use russet_reapi::Function;
use russet_reapi::digest::{Digest, Hasher};

/// Content and its name.
#[derive(Debug, Clone)]
pub(super) struct Blob {
    pub(super) digest: Digest,
    pub(super) parts: Vec<Bytes>,
}

impl Blob {
    pub(super) fn of(content: Bytes) -> Self {
        Self::of_parts(vec![content])
    }

    fn of_parts(parts: Vec<Bytes>) -> Self {
        let mut hasher = Hasher::new(Function::Sha256);
        for part in &parts {
            hasher.update(part);
        }
        let digest = Digest {
            function: Function::Sha256,
            hash: hasher.finish(),
            size: parts.iter().map(|part| part.len() as u64).sum(),
        };
        Self { digest, parts }
    }
}

/// Random bytes that begin with a number, so that no two numbers have the same. Only the number is copied.
pub(super) fn blob(bodies: &Bodies, number: u64, size: usize) -> Blob {
    let place = Bodies::place(number, size);
    let stamp = Bytes::copy_from_slice(&number.to_le_bytes());
    let rest = bodies.shared(place.start + stamp.len()..place.end);
    Blob::of_parts(vec![stamp, rest])
}

/// An action; only its name matters.
pub(super) fn action_of(number: u64) -> Digest {
    Function::Sha256.digest(&number.to_be_bytes())
}

/// A result that names four blobs.
pub(super) fn outputs(bodies: &Bodies, first: u64, size: usize) -> reapi::ActionResult {
    let digest = |number| wire(&blob(bodies, first + number, size).digest);
    let files = (0..3).map(|number| reapi::OutputFile {
        path: format!("bazel-out/k8-fastbuild/bin/library/target-{first}/output-{number}.o"),
        digest: Some(digest(number)),
        ..Default::default()
    });
    reapi::ActionResult {
        output_files: files.collect(),
        stdout_digest: Some(digest(3)),
        ..Default::default()
    }
}

/// Words in random order, of which few are used often and many seldom: zstd makes about a third of it.
pub(super) fn text(length: usize) -> Vec<u8> {
    let mut random = Random::new(7);
    let words: Vec<Vec<u8>> = (0..8192)
        .map(|_| {
            let letters = 3 + random.below(9);
            let mut word: Vec<u8> = (0..letters)
                .map(|_| b'a' + u8::try_from(random.below(26)).unwrap_or(0))
                .collect();
            word.push(b' ');
            word
        })
        .collect();
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        let bound = 1 + random.below(words.len() as u64);
        let place = usize::try_from(random.below(bound)).unwrap_or(0);
        text.extend_from_slice(words.get(place).map(Vec::as_slice).unwrap_or_default());
    }
    text.truncate(length);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_differ_even_where_their_bytes_come_from_the_same_place() {
        let bodies = Bodies::new(4096);
        // There are 4,096 places.
        let (one, other) = (blob(&bodies, 1, 4096), blob(&bodies, 4097, 4096));
        assert_eq!((one.digest.size, one.parts.concat().len()), (4096, 4096));
        assert_ne!(one.digest.hash, other.digest.hash);
        assert_eq!(one.digest, Function::Sha256.digest(&one.parts.concat()));
    }

    #[test]
    fn text_compresses_as_outputs_of_builds_do() {
        let text = text(1 << 20);
        let packed = russet_reapi::pack::deflate(&text, 3).unwrap();
        assert_eq!(text.len(), 1 << 20);
        let share = packed.len() * 100 / text.len();
        assert!((20..60).contains(&share), "{share} %");
    }
}
