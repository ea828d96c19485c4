//! Images, fetched off the path of everything else: a pull of an hour holds up nobody but those who wait for it. And let go again
//! ([`clean`]), as long as nobody needs them.

mod access;
mod clean;
mod memory;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use russet_vm::golden::Gate;
use russet_vm::{Credentials, Error, Golden, GoldenKey, Goldens, ImageRef, Pinned, Pull, PullPolicy, Runtime};
use tokio::time::Instant;

pub(crate) use self::access::Asker;
use self::access::{Access, Door};
use self::memory::Memory;
use super::directory::Directory;
use crate::host::{Board, Gauge};
use crate::housekeeping::Keeping;
use crate::ledger::Ledger;
use crate::meters::Meters;

/// Why a registry had to be asked although the image is here.
const NOT_THEIRS: &str =
    "the image is on the host, but nothing shows that this Pod may have it, so its registry has to say so";

/// The images of the host. Cheap to copy.
#[derive(Clone, Debug)]
pub(crate) struct Images {
    runtime: Arc<dyn Runtime>,
    goldens: Goldens,
    meters: Arc<Meters>,
    memory: Memory,
    access: Access,
    ledger: Ledger,
    directory: Directory,
    gauge: Gauge,
    board: Board,
    keep_unused: bool,
    /// One at a time lets go.
    cleaning: Arc<tokio::sync::Mutex<()>>,
    /// What is being fetched, and what shall be here before a Pod comes.
    asked: Arc<Mutex<Asked>>,
}

#[derive(Debug, Default)]
struct Asked {
    under_way: Vec<ImageRef>,
    wanted: BTreeSet<GoldenKey>,
}

/// An image that is being fetched, until this is dropped.
struct UnderWay {
    images: Images,
    image: ImageRef,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut asked = self.images.asked();
        if let Some(index) = asked.under_way.iter().position(|image| *image == self.image) {
            asked.under_way.swap_remove(index);
        }
    }
}

/// A door, and somebody who hears when a registry is asked.
struct Heard<'a> {
    door: &'a Door<'a>,
    asks: &'a (dyn Fn() + Send + Sync),
}

impl Gate for Heard<'_> {
    fn admits(&self, image: &Pinned) -> bool {
        self.door.admits(image)
    }

    fn asks(&self, image: &ImageRef) -> Result<(), Error> {
        self.door.asks(image)?;
        (self.asks)();
        Ok(())
    }

    fn given(&self, image: &Pinned) {
        self.door.given(image);
    }

    fn refused(&self, image: &ImageRef) {
        self.door.refused(image);
    }
}

impl Images {
    pub(crate) fn new(
        runtime: Arc<dyn Runtime>,
        meters: Arc<Meters>,
        state: &Path,
        keeping: &Keeping,
        ledger: Ledger,
        directory: Directory,
    ) -> Self {
        Self {
            goldens: Goldens::new(Arc::clone(&runtime)),
            runtime,
            meters,
            memory: Memory::open(state),
            access: Access::open(state),
            ledger,
            directory,
            gauge: keeping.disk.clone(),
            board: keeping.board.clone(),
            keep_unused: keeping.keep_unused,
            cleaning: Arc::default(),
            asked: Arc::default(),
        }
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> Vec<ImageRef> {
        self.asked().under_way.clone()
    }

    fn wanted(&self) -> BTreeSet<GoldenKey> {
        self.asked().wanted.clone()
    }

    /// What shall be here before a Pod comes.
    pub(crate) fn want(&self, wanted: BTreeSet<GoldenKey>) {
        self.asked().wanted = wanted;
    }

    /// The base of an image. Those who ask for one at once share the pull, and it goes on when they have lost interest: the next
    /// one who asks is glad of it. Where it does not fit, images that nobody needs go, and it is tried once more. An image that came
    /// with a secret is given to those who may have it ([`access`]). `asks` hears that a registry is about to be asked.
    pub(crate) async fn ensure(
        &self,
        image: ImageRef,
        policy: PullPolicy,
        asker: Asker,
        pool: String,
        asks: impl Fn() + Send + Sync + 'static,
    ) -> Result<Golden, Error> {
        let images = self.clone();
        let work = tokio::spawn(async move {
            images.asked().under_way.push(image.clone());
            let _under_way = UnderWay {
                images: images.clone(),
                image: image.clone(),
            };
            let begun = Instant::now();
            let mut golden = images.attempt(&image, policy, &asker, &asks).await;
            let again = match &golden {
                Err(Error::NoSpace(_)) => images.make_room(true).await,
                // It went while it was looked at.
                Err(Error::Missing(_)) => policy != PullPolicy::Never,
                _ => false,
            };
            if again {
                golden = images.attempt(&image, policy, &asker, &asks).await;
            }
            if let Ok(golden) = &golden {
                images.meters.pulled(begun.elapsed());
                images.meters.golden(&pool, golden.fresh);
                images.memory.used(&image, &golden.image, Timestamp::now());
                if golden.fresh {
                    let images = images.clone();
                    tokio::spawn(async move { images.look().await });
                }
            }
            golden
        });
        match work.await {
            Ok(golden) => golden,
            Err(error) => Err(Error::Unsuitable(format!("the pull was called off: {error}"))),
        }
    }

    /// With each set of credentials in turn, as kubelets do; the last refusal counts.
    async fn attempt(
        &self,
        image: &ImageRef,
        policy: PullPolicy,
        asker: &Asker,
        asks: &(dyn Fn() + Send + Sync),
    ) -> Result<Golden, Error> {
        let mut fitting: Vec<Option<&Credentials>> = asker
            .credentials()
            .iter()
            .filter(|credentials| credentials.host == image.host())
            .map(Some)
            .collect();
        if fitting.is_empty() {
            fitting.push(None);
        }
        let mut refused = Error::Unauthorized(image.to_string());
        for credentials in fitting {
            let door = self.access.door(asker, credentials);
            let pull = Pull {
                credentials,
                progress: None,
            };
            let gate = Heard { door: &door, asks };
            match self.goldens.ensure_for(image, policy, pull, &gate).await {
                Err(error @ Error::Unauthorized(_)) => refused = error,
                Err(Error::Registry { image, why }) if door.was_shut() => {
                    let why = format!("{why}; {NOT_THEIRS}");
                    return Err(Error::Registry { image, why });
                }
                answer => return answer,
            }
        }
        Err(refused)
    }
}

/// When the registry is asked, with the defaults of Kubernetes.
pub(crate) fn policy(image: &str, wanted: Option<&str>) -> PullPolicy {
    match wanted {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        Some("IfNotPresent") => PullPolicy::IfNotPresent,
        _ if image.contains('@') => PullPolicy::IfNotPresent,
        _ => match image.rsplit('/').next().and_then(|name| name.split_once(':')) {
            None | Some((_, "latest")) => PullPolicy::Always,
            Some(_) => PullPolicy::IfNotPresent,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moving_tag_is_asked_for_and_a_fixed_one_is_not() {
        for (image, wanted) in [
            ("ghcr.io/acme/mac", PullPolicy::Always),
            ("ghcr.io:443/acme/mac:latest", PullPolicy::Always),
            ("ghcr.io:443/acme/mac:v1", PullPolicy::IfNotPresent),
            ("ghcr.io/acme/mac@sha256:00", PullPolicy::IfNotPresent),
        ] {
            assert_eq!(policy(image, None), wanted, "{image}");
        }
        assert_eq!(policy("ghcr.io/acme/mac", Some("Never")), PullPolicy::Never);
    }
}
