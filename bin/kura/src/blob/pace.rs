//! Who writes the pieces of a streamed body: the serving thread, or another one.
//!
//! A write into the page cache takes as long as a copy, and handing it to another thread would cost more than it saves. But a
//! kernel with too many dirty pages lets the writer wait for the disk, and everybody the thread serves would wait with it. So
//! the serving thread writes until a write was slow; for a while after that, every streamed body is written elsewhere.

use super::{Error, Writer};
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A write that took longer than this has waited for something.
const SLOW: Duration = Duration::from_millis(5);
/// For so long a slow disk is expected to stay slow.
const MEMORY: Duration = Duration::from_secs(10);

/// What is known about the disk's speed. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Pace {
    origin: Instant,
    /// Milliseconds after `origin` until which writes are expected to be slow.
    slow_until: Arc<AtomicU64>,
    moved: Arc<AtomicU64>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            slow_until: Arc::default(),
            moved: Arc::default(),
        }
    }
}

impl Pace {
    fn millis(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.origin).as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether a write at `now` should be left to another thread.
    fn is_slow(&self, now: Instant) -> bool {
        self.millis(now) < self.slow_until.load(Ordering::Relaxed)
    }

    /// A write that began at `began` has ended at `now`.
    pub fn took(&self, began: Instant, now: Instant) {
        if now.saturating_duration_since(began) > SLOW {
            self.slow_until.store(self.millis(now + MEMORY), Ordering::Relaxed);
        }
    }

    /// Writes that were left to another thread.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Whether what is written now should be left to another thread.
    pub fn is_slow_now(&self) -> bool {
        self.is_slow(Instant::now())
    }

    /// Appends bytes to a blob.
    pub async fn write(&self, mut writer: Writer, bytes: &[u8]) -> Result<Writer, Error> {
        let began = Instant::now();
        if !self.is_slow(began) {
            writer.write(bytes)?;
            self.took(began, Instant::now());
            return Ok(writer);
        }
        let work = |(writer, bytes): &mut (Writer, Vec<u8>)| writer.write(bytes);
        let moved = self.elsewhere((writer, bytes.to_vec()), work, || Error::Unanswered);
        moved.await.map(|(writer, _)| writer)
    }

    /// Appends bytes to a file.
    pub async fn append(&self, file: Arc<File>, bytes: &[u8]) -> io::Result<Arc<File>> {
        let began = Instant::now();
        if !self.is_slow(began) {
            (&*file).write_all(bytes)?;
            self.took(began, Instant::now());
            return Ok(file);
        }
        let work = |(file, bytes): &mut (Arc<File>, Vec<u8>)| (&**file).write_all(bytes);
        let lost = || io::Error::other("the writing thread ended");
        let moved = self.elsewhere((file, bytes.to_vec()), work, lost);
        moved.await.map(|(file, _)| file)
    }

    /// Writes on whichever thread that hurts least. `lost` is said when the other thread did not come back.
    pub async fn run<T, E>(&self, mut to: T, work: fn(&mut T) -> Result<(), E>, lost: fn() -> E) -> Result<T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let began = Instant::now();
        if self.is_slow(began) {
            return self.elsewhere(to, work, lost).await;
        }
        work(&mut to)?;
        self.took(began, Instant::now());
        Ok(to)
    }

    async fn elsewhere<T, E>(&self, mut to: T, work: fn(&mut T) -> Result<(), E>, lost: fn() -> E) -> Result<T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        self.moved.fetch_add(1, Ordering::Relaxed);
        let pace = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            work(&mut to)?;
            pace.took(began, Instant::now());
            Ok(to)
        });
        task.await.map_err(|_| lost())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::{Blobs, Kind, Put, Target};
    use crate::config::Durability;

    #[test]
    fn one_slow_write_moves_the_next_ones_for_a_while() {
        let pace = Pace::default();
        let start = pace.origin;
        pace.took(start, start + Duration::from_millis(4));
        assert!(!pace.is_slow(start + Duration::from_millis(4)));
        let slow = start + Duration::from_millis(200);
        pace.took(start, slow);
        assert!(pace.is_slow(slow) && pace.is_slow(slow + MEMORY / 2));
        assert!(!pace.is_slow(slow + MEMORY));
    }

    #[tokio::test]
    async fn bytes_are_the_same_whoever_writes_them() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), Some(1 << 30), Durability::ProcessCrash).unwrap();
        let target = Target {
            kind: Kind::Gradle,
            namespace: "".into(),
            key: b"k".as_slice().into(),
        };
        let pace = Pace::default();
        let mut writer = blobs.writer(&target, None).unwrap();
        let mut whole = Vec::new();
        for round in 0..6_u8 {
            if round == 3 {
                let now = Instant::now();
                pace.took(now, now + Duration::from_secs(1));
            }
            let piece = vec![round; 100_000];
            writer = pace.write(writer, &piece).await.unwrap();
            whole.extend(piece);
        }
        // More, if the machine that runs this is slow.
        assert!(pace.moved() >= 3);
        assert_eq!(Blobs::commit(writer).await.unwrap(), Put::Created);
        let hit = blobs.find(Kind::Gradle, "", b"k").unwrap().unwrap();
        let hit = hit.verify().unwrap().unwrap();
        let mut read = vec![0; whole.len()];
        hit.read_at(0, &mut read).unwrap();
        assert!(read == whole);
    }
}
