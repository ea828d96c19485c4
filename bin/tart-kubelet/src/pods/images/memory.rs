//! What is remembered of the images of the host: by which names Pods asked for them, and since when nobody needs them. A host
//! whose agent is updated every day would otherwise keep everything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use russet_vm::image::Pinned;
use russet_vm::retain::Idle;
use russet_vm::{GoldenKey, ImageRef};
use serde::{Deserialize, Serialize};

use crate::file;

const FILE: &str = "images.json";

/// What is remembered of one image. Fields are added, never renamed: the next release reads what this one wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// By its digest.
    image: String,
    /// Other names that meant it when a Pod asked for them last.
    #[serde(default)]
    names: BTreeSet<String>,
    /// When it was asked for last.
    #[serde(default)]
    used: Option<Timestamp>,
    /// Since when nobody needs it.
    #[serde(default)]
    idle: Option<Timestamp>,
}

/// The memory. Cheap to copy.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    path: PathBuf,
    notes: Arc<Mutex<BTreeMap<String, Note>>>,
}

impl Memory {
    /// What earlier agents wrote; nothing if that cannot be read.
    pub(super) fn open(state: &Path) -> Self {
        let path = state.join(FILE);
        let notes = std::fs::read(&path)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self {
            path,
            notes: Arc::new(Mutex::new(notes.unwrap_or_default())),
        }
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<String, Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Note>)) {
        let mut notes = self.notes();
        let before = notes.clone();
        change(&mut notes);
        if *notes == before {
            return;
        }
        let written = serde_json::to_vec(&*notes)
            .map_err(std::io::Error::other)
            .and_then(|bytes| file::write(&self.path, &bytes));
        if let Err(error) = written {
            tracing::warn!(%error, "what is known of images could not be written down");
        }
    }

    /// Somebody asked for an image, by a name that meant this one now.
    pub(super) fn used(&self, asked: &ImageRef, image: &Pinned, now: Timestamp) {
        let (name, key) = (asked.to_string(), GoldenKey::of(image).to_string());
        self.change(|notes| {
            for note in notes.values_mut() {
                note.names.remove(&name);
            }
            let note = notes.entry(key).or_default();
            note.image = image.to_string();
            if name != note.image {
                note.names.insert(name);
            }
            (note.used, note.idle) = (Some(now), None);
        });
    }

    /// Which image a name meant when somebody asked for it last.
    pub(super) fn meant(&self, name: &ImageRef) -> Option<GoldenKey> {
        let name = name.to_string();
        let notes = self.notes();
        let found = notes.iter().find(|(_, note)| note.names.contains(&name))?;
        GoldenKey::parse(found.0)
    }

    /// All names of an image.
    pub(super) fn names(&self, key: &GoldenKey) -> Vec<String> {
        let notes = self.notes();
        let note = notes.get(&key.to_string());
        let all = note
            .into_iter()
            .flat_map(|note| std::iter::once(&note.image).chain(&note.names));
        all.filter(|name| !name.is_empty()).cloned().collect()
    }

    /// Images that were asked for since then.
    pub(super) fn used_since(&self, since: Timestamp) -> BTreeSet<GoldenKey> {
        let notes = self.notes();
        let recent = notes
            .iter()
            .filter(|(_, note)| note.used.is_some_and(|used| used >= since));
        recent.filter_map(|(key, _)| GoldenKey::parse(key)).collect()
    }

    /// Images of a repository.
    pub(super) fn of_repository(&self, image: &ImageRef) -> BTreeSet<GoldenKey> {
        let notes = self.notes();
        let same = |note: &Note| ImageRef::parse(&note.image).is_ok_and(|known| known.same_repository(image));
        let found = notes.iter().filter(|(_, note)| same(note));
        found.filter_map(|(key, _)| GoldenKey::parse(key)).collect()
    }

    /// Since when nobody needs which.
    pub(super) fn idle(&self) -> Idle {
        let notes = self.notes();
        let idle = notes
            .iter()
            .filter_map(|(key, note)| Some((GoldenKey::parse(key)?, note.idle?)));
        idle.collect()
    }

    /// Remembers since when nobody needs which, and forgets what is not there any more.
    pub(super) fn set_idle(&self, there: &BTreeSet<GoldenKey>, idle: &Idle) {
        self.change(|notes| {
            notes.retain(|key, _| GoldenKey::parse(key).is_some_and(|key| there.contains(&key)));
            for key in there {
                notes.entry(key.to_string()).or_default().idle = idle.get(key).copied();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(digit: &str) -> (ImageRef, Pinned) {
        let pinned = ImageRef::parse(&format!("ghcr.io/acme/mac@sha256:{}", digit.repeat(64))).unwrap();
        let pinned = pinned.pinned().unwrap();
        (ImageRef::parse("ghcr.io/acme/mac:v1").unwrap(), pinned)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// The clock of a golden base was in memory only, so on a host that was updated daily none ever went.
    #[test]
    fn since_when_nobody_needs_an_image_outlives_the_agent() {
        let dir = tempfile::tempdir().unwrap();
        let (name, pinned) = image("a");
        let key = GoldenKey::of(&pinned);
        let memory = Memory::open(dir.path());
        memory.used(&name, &pinned, at(1));
        memory.set_idle(&[key.clone()].into(), &Idle::from([(key.clone(), at(5))]));
        let again = Memory::open(dir.path());
        assert_eq!(again.idle(), Idle::from([(key.clone(), at(5))]));
        again.used(&name, &pinned, at(9));
        assert_eq!(Memory::open(dir.path()).idle(), Idle::new());
        again.set_idle(&BTreeSet::new(), &Idle::new());
        assert!(Memory::open(dir.path()).names(&key).is_empty());
    }

    #[test]
    fn a_tag_that_moved_is_a_name_of_the_new_image_only() {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::open(dir.path());
        let ((name, old), (_, new)) = (image("a"), image("b"));
        memory.used(&name, &old, at(1));
        memory.used(&name, &new, at(2));
        assert_eq!(memory.meant(&name), Some(GoldenKey::of(&new)));
        assert_eq!(memory.names(&GoldenKey::of(&old)), [old.to_string()]);
        assert_eq!(memory.names(&GoldenKey::of(&new)).len(), 2);
        assert_eq!(memory.used_since(at(2)), [GoldenKey::of(&new)].into());
        assert_eq!(memory.of_repository(&name).len(), 2);
    }

    #[test]
    fn a_damaged_memory_is_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(Memory::open(dir.path()).idle(), Idle::new());
    }
}
