//! One budget for the bytes of requests in flight.
//!
//! Everything a request holds in memory (a small body waiting for its group commit, the window of a streamed one, a JSON
//! document) is reserved here first. Reads served by `sendfile` hold nothing and reserve nothing. Waiting is first come, first
//! served, so a connection with large bodies cannot starve one with small ones; who waits too long is told 503 with
//! `Retry-After: 1` before any of its body is lost.

use crate::pressure::{Pressure, State};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits are counted in blocks, since a semaphore counts in 32 bits.
const BLOCK: u64 = 4096;
/// Below this the node would refuse ordinary requests.
const SMALLEST: u64 = 8 * 1024 * 1024;
/// Above this more memory buys nothing: it is already thousands of requests.
const LARGEST: u64 = 1024 * 1024 * 1024;
/// How long a request waits for its turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// The node is busy; ask again in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Server is overloaded")]
pub struct Overloaded;

/// The budget. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Budget {
    blocks: Arc<Semaphore>,
    pressure: Arc<Pressure>,
    capacity: u64,
}

/// Bytes reserved until dropped.
#[derive(Debug)]
pub struct Reservation {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// A budget of about `bytes`. Under `pressure` nobody waits for it.
    pub fn new(bytes: u64, pressure: Arc<Pressure>) -> Self {
        let blocks = usize::try_from(bytes.div_ceil(BLOCK))
            .unwrap_or(Semaphore::MAX_PERMITS)
            .min(Semaphore::MAX_PERMITS);
        Self {
            blocks: Arc::new(Semaphore::new(blocks)),
            pressure,
            capacity: blocks as u64 * BLOCK,
        }
    }

    /// Reserves room for `bytes`, waiting a little for others to finish. One request never asks for more than the whole.
    pub async fn reserve(&self, bytes: u64) -> Result<Reservation, Overloaded> {
        let blocks = u32::try_from(bytes.min(self.capacity).div_ceil(BLOCK)).map_err(|_| Overloaded)?;
        if let Ok(permit) = self.blocks.clone().try_acquire_many_owned(blocks) {
            return Ok(Reservation { _permit: Some(permit) });
        }
        if self.pressure.state() >= State::Constrained {
            return Err(Overloaded);
        }
        match tokio::time::timeout(PATIENCE, self.blocks.clone().acquire_many_owned(blocks)).await {
            Ok(Ok(permit)) => Ok(Reservation { _permit: Some(permit) }),
            Ok(Err(_)) | Err(_) => Err(Overloaded),
        }
    }

    /// Reserves room for `bytes` if there is some now.
    pub fn try_reserve(&self, bytes: u64) -> Result<Reservation, Overloaded> {
        let blocks = u32::try_from(bytes.min(self.capacity).div_ceil(BLOCK)).map_err(|_| Overloaded)?;
        let permit = self.blocks.clone().try_acquire_many_owned(blocks);
        permit
            .map(|permit| Reservation { _permit: Some(permit) })
            .map_err(|_| Overloaded)
    }

    /// All of it.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// What is reserved now.
    pub fn reserved(&self) -> u64 {
        self.capacity
            .saturating_sub(self.blocks.available_permits() as u64 * BLOCK)
    }
}

/// What the machine, or the group of processes we run in, allows us.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MemoryLimit {
    /// Bytes we may use in all.
    pub bytes: u64,
    /// Who says so.
    pub source: LimitSource,
    /// The folder of the cgroup that says so.
    pub cgroup: Option<PathBuf>,
}

/// Where a [`MemoryLimit`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSource {
    /// `memory.max` of cgroup v2.
    CgroupV2,
    /// `memory.limit_in_bytes` of cgroup v1.
    CgroupV1,
    /// All memory of the machine.
    Machine,
    /// Nothing could be read: a guess that suits a small machine.
    Guess,
}

impl MemoryLimit {
    /// Reads the limit below `root` (`/` in earnest). Never fails: a cache without a cgroup is still a cache.
    pub fn discover(root: &Path, machine: Option<u64>) -> Self {
        let whole = machine.unwrap_or(u64::MAX);
        let top = root.join("sys/fs/cgroup");
        let own = own_cgroup(root).map(|path| top.join(path));
        for dir in own.into_iter().chain([top]) {
            if let Some(bytes) = number(&dir.join("memory.max")).filter(|bytes| *bytes < whole) {
                return Self {
                    bytes,
                    source: LimitSource::CgroupV2,
                    cgroup: Some(dir),
                };
            }
        }
        let v1 = root.join("sys/fs/cgroup/memory/memory.limit_in_bytes");
        let (bytes, source) = match (number(&v1).filter(|bytes| *bytes < whole), machine) {
            (Some(bytes), _) => (bytes, LimitSource::CgroupV1),
            (None, Some(bytes)) => (bytes, LimitSource::Machine),
            (None, None) => (512 * 1024 * 1024, LimitSource::Guess),
        };
        Self {
            bytes,
            source,
            cgroup: None,
        }
    }

    /// A quarter of the limit for bytes in flight: the index, the kernel's socket buffers and the page cache need the rest.
    pub fn budget(&self) -> u64 {
        (self.bytes / 4).clamp(SMALLEST, LARGEST)
    }
}

fn own_cgroup(root: &Path) -> Option<String> {
    let text = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(line.to_owned())
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pressure::Bounds;

    const MIB: u64 = 1024 * 1024;

    fn with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_nearest_limit_is_found() {
        let machine = Some(8 * 1024 * MIB);
        let (of_two, of_one) = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes");
        let pod = [
            ("proc/self/cgroup", "0::/pod/x\n"),
            ("sys/fs/cgroup/pod/x/memory.max", "1048576"),
        ];
        for (files, bytes, source) in [
            (&[(of_two, "536870912\n")][..], 512 * MIB, LimitSource::CgroupV2),
            (&pod, MIB, LimitSource::CgroupV2),
            (&[(of_two, "max\n")], 8192 * MIB, LimitSource::Machine),
            (&[(of_one, "268435456")], 256 * MIB, LimitSource::CgroupV1),
            // What version 1 says when there is no limit.
            (&[(of_one, "9223372036854771712")], 8192 * MIB, LimitSource::Machine),
            (&[], 8192 * MIB, LimitSource::Machine),
        ] {
            let root = with(files);
            let limit = MemoryLimit::discover(root.path(), machine);
            assert_eq!((limit.bytes, limit.source), (bytes, source), "{files:?}");
            assert_eq!(limit.cgroup.is_some(), source == LimitSource::CgroupV2);
        }
    }

    #[test]
    fn a_machine_that_says_nothing_still_gets_a_budget() {
        let root = tempfile::tempdir().unwrap();
        let limit = MemoryLimit::discover(root.path(), None);
        assert_eq!(limit.source, LimitSource::Guess);
        assert!(limit.budget() >= SMALLEST);
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_fit_waits_and_is_then_refused() {
        let pressure = Arc::new(Pressure::new(Bounds::new(1000, None, None), None));
        let budget = Budget::new(8 * BLOCK, Arc::clone(&pressure));
        let held = budget.reserve(6 * BLOCK).await.unwrap();
        assert_eq!(budget.reserved(), 6 * BLOCK);
        let asked = tokio::time::Instant::now();
        assert_eq!(budget.reserve(4 * BLOCK).await.unwrap_err(), Overloaded);
        assert_eq!(asked.elapsed(), PATIENCE);
        // Under pressure there is nothing to wait for.
        pressure.observe(700);
        let asked = tokio::time::Instant::now();
        assert_eq!(budget.reserve(4 * BLOCK).await.unwrap_err(), Overloaded);
        assert_eq!(asked.elapsed(), Duration::ZERO);
        drop(held);
        let whole = budget.reserve(100 * BLOCK).await;
        assert!(whole.is_ok(), "more than the whole means the whole");
        drop(whole);
        assert_eq!(budget.reserved(), 0);
    }
}
