//! Takes one file out of a release archive. Only that one: no name from the archive ever becomes a path.

use std::{fs::File, io, path::Path};

use flate2::read::GzDecoder;

/// Why it did not work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("it holds no file {0}")]
    NoSuchEntry(String),
    #[error("{0}")]
    Damaged(io::Error),
    #[error("{0}")]
    Write(io::Error),
}

/// Writes the entry `name` of a tar.gz archive to `target`.
pub(crate) fn extract_tar_gz(archive: &Path, name: &str, target: &Path) -> Result<(), Error> {
    let file = File::open(archive).map_err(Error::Damaged)?;
    let mut tar = tar::Archive::new(GzDecoder::new(io::BufReader::new(file)));
    for entry in tar.entries().map_err(Error::Damaged)? {
        let mut entry = entry.map_err(Error::Damaged)?;
        let path = entry.path().map_err(Error::Damaged)?;
        let matches = path.strip_prefix(".").unwrap_or(&path) == Path::new(name);
        if matches && entry.header().entry_type().is_file() {
            let mut out = File::create(target).map_err(Error::Write)?;
            io::copy(&mut entry, &mut out).map_err(|error| match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Write(error),
                _ => Error::Damaged(error),
            })?;
            return Ok(());
        }
    }
    Err(Error::NoSuchEntry(name.to_owned()))
}
