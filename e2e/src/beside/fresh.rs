//! Whether a program is what its sources say.

use std::io;
use std::path::Path;
use std::time::SystemTime;

/// Whether a program is younger than these files and all files in these folders.
///
/// Only if it is not, cargo is asked: a program that is built by itself has other features of its dependencies than one that is built with
/// the workspace, and so the gate would build it twice, the second time while tests run. Cargo's own list of its sources does not help:
/// there is none beside a program that was built with the tests.
pub fn is_fresh(program: &Path, sources: &[&Path]) -> bool {
    let made = program.metadata().and_then(|found| found.modified());
    let young = |made| {
        sources
            .iter()
            .try_fold(true, |all, source| Ok(all && is_older(source, made)?))
    };
    made.and_then(young).is_ok_and(|fresh: bool| fresh)
}

fn is_older(path: &Path, than: SystemTime) -> io::Result<bool> {
    let found = path.symlink_metadata()?;
    if !found.is_dir() {
        return Ok(found.modified()? <= than);
    }
    for entry in path.read_dir()? {
        if !is_older(&entry?.path(), than)? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::time::Duration;

    /// An agent of the day before was compared with a stock kubelet, and what had been changed since was not.
    #[test]
    fn a_program_is_stale_once_a_source_is_younger_or_gone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let later = SystemTime::now() + Duration::from_hours(1);
        fs::create_dir_all(at("src/deep")).unwrap();
        for name in ["src/deep/source.rs", "lock", "program"] {
            fs::write(at(name), "").unwrap();
        }
        let touch = |name: &str, time| {
            let file = File::options().write(true).open(at(name)).unwrap();
            file.set_modified(time).unwrap();
        };
        let (src, lock) = (at("src"), at("lock"));
        let fresh = || is_fresh(&at("program"), &[&src, &lock]);
        touch("program", later);
        assert!(fresh());
        for name in ["src/deep/source.rs", "lock"] {
            touch(name, later + Duration::from_secs(1));
            assert!(!fresh(), "{name}");
            touch(name, later);
            assert!(fresh());
        }
        fs::remove_file(at("lock")).unwrap();
        assert!(!fresh());
        assert!(!is_fresh(&at("nothing"), &[&src]));
    }
}
