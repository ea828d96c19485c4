//! One `russet` at a time per state directory.
//!
//! Exclusion is an flock on `.russet/lock`: the kernel drops it with the process, so a killed run never leaves a stale
//! lock. The content of the file only says who holds it, for messages and for `down`; it is compared with the process
//! table before it is believed.

use crate::process;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Who holds the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    /// Start time of the process, see [`process::start_time`].
    pub started: u64,
    /// What it does: `up` or `down`.
    pub command: String,
}

impl Holder {
    /// This process, doing `command`.
    pub fn this(command: &str) -> Self {
        let pid = std::process::id();
        Self {
            pid,
            started: process::start_time(pid).unwrap_or_default(),
            command: command.to_owned(),
        }
    }

    pub fn is_alive(&self) -> bool {
        process::is_alive(self.pid, self.started)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", held_message(dir, holder.as_ref()))]
    Held { dir: PathBuf, holder: Option<Holder> },
    #[error("failed to lock {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

fn held_message(dir: &Path, holder: Option<&Holder>) -> String {
    let dir = dir.display();
    match holder {
        Some(Holder { pid, command, .. }) if command == "up" => format!(
            "`russet up` already runs with the state in {dir} (pid {pid}); see it with `russet status`, stop it with \
             `russet down --keep-data`, or start a second cluster with another --dir"
        ),
        Some(Holder { pid, command, .. }) => {
            format!("`russet {command}` is working on {dir} (pid {pid}); try again when it is done")
        }
        None => format!("another russet has just taken {dir}; try again in a moment"),
    }
}

/// Held until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock or says who has it. Never waits.
    pub fn acquire(path: &Path, me: &Holder) -> Result<Self, Error> {
        let failed = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let dir = path.parent().unwrap_or(path).to_owned();
                    return Err(Error::Held {
                        dir,
                        holder: parse(&mut file),
                    });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            // A `down` may have removed the file between our open and our lock; then we hold a lock nobody can see.
            if !is_same_file(path, &file).map_err(failed)? {
                continue;
            }
            write(&mut file, me).map_err(failed)?;
            return Ok(Self { _file: file });
        }
    }
}

fn is_same_file(path: &Path, file: &File) -> io::Result<bool> {
    let open = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(named) => Ok(named.dev() == open.dev() && named.ino() == open.ino()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn write(file: &mut File, me: &Holder) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&serde_json::to_vec(me)?)
}

fn parse(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// The live process that holds the lock, without touching the lock: a reader must never make an `up` fail.
pub fn holder(path: &Path) -> Option<Holder> {
    parse(&mut File::open(path).ok()?).filter(Holder::is_alive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(dir: &tempfile::TempDir) -> PathBuf {
        dir.path().join("lock")
    }

    #[test]
    fn the_second_is_told_the_pid_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let me = Holder::this("up");
        let first = Lock::acquire(&path(&dir), &me).unwrap();
        let Err(Error::Held {
            holder: Some(found), ..
        }) = Lock::acquire(&path(&dir), &me)
        else {
            panic!("two holders")
        };
        assert_eq!(found, me);
        assert_eq!(holder(&path(&dir)), Some(me.clone()));
        drop(first);
        Lock::acquire(&path(&dir), &me).unwrap();
    }

    #[test]
    fn a_lock_file_of_a_dead_process_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let dead = Holder {
            started: u64::MAX,
            ..Holder::this("up")
        };
        std::fs::write(path(&dir), serde_json::to_vec(&dead).unwrap()).unwrap();
        assert_eq!(holder(&path(&dir)), None);
        Lock::acquire(&path(&dir), &Holder::this("up")).unwrap();
    }

    #[test]
    fn a_garbled_lock_file_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            path(&dir),
            "\0\0garbage that is longer than the record that replaces it, to be sure of it",
        )
        .unwrap();
        assert_eq!(holder(&path(&dir)), None);
        let me = Holder::this("up");
        let _lock = Lock::acquire(&path(&dir), &me).unwrap();
        assert_eq!(holder(&path(&dir)), Some(me));
    }

    #[test]
    fn the_messages_say_what_to_do() {
        let up = Holder {
            pid: 4711,
            started: 0,
            command: "up".into(),
        };
        let down = Holder {
            command: "down".into(),
            ..up.clone()
        };
        let dir = Path::new("/p/.russet");
        insta::assert_snapshot!(held_message(dir, Some(&up)), @"`russet up` already runs with the state in /p/.russet (pid 4711); see it with `russet status`, stop it with `russet down --keep-data`, or start a second cluster with another --dir");
        insta::assert_snapshot!(held_message(dir, Some(&down)), @"`russet down` is working on /p/.russet (pid 4711); try again when it is done");
        insta::assert_snapshot!(held_message(dir, None), @"another russet has just taken /p/.russet; try again in a moment");
    }
}
