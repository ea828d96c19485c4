//! What a Pod refers to: read, minted, and put where its VMs see it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use russet_pod::env::Environment;
use russet_pod::facts::{PodFacts, reasons};
use russet_pod::volumes::{self, Folder, Rendered};
use russet_pod::{Context, Objects, Token, TokenKey, references, spec};
use russet_telemetry::Secret;
use russet_vm::{Access, Credentials, Share};

use super::start::{self, Refused};
use crate::pods::Host;
use crate::pods::folder::Room;
use crate::pods::guest::{self, Link};
use crate::pods::server::ServerError;

impl From<ServerError> for Refused {
    fn from(error: ServerError) -> Self {
        Self::new(reasons::CONFIG, &error)
    }
}

/// Reads everything that the Pod's containers and volumes are filled from. What is not there is left out.
pub(super) async fn read(host: &Host, pod: &Pod, known: &Tokens) -> Result<Objects, Refused> {
    let namespace = pod.namespace().unwrap_or_default();
    let wanted = references(pod);
    let mut objects = Objects::default();
    for name in wanted.config_maps {
        let found = host.server.config_map(&namespace, &name).await?;
        objects.config_maps.extend(found.map(|found| (name, found)));
    }
    for name in wanted.secrets {
        let found = host.server.secret(&namespace, &name).await?;
        objects.secrets.extend(found.map(|found| (name, found)));
    }
    objects.tokens = tokens(host, pod, wanted.tokens.into_iter().collect(), known).await?;
    let links = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.enable_service_links)
        .unwrap_or(true);
    if links {
        objects.services = host.server.services(&namespace).await?;
    }
    if namespace != "default" || !links {
        objects.services.extend(host.server.kubernetes().await?);
    }
    Ok(objects)
}

/// Tokens of the Pod's ServiceAccount: those that are known, as long as they are good, else fresh ones.
async fn tokens(
    host: &Host,
    pod: &Pod,
    keys: Vec<TokenKey>,
    known: &Tokens,
) -> Result<BTreeMap<TokenKey, Token>, Refused> {
    let mut tokens = BTreeMap::new();
    let account = pod.spec.as_ref().map_or("default", spec::service_account);
    let now = Timestamp::now();
    for key in keys {
        let old = known.get(&key);
        let fresh = old
            .as_ref()
            .is_some_and(|token| now < token.refresh_at(&key, jitter(pod)));
        let token = match old.filter(|token| fresh && token.is_valid(now)) {
            Some(token) => token,
            None => match host.server.token(pod, account, &key.audience, key.seconds).await {
                Ok((value, expires)) => Token {
                    value: Secret::new(value),
                    expires,
                },
                // An old one is better than none until it ends.
                Err(error) => known
                    .get(&key)
                    .filter(|token| token.is_valid(now))
                    .ok_or_else(|| Refused::from(error))?,
            },
        };
        known.put(&key, &token);
        tokens.insert(key, token);
    }
    Ok(tokens)
}

/// So that a thousand Pods do not ask in the same second: up to ten, by the Pod's uid.
fn jitter(pod: &Pod) -> Duration {
    let sum: u64 = pod.uid().unwrap_or_default().bytes().map(u64::from).sum();
    Duration::from_millis(sum % 10_000)
}

/// The tokens of a Pod that are known, in memory alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens(Arc<Mutex<BTreeMap<TokenKey, Token>>>);

impl Tokens {
    fn get(&self, key: &TokenKey) -> Option<Token> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).cloned()
    }

    fn put(&self, key: &TokenKey, token: &Token) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(key.clone(), token.clone());
    }
}

/// Credentials for pulls. A missing Secret is worth a warning, no more.
pub(super) async fn logins(host: &Host, pod: &Pod) -> Vec<Credentials> {
    let namespace = pod.namespace().unwrap_or_default();
    let mut found = Vec::new();
    for name in references(pod).pull_secrets {
        if let Ok(Some(secret)) = host.server.secret(&namespace, &name).await {
            found.extend(start::logins(&secret));
        } else {
            let message = format!("Unable to retrieve the image pull secret {name}; attempting to pull without it");
            host.server
                .tell(pod, "Warning", "FailedToRetrieveImagePullSecret", &message);
        }
    }
    found
}

/// Puts the volumes of a Pod in place, or brings them up to what the API server says now.
pub(super) async fn prepare(host: &Host, pod: &Pod, facts: &PodFacts, tokens: &Tokens) -> Result<(), Refused> {
    let objects = read(host, pod, tokens).await?;
    let allocatable = host.allocatable();
    let context = Context {
        pod,
        host_ips: &facts.host_ips,
        pod_ips: &facts.pod_ips,
        allocatable: &allocatable,
    };
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    for volume in volumes.unwrap_or_default() {
        let failed = |why: &dyn std::fmt::Display| {
            let message = format!("MountVolume.SetUp failed for volume \"{}\": {why}", volume.name);
            Refused::new(reasons::CREATING, &message)
        };
        let rendered = volumes::render(&context, volume, &objects).map_err(|error| failed(&error))?;
        let path = path(host, pod, &volume.name);
        let made = match rendered {
            Rendered::Files(tree) => {
                Folder::open(path).and_then(|folder| folder.write(&tree, Timestamp::now()).map(|_| ()))
            }
            Rendered::Empty { .. } => volumes::make_empty_dir(&path),
        };
        made.map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn path(host: &Host, pod: &Pod, volume: &str) -> PathBuf {
    host.folders.volumes(&pod.uid().unwrap_or_default()).join(volume)
}

/// The volumes of a container: where they are in its guest, and which folders of the host they are.
pub(super) fn shares(
    host: &Host,
    pod: &Pod,
    container: &Container,
    environment: &Environment,
    room: &Room,
) -> Result<(Vec<Link>, Vec<Share>), String> {
    let mounts = volumes::mounts(pod, container, environment).map_err(|error| error.to_string())?;
    let mut links = Vec::new();
    let mut wanted: BTreeMap<String, Access> = BTreeMap::new();
    for (index, mount) in mounts.into_iter().enumerate() {
        let volume = path(host, pod, &mount.volume);
        let source = match &mount.sub_path {
            // A part of such a volume is what it was at the start.
            Some(part) if mount.files => {
                let copy = format!("part-{index}");
                duplicate(&volume.join("..data").join(part), &room.env().join(&copy)).map_err(|error| {
                    format!(
                        "failed to prepare subPath {part:?} of volume {:?}: {error}",
                        mount.volume
                    )
                })?;
                format!("{}/{copy}", guest::ENV)
            }
            part => {
                // One share for all mounts of a volume: it can be written to if any of them can.
                let access = if mount.read_only {
                    Access::ReadOnly
                } else {
                    Access::ReadWrite
                };
                let known = wanted.entry(mount.volume.clone()).or_insert(access);
                if access == Access::ReadWrite {
                    *known = access;
                }
                let share = share_name(&mount.volume);
                part.as_ref()
                    .map_or_else(|| share.clone(), |part| format!("{share}/{part}"))
            }
        };
        links.push(Link {
            source,
            target: mount.path,
            make: mount.sub_path.is_some() && !mount.files,
        });
    }
    let shares = wanted
        .into_iter()
        .map(|(volume, access)| start::share(&share_name(&volume), &path(host, pod, &volume), access))
        .collect();
    Ok((links, shares))
}

fn share_name(volume: &str) -> String {
    format!("v-{volume}")
}

/// Copies a file or a folder of files.
fn duplicate(from: &Path, to: &Path) -> std::io::Result<()> {
    if !from.is_dir() {
        return std::fs::copy(from, to).map(|_| ());
    }
    crate::pods::folder::make(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        duplicate(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
