//! Content-addressed blobs: presence with the right size, either form, and many writes in one commit.

use super::packed::{HEADER, STORED, mark, packed_key, stored_key};
use super::{Blobs, Error, Hit, IN_MEMORY, Kind, Put, Target};
use russet_reapi::Digest;
use russet_segstore as segstore;
use segstore::Key;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Most bytes of a body that joins a group commit.
const SMALL: usize = 128 * 1024;

/// A blob found in its compressed form.
#[derive(Debug)]
pub struct Frames {
    /// The stored bytes; the frames begin at [`Frames::START`].
    pub hit: Hit,
    /// Bytes of content.
    pub size: u64,
}

impl Frames {
    /// Where in the stored bytes the frames begin.
    pub const START: u64 = HEADER;
}

impl Blobs {
    /// Whether content of that name and size is there.
    pub fn has(&self, namespace: &str, digest: &Digest) -> Result<bool, Error> {
        if digest.is_empty_blob() {
            return Ok(true);
        }
        let key = digest.key();
        let stored = Kind::Cas.stored();
        if let Some(found) = self.store.contains(&Key::new(stored, namespace.as_bytes(), &key)) {
            return Ok(found.len == digest.size);
        }
        self.has_compressed(namespace, digest)
    }

    /// Content may be stored under either of two keys; the one to refer to, so that the reference holds.
    pub fn as_stored(&self, target: Target) -> Target {
        let packed = || {
            let key = packed_key(&target.key).filter(|_| target.kind == Kind::Cas)?;
            let there = |key: &[u8]| {
                let key = stored_key(target.kind, &target.namespace, key);
                self.store.contains(&key).is_some()
            };
            (!there(&target.key) && there(&key)).then_some(key)
        };
        match packed() {
            Some(key) => Target {
                key: key.into(),
                ..target
            },
            None => target,
        }
    }

    /// Whether content of that name and size is there in its compressed form.
    fn has_compressed(&self, namespace: &str, digest: &Digest) -> Result<bool, Error> {
        let Some(packed) = packed_key(&digest.key()).filter(|_| self.has_packed()) else {
            return Ok(false);
        };
        let packed = Key::new(STORED, namespace.as_bytes(), &packed);
        if self.store.contains(&packed).is_none() {
            return Ok(false);
        }
        let Some(mut entry) = self.store.get(&packed)? else {
            return Ok(false);
        };
        let mut length = [0; 8];
        if !entry.is_verified() && entry.len() > u64::from(IN_MEMORY) {
            // Whoever asks may ask about thousands: none of them is read as a whole for that. Whoever reads it will be told
            // if it is damaged.
            let claimed = entry.peek_at(&mut length, 0)? == length.len();
            if claimed && u64::from_le_bytes(length) == digest.size {
                return Ok(true);
            }
        }
        match entry.read_at(&mut length, 0) {
            Ok(8) => Ok(u64::from_le_bytes(length) == digest.size),
            Err(segstore::Error::Damaged) => Ok(false),
            Ok(_) => Err(segstore::Error::Damaged.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// The content of that name and size.
    pub fn content(&self, namespace: &str, digest: &Digest) -> Result<Option<Hit>, Error> {
        let found = self.find(Kind::Cas, namespace, &digest.key())?;
        Ok(found.filter(|hit| hit.length() == digest.size))
    }

    /// The compressed form of content of that name and size, if it is stored so. It must still be verified.
    pub fn frames(&self, namespace: &str, digest: &Digest) -> Result<Option<Frames>, Error> {
        let Some(key) = packed_key(&digest.key()).filter(|_| self.has_packed()) else {
            return Ok(None);
        };
        let Some(hit) = self.find(Kind::Cas, namespace, &key)? else {
            return Ok(None);
        };
        let mut length = [0; 8];
        let Some(hit) = Some(hit).filter(|hit| hit.length() >= HEADER) else {
            return Ok(None);
        };
        hit.peek(&mut length)?;
        let size = u64::from_le_bytes(length);
        Ok((size == digest.size).then_some(Frames { hit, size }))
    }

    /// Stores blobs, the small ones in one group commit. Answers come in the order of the blobs.
    pub async fn put_all(&self, blobs: Vec<(Target, bytes::Bytes)>) -> Vec<Result<Put, Error>> {
        let (answer, answered) = oneshot::channel();
        let gathered = Arc::new(Gathered {
            results: Mutex::new((blobs.len(), (0..blobs.len()).map(|_| None).collect(), Some(answer))),
        });
        let mut large = Vec::new();
        for (index, (target, body)) in blobs.into_iter().enumerate() {
            if body.len() > SMALL {
                large.push((index, target, body));
                continue;
            }
            self.expect(&target);
            let mine = Arc::clone(&gathered);
            let put = segstore::Put::new(target.key(), &body[..]);
            let submitted = self.store.submit_with(put, move |outcome| {
                mine.set(index, outcome.map(Put::from).map_err(Error::from));
            });
            if let Err(error) = submitted {
                gathered.set(index, Err(error.into()));
            }
        }
        for (index, target, body) in large {
            let (mine, blobs) = (Arc::clone(&gathered), self.clone());
            tokio::task::spawn_blocking(move || mine.set(index, blobs.put_large(&target, &body)));
        }
        // Nothing to wait for, or everything was refused: then the answer is there already.
        gathered.settle();
        answered.await.unwrap_or_default()
    }

    fn put_large(&self, target: &Target, body: &[u8]) -> Result<Put, Error> {
        let mut writer = self.writer(target, Some(body.len() as u64))?;
        writer.write(body)?;
        writer.commit()
    }
}

type Results = Vec<Result<Put, Error>>;

/// Answers of many writes; whoever sets the last one sends them all.
#[derive(Debug)]
struct Gathered {
    #[expect(clippy::type_complexity, reason = "three things one lock guards")]
    results: Mutex<(usize, Vec<Option<Result<Put, Error>>>, Option<oneshot::Sender<Results>>)>,
}

impl Gathered {
    fn set(&self, index: usize, result: Result<Put, Error>) {
        let mut guard = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, results, _) = &mut *guard;
        if let Some(slot @ None) = results.get_mut(index) {
            *slot = Some(result);
            *left -= 1;
        }
        drop(guard);
        self.settle();
    }

    fn settle(&self) {
        let mut guard = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, results, answer) = &mut *guard;
        if *left == 0
            && let Some(answer) = answer.take()
        {
            let results = std::mem::take(results);
            // Whoever asked may be gone; the blobs are stored all the same.
            let _ = answer.send(
                results
                    .into_iter()
                    .map(|result| result.unwrap_or(Err(Error::Unanswered)))
                    .collect(),
            );
        }
    }
}

/// Content that is looked up to be kept: see [`Blobs::vouch`].
#[derive(Debug)]
pub struct Vouch<'a> {
    blobs: &'a Blobs,
    namespace: &'a str,
    inner: segstore::Vouch<'a>,
}

impl Blobs {
    /// Begins to look content up in order to keep what is there.
    pub fn vouch<'a>(&'a self, namespace: &'a str) -> Vouch<'a> {
        Vouch {
            blobs: self,
            namespace,
            inner: self.store.vouch(),
        }
    }

    /// The largest blob that can be stored.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    pub(super) fn has_packed(&self) -> bool {
        self.packed.load(Ordering::Relaxed)
    }

    /// Every write passes here, so that nobody looks for compressed content in vain.
    pub(super) fn expect(&self, target: &Target) {
        if target.key().kind == STORED && !self.has_packed() {
            self.packed.store(true, Ordering::SeqCst);
        }
    }
}

impl Vouch<'_> {
    /// Whether content of that name and size is there.
    pub fn has(&mut self, digest: &Digest) -> Result<bool, Error> {
        let mut key = digest.key();
        let namespace = self.namespace.as_bytes();
        if let Some(found) = self.inner.find(&Key::new(Kind::Cas.stored(), namespace, &key)) {
            return Ok(found.len == digest.size);
        }
        if digest.is_empty_blob() {
            return Ok(true);
        }
        if !self.blobs.has_packed() {
            return Ok(false);
        }
        mark(&mut key);
        if self.inner.find(&Key::new(STORED, namespace, &key)).is_none() {
            return Ok(false);
        }
        self.blobs.has_compressed(self.namespace, digest)
    }

    /// Keeps an entry of another kind too.
    pub fn keep(&mut self, kind: Kind, key: &[u8]) {
        let _ = self
            .inner
            .find(&Key::new(kind.stored(), self.namespace.as_bytes(), key));
    }

    /// Keeps all that was found from eviction for a time. `false`: something went meanwhile; look again.
    pub fn settle(self, ttl: Duration) -> bool {
        self.inner.settle(ttl)
    }
}
