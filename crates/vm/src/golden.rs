//! Golden bases: one VM per image and host, which the VMs of Pods are cloned from.
//!
//! A clone of a local VM shares its blocks and takes a second; one of a pulled image does too, but the image may be dropped to
//! make room, or follow its tag elsewhere. A base is keyed by the digest, so a tag that moved has a new one.

use crate::error::Error;
use crate::image::{Digest, ImageRef, Pinned};
use crate::name::{GoldenKey, VmName, hex};
use crate::runtime::{Credentials, Pull, Runtime, Source};
use sha2::{Digest as _, Sha256};
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

/// Who may have which image. A host pulls with the credentials of one Pod and keeps the image for all: without somebody who asks
/// whose it is, each Pod that knows its name could run it.
pub trait Gate: Send + Sync {
    /// Whether an image that is here may be used without asking its registry.
    fn admits(&self, image: &Pinned) -> bool;

    /// A registry is about to be asked; an error calls it off. One of the next two follows, unless nobody lives to see the answer:
    /// what has to be known then is written down here.
    fn asks(&self, image: &ImageRef) -> Result<(), Error>;

    /// The registry gave this one, which may have been here before.
    fn given(&self, image: &Pinned);

    /// The registry gave nothing.
    fn refused(&self, image: &ImageRef);
}

/// Everybody may have everything.
#[derive(Clone, Copy, Debug)]
pub struct Open;

impl Gate for Open {
    fn admits(&self, _image: &Pinned) -> bool {
        true
    }

    fn asks(&self, _image: &ImageRef) -> Result<(), Error> {
        Ok(())
    }

    fn given(&self, _image: &Pinned) {}

    fn refused(&self, _image: &ImageRef) {}
}

/// Tells credentials from others without keeping them. The salt belongs to one host: what is written down there says nothing about
/// other hosts, and no table of passwords helps.
pub fn fingerprint(credentials: &Credentials, salt: &str) -> String {
    let mut hash = Sha256::new();
    for part in [
        salt,
        &credentials.host,
        &credentials.username,
        credentials.password.expose(),
    ] {
        // With its length, or the end of a name could be the beginning of a password.
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        hash.update(length.to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize(), 32)
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
        self.ensure_for(image, policy, how, &Open).await
    }

    /// The same for somebody who may not have everything. What is here and not theirs counts as if it were not: the registry is
    /// asked, and where that must not be it is [`Error::Unauthorized`].
    pub async fn ensure_for(
        &self,
        image: &ImageRef,
        policy: PullPolicy,
        how: Pull<'_>,
        gate: &dyn Gate,
    ) -> Result<Golden, Error> {
        let denied = || Error::Unauthorized(image.to_string());
        // A base that was made of these very bytes needs no registry, unless the Pod insists on asking.
        if let (Some(pinned), true) = (image.pinned(), policy != PullPolicy::Always)
            && let Some(golden) = self.existing(&pinned).await?
        {
            if gate.admits(&pinned) {
                return Ok(golden);
            }
            if policy == PullPolicy::Never {
                return Err(denied());
            }
        }
        let turn = self.turn(image);
        let _turn = turn.lock().await;
        let known = match policy {
            PullPolicy::Always => None,
            PullPolicy::IfNotPresent | PullPolicy::Never => self.runtime.resolve(image).await?,
        };
        let digest = match known {
            Some(digest) if gate.admits(&image.at(digest.clone())) => digest,
            Some(_) if policy == PullPolicy::Never => return Err(denied()),
            None if policy == PullPolicy::Never => return Err(Error::Missing(image.to_string())),
            _ => self.ask(image, how, gate).await?,
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

    async fn ask(&self, image: &ImageRef, how: Pull<'_>, gate: &dyn Gate) -> Result<Digest, Error> {
        gate.asks(image)?;
        let answer = self.runtime.pull(image, how).await;
        match &answer {
            Ok(digest) => gate.given(&image.at(digest.clone())),
            Err(_) => gate.refused(image),
        }
        answer
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Host, Settings, Synthetic};
    use russet_telemetry::Secret;

    /// A gate that admits nobody, and what it was told.
    #[derive(Default)]
    struct Shut(Mutex<Vec<&'static str>>);

    impl Shut {
        fn told(&self, what: &'static str) {
            self.0.lock().unwrap().push(what);
        }

        fn all(&self) -> Vec<&'static str> {
            std::mem::take(&mut *self.0.lock().unwrap())
        }
    }

    impl Gate for Shut {
        fn admits(&self, _image: &Pinned) -> bool {
            self.told("admits");
            false
        }

        fn asks(&self, _image: &ImageRef) -> Result<(), Error> {
            self.told("asks");
            Ok(())
        }

        fn given(&self, _image: &Pinned) {
            self.told("given");
        }

        fn refused(&self, _image: &ImageRef) {
            self.told("refused");
        }
    }

    fn credentials(username: &str, password: &str) -> Credentials {
        Credentials {
            host: "ghcr.io".to_owned(),
            username: username.to_owned(),
            password: Secret::new(password.to_owned()),
        }
    }

    /// A Pod without a secret ran what another one had pulled with its own.
    #[tokio::test]
    async fn what_is_here_and_not_theirs_is_asked_for_or_denied() {
        let host = Host::new(Settings::default());
        let goldens = Goldens::new(Arc::new(Synthetic::new(host.clone())));
        let image = ImageRef::parse("ghcr.io/acme/mac:v1").unwrap();
        host.publish(&image, "one").unwrap();
        let pinned = goldens
            .ensure(&image, PullPolicy::IfNotPresent, Pull::default())
            .await
            .unwrap()
            .image
            .to_ref();
        host.require_login("ghcr.io", "robot", "s3cret");
        let gate = Shut::default();
        for name in [&image, &pinned] {
            for policy in [PullPolicy::IfNotPresent, PullPolicy::Never, PullPolicy::Always] {
                let answer = goldens.ensure_for(name, policy, Pull::default(), &gate).await;
                assert!(matches!(answer, Err(Error::Unauthorized(_))), "{name} {answer:?}");
                let told = gate.all();
                assert_eq!(told.contains(&"asks"), policy != PullPolicy::Never, "{name} {told:?}");
                let found = told.contains(&"admits");
                assert_eq!(found, policy != PullPolicy::Always, "{name} {told:?}");
                assert!(!told.contains(&"given"), "{name} {told:?}");
            }
            let own = credentials("robot", "s3cret");
            let how = Pull {
                credentials: Some(&own),
                ..Pull::default()
            };
            let golden = goldens.ensure_for(name, PullPolicy::IfNotPresent, how, &gate).await;
            assert!(!golden.unwrap().fresh, "the base is there");
            assert!(gate.all().ends_with(&["asks", "given"]));
        }
    }

    #[test]
    fn a_fingerprint_tells_one_from_another_and_is_of_one_host() {
        let print = |username, password, salt| fingerprint(&credentials(username, password), salt);
        let one = print("robot", "s3cret", "salt");
        assert_eq!(one, print("robot", "s3cret", "salt"));
        assert_eq!(one.len(), 64);
        for other in [
            print("robot", "s3cret", "other"),
            print("robot", "secret", "salt"),
            print("robots", "3cret", "salt"),
        ] {
            assert_ne!(one, other);
        }
    }
}
