//! Receipts: proof that a cached tool is whole.
//!
//! A receipt is written after its tool is in place and synced, by rename. So a tool without one is unfinished, and is not used.
//! It holds the digest of the tool, and its size and modification time as a shortcut: as in Git's index, a file whose size and
//! time are as recorded is taken as unchanged, any other is read and compared. Reading 600 MB at every start would cost seconds.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Error, Origin};

const SCHEMA: u32 = 1;

/// What a cached tool is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    schema: u32,
    pub tool: String,
    pub version: String,
    pub origin: Origin,
    /// URL, module or package.
    pub source: String,
    /// Of the file; of a folder, over the names and digests of its files in order.
    pub sha256: String,
    #[serde(flatten)]
    pub stamp: Stamp,
}

/// What tells, without reading it, that a tool has not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    pub size: u64,
    /// Nanoseconds since 1970; of a folder, the latest of its files.
    pub modified: i64,
}

/// How a tool and its receipt relate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Whole(Receipt),
    /// No tool, or one that nobody vouches for.
    Absent,
    Broken(String),
}

/// `<tool>.receipt.toml`, beside the tool.
pub(crate) fn path_for(tool: &Path) -> PathBuf {
    let mut name = tool.file_name().unwrap_or_default().to_owned();
    name.push(".receipt.toml");
    tool.with_file_name(name)
}

impl Receipt {
    /// Reads the tool and describes it.
    pub(crate) fn of(path: &Path, version: &str, origin: Origin, source: &str) -> io::Result<Self> {
        Ok(Self {
            schema: SCHEMA,
            tool: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            version: version.to_owned(),
            origin,
            source: source.to_owned(),
            sha256: digest(path)?,
            stamp: Stamp::of(path)?,
        })
    }

    /// Writes it beside its tool, whole or not at all.
    pub(crate) fn write(&self, tool: &Path) -> Result<(), Error> {
        let path = path_for(tool);
        let folder = tool.parent().unwrap_or(Path::new("."));
        let text = toml::to_string(self).map_err(|error| Error::Manifest(error.to_string()))?;
        let write = || -> io::Result<()> {
            let mut file = tempfile::Builder::new()
                .prefix(".receipt-")
                .permissions(fs::Permissions::from_mode(0o644))
                .tempfile_in(folder)?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(Error::io("write the receipt", &path))
    }
}

/// Compares a tool with its receipt; `thoroughly` reads it even if its stamp matches.
pub(crate) fn check(tool: &Path, thoroughly: bool) -> Result<Check, Error> {
    let text = match fs::read_to_string(path_for(tool)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Check::Absent),
        Err(error) => return Err(Error::io("read the receipt", &path_for(tool))(error)),
    };
    let receipt: Receipt = match toml::from_str(&text) {
        Ok(receipt) => receipt,
        Err(error) => return Ok(Check::Broken(format!("its receipt is unreadable: {error}"))),
    };
    if receipt.schema != SCHEMA {
        return Ok(Check::Broken(format!(
            "its receipt has format {}, expected {SCHEMA}",
            receipt.schema
        )));
    }
    let stamp = match Stamp::of(tool) {
        Ok(stamp) => stamp,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Check::Absent),
        Err(error) => return Err(Error::io("look at", tool)(error)),
    };
    if stamp == receipt.stamp && !thoroughly {
        return Ok(Check::Whole(receipt));
    }
    if stamp.size != receipt.stamp.size {
        return Ok(Check::Broken(format!(
            "it has {} bytes, expected {}",
            stamp.size, receipt.stamp.size
        )));
    }
    let actual = digest(tool).map_err(Error::io("read", tool))?;
    if actual != receipt.sha256 {
        return Ok(Check::Broken(format!(
            "its sha256 is {actual}, expected {}",
            receipt.sha256
        )));
    }
    if stamp != receipt.stamp {
        // Same bytes, other time: the cache was copied. Remembering the new time spares reading it again; a read-only cache is fine.
        let refreshed = Receipt {
            stamp,
            ..receipt.clone()
        };
        if let Err(error) = refreshed.write(tool) {
            tracing::debug!(tool = %tool.display(), %error, "failed to refresh a receipt");
        }
    }
    Ok(Check::Whole(receipt))
}

impl Stamp {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        if !metadata.is_dir() {
            return Ok(Self {
                size: metadata.len(),
                modified: nanoseconds(&metadata),
            });
        }
        let mut stamp = Self { size: 0, modified: 0 };
        for file in files(path)? {
            let metadata = fs::metadata(&file)?;
            stamp.size += metadata.len();
            stamp.modified = stamp.modified.max(nanoseconds(&metadata));
        }
        Ok(stamp)
    }
}

fn nanoseconds(metadata: &fs::Metadata) -> i64 {
    metadata
        .mtime()
        .saturating_mul(1_000_000_000)
        .saturating_add(metadata.mtime_nsec())
}

/// Every file below a folder, sorted. A link to a folder is not followed: it may lead out of the tool, into a system that changes.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn digest(path: &Path) -> io::Result<String> {
    if !path.is_dir() {
        return digest_file(path);
    }
    let mut hasher = Sha256::new();
    for file in files(path)? {
        hasher.update(file.strip_prefix(path).unwrap_or(&file).as_os_str().as_bytes());
        hasher.update([0]);
        hasher.update(digest_file(&file)?.as_bytes());
    }
    Ok(hex(&hasher.finalize()))
}

fn digest_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        let read = file.read(&mut buffer)?;
        match buffer.get(..read) {
            Some(bytes) if !bytes.is_empty() => hasher.update(bytes),
            _ => return Ok(hex(&hasher.finalize())),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn tool(folder: &Path) -> PathBuf {
        let path = folder.join("etcd");
        fs::write(&path, b"a program").unwrap();
        path
    }

    fn vouched(folder: &Path) -> PathBuf {
        let path = tool(folder);
        let receipt = Receipt::of(&path, "v1", Origin::Go, "module@v1").unwrap();
        receipt.write(&path).unwrap();
        path
    }

    fn age(path: &Path) {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_mins(1)).unwrap();
    }

    #[test]
    fn a_tool_without_a_receipt_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(check(&tool(folder.path()), false).unwrap(), Check::Absent);
    }

    #[test]
    fn a_receipt_without_a_tool_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        let path = vouched(folder.path());
        fs::remove_file(&path).unwrap();
        assert_eq!(check(&path, false).unwrap(), Check::Absent);
    }

    #[test]
    fn a_truncated_tool_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let path = vouched(folder.path());
        fs::write(&path, b"a pro").unwrap();
        assert!(
            matches!(check(&path, false).unwrap(), Check::Broken(reason) if reason.contains("5 bytes, expected 9"))
        );
    }

    #[test]
    fn changed_bytes_of_the_same_length_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = vouched(folder.path());
        fs::write(&path, b"b program").unwrap();
        age(&path);
        assert!(matches!(check(&path, false).unwrap(), Check::Broken(reason) if reason.contains("sha256")));
    }

    #[test]
    fn a_copied_tool_is_still_whole_and_its_new_time_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let path = vouched(folder.path());
        age(&path);
        assert!(matches!(check(&path, false).unwrap(), Check::Whole(_)));
        let Check::Whole(receipt) = check(&path, false).unwrap() else {
            panic!("not whole")
        };
        assert_eq!(receipt.stamp, Stamp::of(&path).unwrap());
    }

    #[test]
    fn a_thorough_check_does_not_trust_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = vouched(folder.path());
        let receipt = fs::read_to_string(path_for(&path)).unwrap();
        let digest = digest(&path).unwrap();
        fs::write(path_for(&path), receipt.replace(&digest, &"0".repeat(64))).unwrap();
        assert!(matches!(check(&path, false).unwrap(), Check::Whole(_)));
        assert!(matches!(check(&path, true).unwrap(), Check::Broken(_)));
    }

    #[test]
    fn a_receipt_of_another_format_or_cut_short_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let path = vouched(folder.path());
        let text = fs::read_to_string(path_for(&path)).unwrap();
        for damaged in [
            text.replace("schema = 1", "schema = 2"),
            text[..text.len() / 2].to_owned(),
            String::new(),
        ] {
            fs::write(path_for(&path), damaged).unwrap();
            assert!(matches!(check(&path, false).unwrap(), Check::Broken(_)));
        }
    }

    #[test]
    fn a_folder_is_vouched_for_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::create_dir_all(path.join("crd")).unwrap();
        fs::write(path.join("crd/a.yaml"), "a").unwrap();
        fs::write(path.join("b.yaml"), "b").unwrap();
        Receipt::of(&path, "v1", Origin::Go, "module")
            .unwrap()
            .write(&path)
            .unwrap();
        assert!(matches!(check(&path, false).unwrap(), Check::Whole(_)));
        fs::remove_file(path.join("b.yaml")).unwrap();
        assert!(matches!(check(&path, false).unwrap(), Check::Broken(_)));
    }
}
