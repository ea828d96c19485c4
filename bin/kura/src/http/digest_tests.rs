use super::*;
use proptest::prelude::*;

const EMPTY: &str = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";

#[test]
fn digests_we_know_are_read_and_others_are_ignored() {
    let read = |text: &str| expected(text.as_bytes()).map(|digests| digests.len());
    assert_eq!(read(&format!("sha-256=:{EMPTY}:")), Ok(1));
    assert_eq!(read(&format!("md5=:AAAA:, sha-256=:{EMPTY}:;x=1")), Ok(1));
    assert_eq!(read("crc32c=:AAAAAA==:"), Ok(0));
    for malformed in [
        "",
        "sha-256",
        "sha-256=",
        "sha-256=abc",
        "sha-256=:abc:",
        "sha-256=:AAAA:",
        "sha-256=:AAAA",
        "sha-256=::",
        "Sha-256=:AAAA:",
        "=:AAAA:",
        ",",
        "md5=:AAAA:,",
        &format!("sha-256=:{EMPTY}:x"),
        &format!("sha-256=:{EMPTY}:, sha-256=:{EMPTY}:"),
        &format!("sha-512=:{EMPTY}:"),
        "sha-256=:\u{e4}:",
    ] {
        assert_eq!(read(malformed), Err(Malformed), "{malformed}");
    }
    assert_eq!(expected(b"\xff"), Err(Malformed));
}

#[test]
fn the_wish_with_the_highest_weight_counts() {
    for (text, wish) in [
        ("sha-256=1", Some(Algorithm::Sha256)),
        ("sha-512=3, sha-256=10, unixsum=0", Some(Algorithm::Sha256)),
        ("sha-512=10, sha-256=3", Some(Algorithm::Sha512)),
        ("sha-256=0", None),
        ("md5=10", None),
        ("sha-256=11", None),
        ("sha-256", None),
        ("", None),
    ] {
        assert_eq!(wanted(text.as_bytes()), wish, "{text}");
    }
}

#[test]
fn the_key_of_a_content_addressed_blob_is_its_digest() {
    let key = [&[CAS_SHA256][..], &STANDARD.decode(EMPTY).unwrap()].concat();
    assert_eq!(of_key(&key), Some(format!("sha-256=:{EMPTY}:")));
    assert_eq!(of_key(b"anything"), None);
}

/// A body in given pieces, which hands out what was not consumed again.
struct Pieces(Vec<Vec<u8>>);

impl Body for Pieces {
    fn remaining(&self) -> Option<u64> {
        None
    }

    async fn chunk(&mut self) -> Result<&[u8], Error> {
        self.0.retain(|piece| !piece.is_empty());
        Ok(self.0.first().map(Vec::as_slice).unwrap_or_default())
    }

    fn consume(&mut self, count: usize) {
        if let Some(first) = self.0.first_mut() {
            first.drain(..count);
        }
    }
}

/// Reads as the store does: collect what is small, then go on in chunks, of which only some bytes may be used.
async fn read(pieces: Vec<Vec<u8>>, digest: Vec<u8>, limit: usize, bite: usize) -> Result<Vec<u8>, Error> {
    let mut inner = Pieces(pieces);
    let mut body = Checked::new(&mut inner, vec![(Algorithm::Sha256, digest)]);
    let mut into = BytesMut::new();
    if body.collect(&mut into, limit).await? {
        return Ok(into.to_vec());
    }
    loop {
        let chunk = body.chunk().await?;
        let count = chunk.len().min(bite);
        if count == 0 {
            return Ok(into.to_vec());
        }
        into.extend_from_slice(&chunk[..count]);
        body.consume(count);
    }
}

proptest! {
    #[test]
    fn a_body_is_whole_or_refused_however_it_is_cut(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..20), 0..8),
        limit in 0usize..100,
        bite in 1usize..20,
        wrong in any::<bool>(),
    ) {
        let whole = pieces.concat();
        let mut digest = digest::digest(&SHA256, &whole).as_ref().to_vec();
        if wrong {
            digest[7] ^= 1;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let outcome = runtime.block_on(read(pieces, digest, limit, bite));
        prop_assert_eq!(outcome, if wrong { Err(Error::Mismatch) } else { Ok(whole) });
    }
}
