//! Who may run which image: those to whom its registry gave it. Otherwise an image that came with the secret of one Pod would be
//! there for every other that knows its name.
//!
//! ```text
//!   an image that is here ─┬─ nothing is known of it ─▶ it was here before any Pod asked: everybody's
//!                          ├─ it came without a secret ▶ everybody's
//!                          └─ it came with secrets ────▶ theirs; everybody else has to ask its registry first
//! ```
//!
//! These are the rules of a kubelet with its default, `NeverVerifyPreloadedImages`. Credentials are remembered as fingerprints
//! with a salt of this host, never themselves.
//!
//! In a file of its own, for its loss is of another kind than that of [`super::memory`]. Without the file nothing has come with a
//! secret yet, or whoever owns the host has removed it: all that is here is everybody's, and a host without a network goes on. A
//! file that is there and cannot be read is no such word of its owner, so what is not known is asked for; a power cut does not
//! damage it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use russet_vm::golden::{Gate, fingerprint};
use russet_vm::{Credentials, Error, GoldenKey, ImageRef, Pinned};
use serde::{Deserialize, Serialize};

use crate::file;

const FILE: &str = "image-access.json";
/// How many fingerprints are kept of an image. Passwords that last for hours never come again.
const MOST: usize = 64;

/// Somebody who asks for an image.
#[derive(Clone, Debug)]
pub(crate) enum Asker {
    /// Whoever owns the host. What they fetch is everybody's; what a Pod fetched with its secret is not theirs to give away.
    Owner,
    /// A Pod, with the credentials of its pull secrets.
    Pod(Vec<Credentials>),
}

impl Asker {
    pub(super) fn credentials(&self) -> &[Credentials] {
        match self {
            Self::Owner => &[],
            Self::Pod(credentials) => credentials,
        }
    }
}

/// What is known of one image. Fields are added, never renamed: the next release reads what this one wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// By its digest, for those who read the file.
    image: String,
    /// It is everybody's, for ever: its bytes were.
    #[serde(default)]
    open: bool,
    /// Fingerprints of the credentials that it was pulled with, the latest last.
    #[serde(default)]
    prints: Vec<String>,
}

/// What is written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// Empty until the first fingerprint.
    #[serde(default)]
    salt: String,
    #[serde(default)]
    images: BTreeMap<String, Record>,
    /// Repositories that are asked with credentials just now. What comes from there is nobody's until it is known whose it is.
    #[serde(default)]
    pulling: BTreeSet<String>,
    /// What was written down before could not be read.
    #[serde(default)]
    damaged: bool,
}

#[derive(Debug, Default)]
struct State {
    kept: Kept,
    /// How many pulls make an entry of [`Kept::pulling`]. One that an earlier agent did not live to see the end of counts for ever:
    /// its `tart` may have lived on.
    pulls: BTreeMap<String, u32>,
    /// How often a registry gave something.
    arrivals: u64,
}

/// Who may run which image. Cheap to copy.
#[derive(Clone, Debug)]
pub(super) struct Access {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

/// A moment, for [`Access::forget`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(u64);

/// Whether an image that is here may be used without asking its registry, by somebody with these fingerprints. `doubtful` is one
/// that may have come with a secret although nothing is known of it.
fn may_use(record: Option<&Record>, doubtful: bool, prints: &BTreeSet<String>) -> bool {
    match record {
        Some(record) => record.open || record.prints.iter().any(|print| prints.contains(print)),
        None => !doubtful,
    }
}

fn repository(image: &ImageRef) -> String {
    format!("{}/{}", image.host(), image.repository())
}

impl State {
    /// Made when it is needed first; none if the system has nothing random to give.
    fn salt(&mut self) -> Option<&str> {
        if self.kept.salt.is_empty() {
            let mut bytes = [0_u8; 32];
            let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
            random.fill(&mut bytes).ok()?;
            self.kept.salt = STANDARD.encode(bytes);
        }
        Some(&self.kept.salt)
    }

    fn begin(&mut self, repository: &str) {
        *self.pulls.entry(repository.to_owned()).or_default() += 1;
        self.kept.pulling.insert(repository.to_owned());
    }

    fn end(&mut self, repository: &str) {
        let left = self.pulls.get(repository).map_or(0, |count| count.saturating_sub(1));
        if left > 0 {
            self.pulls.insert(repository.to_owned(), left);
        } else {
            self.pulls.remove(repository);
            self.kept.pulling.remove(repository);
        }
    }

    /// A registry gave an image to somebody with these credentials, or to somebody without any.
    fn given(&mut self, image: &Pinned, with: Option<&Credentials>) {
        let print = with.and_then(|credentials| Some(fingerprint(credentials, self.salt()?)));
        let record = self.kept.images.entry(GoldenKey::of(image).to_string()).or_default();
        record.image = image.to_string();
        if with.is_none() {
            record.open = true;
            record.prints.clear();
        } else if !record.open {
            record.prints.retain(|known| Some(known) != print.as_ref());
            record.prints.extend(print);
            let over = record.prints.len().saturating_sub(MOST);
            record.prints.drain(..over);
        }
    }

    fn admits(&mut self, image: &Pinned, asker: &Asker) -> bool {
        let record = self.kept.images.get(&GoldenKey::of(image).to_string());
        let doubtful = self.kept.damaged || self.kept.pulling.contains(&repository(&image.to_ref()));
        let credentials = asker.credentials().iter();
        let prints: BTreeSet<String> = credentials
            .map(|credentials| fingerprint(credentials, &self.kept.salt))
            .collect();
        let admitted = may_use(record, doubtful, &prints);
        if admitted && record.is_none() {
            // It is known from now on, whatever comes from its repository later.
            self.given(image, None);
        }
        admitted
    }
}

impl Access {
    pub(super) fn open(state: &Path) -> Self {
        let path = state.join(FILE);
        let read = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kept::default()),
            Err(error) => Err(error),
        };
        let kept = read.unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(%error, %path, "who may run which image cannot be read; registries are asked again");
            Kept {
                damaged: true,
                ..Kept::default()
            }
        });
        let pulls = kept.pulling.iter().map(|repository| (repository.clone(), 1)).collect();
        let state = State {
            kept,
            pulls,
            arrivals: 0,
        };
        Self {
            path,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// What stands between somebody and an image, for an attempt with these of their credentials.
    pub(super) fn door<'a>(&'a self, asker: &'a Asker, with: Option<&'a Credentials>) -> Door<'a> {
        Door {
            access: self,
            asker,
            with,
            shut: AtomicBool::new(false),
        }
    }

    /// Now.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.state().arrivals)
    }

    /// Forgets an image that was deleted, unless a registry gave something since: it may be here again.
    pub(super) fn forget(&self, key: &GoldenKey, mark: Mark) {
        self.change_if_possible(|state| {
            if state.arrivals == mark.0 {
                state.kept.images.remove(&key.to_string());
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known, and writes it down.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> (T, io::Result<()>) {
        let mut state = self.state();
        let before = state.kept.clone();
        let done = change(&mut state);
        if state.kept == before {
            return (done, Ok(()));
        }
        let written = serde_json::to_vec(&state.kept)
            .map_err(io::Error::from)
            .and_then(|bytes| file::write_durably(&self.path, &bytes));
        (done, written)
    }

    /// The same, where it does no harm if only this agent knows: the next one finds a pull that did not end, and asks.
    fn change_if_possible<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (done, written) = self.change(change);
        if let Err(error) = written {
            tracing::warn!(%error, "who may run which image could not be written down");
        }
        done
    }
}

/// What stands between somebody and an image.
pub(super) struct Door<'a> {
    access: &'a Access,
    asker: &'a Asker,
    with: Option<&'a Credentials>,
    shut: AtomicBool,
}

impl Door<'_> {
    /// Whether an image was here that this one may not have without asking.
    pub(super) fn was_shut(&self) -> bool {
        self.shut.load(Ordering::Relaxed)
    }
}

impl Gate for Door<'_> {
    fn admits(&self, image: &Pinned) -> bool {
        let theirs = self.access.change_if_possible(|state| state.admits(image, self.asker));
        let admitted = theirs || matches!(self.asker, Asker::Owner);
        if !admitted {
            self.shut.store(true, Ordering::Relaxed);
        }
        admitted
    }

    fn asks(&self, image: &ImageRef) -> Result<(), Error> {
        if self.with.is_none() {
            return Ok(());
        }
        let repository = repository(image);
        let ((), written) = self.access.change(|state| state.begin(&repository));
        written.map_err(|source| {
            self.access.state().end(&repository);
            match source.kind() {
                io::ErrorKind::StorageFull => Error::NoSpace(source.to_string()),
                _ => Error::File {
                    path: self.access.path.clone(),
                    source,
                },
            }
        })
    }

    fn given(&self, image: &Pinned) {
        self.access.change_if_possible(|state| {
            state.arrivals += 1;
            state.given(image, self.with);
            if self.with.is_some() {
                state.end(&repository(&image.to_ref()));
            }
        });
    }

    fn refused(&self, image: &ImageRef) {
        if self.with.is_some() {
            self.access.change_if_possible(|state| state.end(&repository(image)));
        }
    }
}

#[cfg(test)]
mod tests;
