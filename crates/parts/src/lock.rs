//! One builder per part, across processes.
//!
//! The lock is an advisory `flock`, which the kernel drops when its holder dies, however it dies. So there is no stale lock to
//! recognise. The file holds the holder's pid, for the message of those who wait. It is never deleted: a waiter might have it open.

use std::{
    fs::{self, File, TryLockError},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::Error;

/// Held until dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// How often a waiter looks again. `flock` has no way to be told, and a blocking call could not be cancelled.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Lock {
    /// Waits for the lock. `waiting` is told, once per holder, who has it (the pid, if it could be read).
    pub async fn acquire(path: &Path, mut waiting: impl FnMut(Option<u32>)) -> Result<Self, Error> {
        let mut told = None;
        loop {
            match Self::try_acquire(path)? {
                Ok(lock) => return Ok(lock),
                Err(holder) => {
                    if told != Some(holder) {
                        told = Some(holder);
                        waiting(holder);
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
        }
    }

    /// The lock, or the pid of who has it.
    fn try_acquire(path: &Path) -> Result<Result<Self, Option<u32>>, Error> {
        let folder = path.parent().map(PathBuf::from).unwrap_or_default();
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(Error::io("open the lock", path))?;
        match file.try_lock() {
            Ok(()) => {
                let write = |file: &mut File| {
                    file.set_len(0)?;
                    file.rewind()?;
                    writeln!(file, "{}", std::process::id())
                };
                write(&mut file).map_err(Error::io("write the lock", path))?;
                Ok(Ok(Self { file }))
            }
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // Its holder may be writing it at this moment; the message does without the pid then.
                let _ = file.read_to_string(&mut text);
                Ok(Err(text.trim().parse().ok()))
            }
            Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file would release it too; this is sooner if a child inherited the descriptor.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiter_is_told_the_pid_and_gets_the_lock_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks/etcd.lock");
        let first = Lock::acquire(&path, |_| panic!("nobody has it")).await.unwrap();
        let (told, mut hear) = tokio::sync::mpsc::unbounded_channel();
        let second = tokio::spawn({
            let path = path.clone();
            async move { Lock::acquire(&path, |pid| told.send(pid).unwrap()).await }
        });
        assert_eq!(hear.recv().await.unwrap(), Some(std::process::id()));
        drop(first);
        second.await.unwrap().unwrap();
    }
}
