//! Free disk space, asked for before gigabytes are written: a build that fills the disk also breaks whatever else runs there.

use std::{fmt, io, path::Path, sync::Arc};

use crate::Error;

/// How free space is measured. A value rather than a call, so that a full disk can be tested without filling one.
#[derive(Clone)]
pub struct FreeSpace(Arc<Measure>);

type Measure = dyn Fn(&Path) -> io::Result<u64> + Send + Sync;

impl FreeSpace {
    /// Any way of measuring.
    pub fn new(measure: impl Fn(&Path) -> io::Result<u64> + Send + Sync + 'static) -> Self {
        Self(Arc::new(measure))
    }

    /// Bytes an ordinary user may still write below the nearest existing ancestor of `path`.
    pub fn at(&self, path: &Path) -> io::Result<u64> {
        let existing = path
            .ancestors()
            .find(|ancestor| ancestor.exists())
            .unwrap_or(Path::new("/"));
        (self.0)(existing)
    }

    /// Fails unless `needed` bytes fit at `path`. A file system that cannot be measured is not held against anyone.
    pub(crate) fn require(&self, path: &Path, needed: u64, why: &str) -> Result<(), Error> {
        match self.at(path) {
            Ok(free) if free < needed => Err(Error::NoSpace {
                path: path.to_owned(),
                needed,
                free: Some(free),
                why: why.to_owned(),
            }),
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "failed to measure free space");
                Ok(())
            }
        }
    }
}

impl Default for FreeSpace {
    fn default() -> Self {
        Self::new(|path| {
            let stat = rustix::fs::statvfs(path)?;
            Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
        })
    }
}

impl fmt::Debug for FreeSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FreeSpace")
    }
}

/// `6.0 GiB`, `412 MiB`: sizes as people read them.
pub(crate) fn human(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    if bytes >= GIB {
        let tenths = bytes / (GIB / 10);
        format!("{}.{} GiB", tenths / 10, tenths % 10)
    } else {
        format!("{} MiB", bytes.div_ceil(MIB))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(human(6 << 30), "6.0 GiB");
        assert_eq!(human((1 << 30) + (1 << 29)), "1.5 GiB");
        assert_eq!(human(1), "1 MiB");
    }

    #[test]
    fn a_folder_that_does_not_exist_yet_is_measured_at_its_parent() {
        let free = FreeSpace::default().at(Path::new("/tmp/no/such/folder/yet")).unwrap();
        assert!(free > 0);
    }
}
