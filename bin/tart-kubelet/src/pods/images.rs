//! Images, fetched off the path of everything else: a pull of an hour holds up nobody but those who wait for it.

use std::sync::Arc;

use russet_vm::{Credentials, Error, Golden, Goldens, ImageRef, Pull, PullPolicy, Runtime};
use tokio::time::Instant;

use crate::meters::Meters;

/// The images of the host.
#[derive(Clone, Debug)]
pub(crate) struct Images {
    goldens: Goldens,
    meters: Arc<Meters>,
}

impl Images {
    pub(crate) fn new(runtime: Arc<dyn Runtime>, meters: Arc<Meters>) -> Self {
        Self {
            goldens: Goldens::new(runtime),
            meters,
        }
    }

    /// The base of an image. Those who ask for one at once share the pull, and it goes on when they have lost interest: the next
    /// one who asks is glad of it.
    pub(crate) async fn ensure(
        &self,
        image: ImageRef,
        policy: PullPolicy,
        credentials: Vec<Credentials>,
    ) -> Result<Golden, Error> {
        let (goldens, meters) = (self.goldens.clone(), Arc::clone(&self.meters));
        let work = tokio::spawn(async move {
            let begun = Instant::now();
            let golden = attempt(&goldens, &image, policy, &credentials).await;
            if golden.is_ok() {
                meters.pulled(begun.elapsed());
            }
            golden
        });
        match work.await {
            Ok(golden) => golden,
            Err(error) => Err(Error::Unsuitable(format!("the pull was called off: {error}"))),
        }
    }
}

/// With each set of credentials in turn, as kubelets do; the last refusal counts.
async fn attempt(
    goldens: &Goldens,
    image: &ImageRef,
    policy: PullPolicy,
    credentials: &[Credentials],
) -> Result<Golden, Error> {
    let mut fitting: Vec<Option<&Credentials>> = credentials
        .iter()
        .filter(|credentials| credentials.host == image.host())
        .map(Some)
        .collect();
    if fitting.is_empty() {
        fitting.push(None);
    }
    let mut refused = Error::Unauthorized(image.to_string());
    for credentials in fitting {
        let pull = Pull {
            credentials,
            progress: None,
        };
        match goldens.ensure(image, policy, pull).await {
            Err(error @ Error::Unauthorized(_)) => refused = error,
            answer => return answer,
        }
    }
    Err(refused)
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
