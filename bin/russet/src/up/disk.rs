//! A full disk, found before the work and recognised after it failed.
//!
//! etcd preallocates its log and kube-apiserver, Helm and Cluster API write their own files; each has its own way of
//! saying "no space left", most of them in a log. Asking the file system gives one clear sentence instead.

use crate::status::view::bytes;
use russet_parts::FreeSpace;
use std::path::{Path, PathBuf};

/// etcd's log segments and snapshots, logs of all parts up to their bounds for a working day, Helm's records.
pub const NEEDED: u64 = 600 << 20;

/// Below this, whatever just failed most likely failed for lack of space.
const FULL: u64 = 64 << 20;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the disk of {} has {} left, and a cluster needs {} to start; free some space or choose another disk with --dir",
    path.display(), bytes(*free), bytes(NEEDED)
)]
pub struct TooLittle {
    pub path: PathBuf,
    pub free: u64,
}

/// Fails when a start would most likely fill the disk. A file system that does not say is believed to have room.
pub fn check(path: &Path, space: &FreeSpace) -> Result<(), TooLittle> {
    match space.at(path) {
        Ok(free) if free < NEEDED => Err(TooLittle {
            path: path.to_owned(),
            free,
        }),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A sentence to add to a failure, when the disk is full now.
pub fn explain(path: &Path, space: &FreeSpace) -> Option<String> {
    let free = space.at(path).ok().filter(|free| *free < FULL)?;
    Some(format!(
        "the disk of {} is full ({} left), which explains failures of any part; free some space and run `russet up` \
         again, nothing needs repair",
        path.display(),
        bytes(free)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(mib: u64) -> FreeSpace {
        FreeSpace::new(move |_| Ok(mib << 20))
    }

    #[test]
    fn a_nearly_full_disk_is_refused_with_numbers() {
        let error = check(Path::new("/"), &space(20)).unwrap_err();
        insta::assert_snapshot!(error, @"the disk of / has 20 MiB left, and a cluster needs 600 MiB to start; free some space or choose another disk with --dir");
        assert_eq!(check(Path::new("/"), &space(4096)), Ok(()));
    }

    #[test]
    fn a_file_system_that_does_not_answer_is_not_held_against_anyone() {
        let silent = FreeSpace::new(|_| Err(std::io::Error::other("?")));
        assert_eq!(check(Path::new("/"), &silent), Ok(()));
        assert_eq!(explain(Path::new("/"), &silent), None);
    }

    #[test]
    fn a_failure_on_a_full_disk_is_explained() {
        assert!(explain(Path::new("/"), &space(3)).unwrap().contains("3 MiB left"));
        assert_eq!(explain(Path::new("/"), &space(1000)), None);
    }
}
