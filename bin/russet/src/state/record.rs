//! What must be known about old data before it is used again: `.russet/state.json`.
//!
//! etcd and Kubernetes read data of the same or the previous minor version, never of a newer one. So the versions that
//! wrote the data are recorded, and a mismatch is a clear message instead of a crash loop of kube-apiserver.

use super::{Layout, files};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// Version of the layout of the state directory. Raised when an older russet could not use it any more.
pub const SCHEMA: u32 = 1;

/// Contents of `state.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub schema: u32,
    /// Version of the russet that last started this cluster.
    pub russet: String,
    /// Versions of the parts that wrote data here.
    #[serde(default)]
    pub parts: BTreeMap<String, String>,
    /// Content hash of each chart that was installed, by release name.
    #[serde(default)]
    pub charts: BTreeMap<String, String>,
    /// The cluster of somebody else that was given with `--kubeconfig`, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<Existing>,
}

/// A cluster russet did not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existing {
    pub kubeconfig: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "the state in {} was written by a newer russet ({theirs}, layout {schema}; this one knows layout {SCHEMA}): use \
         that version, or start afresh with `russet down`",
        dir.display()
    )]
    Newer { dir: PathBuf, theirs: String, schema: u32 },
    #[error(
        "the data in {} was written by {part} {theirs}, which {part} {ours} cannot read: use the russet that wrote it \
         ({russet}), or start afresh with `russet down`",
        dir.display()
    )]
    Parts {
        dir: PathBuf,
        part: String,
        theirs: String,
        ours: String,
        russet: String,
    },
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// No earlier run, or none that got far enough to record anything.
    Nothing,
    /// The file was unreadable; the data beside it is used as it is, since only versions and hashes are lost.
    Corrupt(String),
    Record(Record),
}

pub fn read(layout: &Layout) -> Result<Found, Error> {
    let path = layout.record();
    match files::read_json::<Record>(&path) {
        Ok(files::Read::Missing) => Ok(Found::Nothing),
        Ok(files::Read::Corrupt(why)) => Ok(Found::Corrupt(why)),
        Ok(files::Read::Value(record)) => Ok(Found::Record(record)),
        Err(source) => Err(Error::Io { path, source }),
    }
}

pub fn write(layout: &Layout, record: &Record) -> Result<(), Error> {
    let path = layout.record();
    files::replace_json(&path, record).map_err(|source| Error::Io { path, source })
}

/// A part whose version changed since the data was written, in a direction that works.
#[derive(Debug, PartialEq, Eq)]
pub struct Upgrade {
    pub part: String,
    pub from: String,
    pub to: String,
}

/// Decides whether data of `old` may be used with the parts in `now`.
pub fn compare(layout: &Layout, old: &Record, now: &BTreeMap<String, String>) -> Result<Vec<Upgrade>, Error> {
    let dir = layout.root().to_owned();
    if old.schema > SCHEMA {
        return Err(Error::Newer {
            dir,
            theirs: old.russet.clone(),
            schema: old.schema,
        });
    }
    let mut upgrades = Vec::new();
    for (part, ours) in now {
        let Some(theirs) = old.parts.get(part).filter(|theirs| *theirs != ours) else {
            continue;
        };
        let readable = match (minor(theirs), minor(ours)) {
            (Some((major, from)), Some((same, to))) => major == same && (from..=from + 1).contains(&to),
            // A version that is not a number says nothing about compatibility; the part itself will.
            _ => true,
        };
        if !readable {
            return Err(Error::Parts {
                dir,
                part: part.clone(),
                theirs: theirs.clone(),
                ours: ours.clone(),
                russet: old.russet.clone(),
            });
        }
        upgrades.push(Upgrade {
            part: part.clone(),
            from: theirs.clone(),
            to: ours.clone(),
        });
    }
    Ok(upgrades)
}

/// `v1.35.4` as `(1, 35)`.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn layout() -> Layout {
        Layout::new(Path::new("/p"), Path::new(".russet"))
    }

    fn record(kubernetes: &str) -> Record {
        Record {
            schema: SCHEMA,
            russet: "0.1.0".into(),
            parts: [("kube-apiserver".to_owned(), kubernetes.to_owned())].into(),
            charts: BTreeMap::new(),
            existing: None,
        }
    }

    fn now(kubernetes: &str) -> BTreeMap<String, String> {
        record(kubernetes).parts
    }

    #[test]
    fn the_same_versions_and_new_parts_need_no_word() {
        assert_eq!(compare(&layout(), &record("v1.35.4"), &now("v1.35.4")).unwrap(), []);
        let mut more = now("v1.35.4");
        more.insert("etcd".into(), "v3.6.16".into());
        assert_eq!(compare(&layout(), &record("v1.35.4"), &more).unwrap(), []);
    }

    #[test]
    fn a_patch_or_one_minor_forward_is_an_upgrade() {
        for to in ["v1.35.9", "v1.35.1", "v1.36.0"] {
            let upgrades = compare(&layout(), &record("v1.35.4"), &now(to)).unwrap();
            assert_eq!(upgrades.first().unwrap().to, to);
        }
    }

    #[test]
    fn going_back_or_jumping_is_refused_with_the_way_out() {
        for to in ["v1.34.9", "v1.37.0", "v2.0.0"] {
            assert!(compare(&layout(), &record("v1.35.4"), &now(to)).is_err(), "{to}");
        }
        let error = compare(&layout(), &record("v1.36.0"), &now("v1.35.4")).unwrap_err();
        insta::assert_snapshot!(error, @"the data in /p/.russet was written by kube-apiserver v1.36.0, which kube-apiserver v1.35.4 cannot read: use the russet that wrote it (0.1.0), or start afresh with `russet down`");
    }

    #[test]
    fn a_layout_of_the_future_is_refused() {
        let newer = Record {
            schema: SCHEMA + 1,
            russet: "9.0.0".into(),
            ..record("v1.35.4")
        };
        let error = compare(&layout(), &newer, &now("v1.35.4")).unwrap_err();
        insta::assert_snapshot!(error, @"the state in /p/.russet was written by a newer russet (9.0.0, layout 2; this one knows layout 1): use that version, or start afresh with `russet down`");
    }

    #[test]
    fn a_record_survives_the_disk_and_a_torn_one_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), Path::new("."));
        assert_eq!(read(&layout).unwrap(), Found::Nothing);
        write(&layout, &record("v1.35.4")).unwrap();
        assert_eq!(read(&layout).unwrap(), Found::Record(record("v1.35.4")));
        std::fs::write(layout.record(), "{").unwrap();
        assert!(matches!(read(&layout).unwrap(), Found::Corrupt(_)));
    }
}
