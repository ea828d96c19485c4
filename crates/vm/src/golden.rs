//! Golden bases: one VM per image and host, which the VMs of Pods are cloned from.
//!
//! A clone of a local VM shares its blocks and takes a second; one of a pulled image does too, but the image may be dropped to
//! make room, or follow its tag elsewhere. A base is keyed by the digest, so a tag that moved has a new one.

use crate::error::Error;
use crate::image::{ImageRef, Pinned};
use crate::name::{GoldenKey, VmName};
use crate::runtime::{Pull, Runtime, Source};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// When to ask the registry, as a Pod says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// Every time, so a tag that moved is noticed.
    Always,
    /// Only if the image was never pulled.
    IfNotPresent,
    /// Not at all.
    Never,
}

/// A base that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Golden {
    /// What to clone.
    pub vm: VmName,
    /// What it was made of.
    pub image: Pinned,
    /// Whether it was made just now.
    pub fresh: bool,
}

/// The bases of a host. Cheap to copy.
#[derive(Clone, Debug)]
pub struct Goldens {
    runtime: Arc<dyn Runtime>,
    /// Who works on which reference; entries go with their last user.
    busy: Arc<Mutex<BTreeMap<ImageRef, Weak<tokio::sync::Mutex<()>>>>>,
}

impl Goldens {
    /// Looks at nothing.
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self {
            runtime,
            busy: Arc::default(),
        }
    }

    /// Makes sure that the base of an image is there. Those who ask for the same one at once wait for one pull and one clone;
    /// those who ask for others do not wait.
    pub async fn ensure(&self, image: &ImageRef, policy: PullPolicy, how: Pull<'_>) -> Result<Golden, Error> {
        // A base that was made of these very bytes needs no registry, unless the Pod insists on asking.
        if let (Some(pinned), true) = (image.pinned(), policy != PullPolicy::Always)
            && let Some(golden) = self.existing(&pinned).await?
        {
            return Ok(golden);
        }
        let turn = self.turn(image);
        let _turn = turn.lock().await;
        let known = match policy {
            PullPolicy::Always => None,
            PullPolicy::IfNotPresent | PullPolicy::Never => self.runtime.resolve(image).await?,
        };
        let digest = match known {
            Some(digest) => digest,
            None if policy == PullPolicy::Never => return Err(Error::Missing(image.to_string())),
            None => self.runtime.pull(image, how).await?,
        };
        let pinned = image.at(digest);
        if let Some(golden) = self.existing(&pinned).await? {
            return Ok(golden);
        }
        let vm = VmName::from(GoldenKey::of(&pinned));
        match self.runtime.clone_vm(&Source::Image(pinned.clone()), &vm).await {
            // Made by way of another reference to the same image.
            Ok(()) | Err(Error::Exists(_)) => Ok(Golden {
                vm,
                image: pinned,
                fresh: true,
            }),
            Err(error) => Err(error),
        }
    }

    async fn existing(&self, image: &Pinned) -> Result<Option<Golden>, Error> {
        let vm = VmName::from(GoldenKey::of(image));
        let there = self.runtime.power(&vm).await?.is_some();
        Ok(there.then(|| Golden {
            vm,
            image: image.clone(),
            fresh: false,
        }))
    }

    fn turn(&self, image: &ImageRef) -> Arc<tokio::sync::Mutex<()>> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = busy.get(image).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        busy.insert(image.clone(), Arc::downgrade(&turn));
        turn
    }
}
