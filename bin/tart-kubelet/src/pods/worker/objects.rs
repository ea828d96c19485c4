//! What a Pod refers to: read, minted, and put where its VMs see it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};
use kube::ResourceExt as _;
use russet_pod::env::Environment;
use russet_pod::facts::{PodFacts, reasons};
use russet_pod::volumes::{self, Folder, Rendered};
use russet_pod::{Context, Objects, Token, TokenKey, references, spec};
use russet_telemetry::Secret;
use russet_vm::{Access, Credentials, PodVm, Share};
use tokio::time::Instant;

use super::start::{self, Refused};
use crate::file;
use crate::pods::Host;
use crate::pods::folder::{self, Folders, Room};
use crate::pods::guest::{self, Link};
use crate::pods::server::ServerError;
use crate::pods::watched;

impl From<ServerError> for Refused {
    fn from(error: ServerError) -> Self {
        Self::new(reasons::CONFIG, &error)
    }
}

/// What a Pod's containers and volumes are filled from, as long as its task holds it. Cheap to copy.
#[derive(Clone, Default)]
pub(super) struct Sources {
    pub(super) tokens: Tokens,
    pub(super) held: watched::Held,
}

/// Everything that the Pod's volumes are filled from. What is not there is left out.
async fn read(host: &Host, pod: &Pod, sources: &Sources) -> Result<Objects, Refused> {
    let wanted = references(pod);
    let held = async {
        let mut objects = Objects::default();
        for name in wanted.config_maps {
            let found = sources.held.config_map(&name).await?;
            objects
                .config_maps
                .extend(found.map(|found| (name, Arc::unwrap_or_clone(found))));
        }
        for name in wanted.secrets {
            let found = sources.held.secret(&name).await?;
            objects
                .secrets
                .extend(found.map(|found| (name, Arc::unwrap_or_clone(found))));
        }
        if wanted.trust_bundles {
            objects.trust_bundles = sources.held.trust_bundles().await?;
        }
        Ok(objects)
    };
    let tokens = tokens(host, pod, wanted.tokens.into_iter().collect(), &sources.tokens);
    let (mut objects, tokens) = tokio::try_join!(held, tokens)?;
    objects.tokens = tokens;
    Ok(objects)
}

/// The claims of a Pod, read when something is about to be given them. Who holds one, holds it.
async fn read_claims(host: &Host, pod: &Pod, objects: &mut Objects) -> Result<(), Refused> {
    let namespace = pod.namespace().unwrap_or_default();
    let wanted = references(pod).claims;
    if !wanted.is_empty() {
        objects.node_labels = host.around.node().await?.metadata.labels.clone().unwrap_or_default();
    }
    for name in wanted {
        let found = host.server.claim(&namespace, &name).await?;
        objects.claims.extend(found.map(|found| (name, found)));
    }
    Ok(())
}

/// The same, with the claims, and the Services that a container is told of. All are asked for at once: a Pod waits for them.
pub(super) async fn read_all(host: &Host, pod: &Pod, sources: &Sources) -> Result<Objects, Refused> {
    let namespace = pod.namespace().unwrap_or_default();
    let links = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.enable_service_links)
        .unwrap_or(true);
    let services = async { Ok(host.around.services(&namespace, links).await?) };
    let (mut objects, services) = tokio::try_join!(read(host, pod, sources), services)?;
    read_claims(host, pod, &mut objects).await?;
    objects.services = services;
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
        let token = match &old {
            Some(held) if held.is_fresh(&key, jitter(pod), now) => held.token.clone(),
            _ => match host.server.token(pod, account, &key.audience, key.seconds).await {
                Ok((value, expires)) => known.put(&key, Secret::new(value), expires),
                // An old one is better than none until it ends.
                Err(error) => old
                    .filter(|held| held.is_valid(&key, now))
                    .map(|held| held.token)
                    .ok_or_else(|| Refused::from(error))?,
            },
        };
        tokens.insert(key, token);
    }
    Ok(tokens)
}

/// So that a thousand Pods do not ask in the same second: up to ten, by the Pod's uid.
fn jitter(pod: &Pod) -> Duration {
    let sum: u64 = pod.uid().unwrap_or_default().bytes().map(u64::from).sum();
    Duration::from_millis(sum % 10_000)
}

/// A token, and when it came. A clock that was set back must not make it last, nor one that was set ahead end it.
#[derive(Clone, Debug)]
struct Held {
    token: Token,
    came: Instant,
}

impl Held {
    /// Whether neither the clock nor its age says that the next one is due.
    fn is_fresh(&self, key: &TokenKey, jitter: Duration, now: Timestamp) -> bool {
        let due = self.token.refresh_at(key, jitter);
        now < due && self.token.at_age(key, self.came.elapsed()) < due
    }

    /// Whether it may still open anything.
    fn is_valid(&self, key: &TokenKey, now: Timestamp) -> bool {
        self.token.is_valid(now) || self.token.is_valid(self.token.at_age(key, self.came.elapsed()))
    }
}

/// The tokens of a Pod that are known, in memory alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens(Arc<Mutex<BTreeMap<TokenKey, Held>>>);

impl Tokens {
    fn get(&self, key: &TokenKey) -> Option<Held> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).cloned()
    }

    /// Takes one that came just now.
    fn put(&self, key: &TokenKey, value: Secret<String>, expires: Timestamp) -> Token {
        let token = Token { value, expires };
        let held = Held {
            token: token.clone(),
            came: Instant::now(),
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(key.clone(), held);
        token
    }
}

/// Credentials for pulls. A missing Secret is worth a warning, no more.
pub(super) async fn logins(host: &Host, pod: &Pod, sources: &Sources) -> Vec<Credentials> {
    let mut found = Vec::new();
    for name in references(pod).pull_secrets {
        if let Ok(Some(secret)) = sources.held.secret(&name).await {
            found.extend(start::logins(&secret));
        } else {
            let message = format!("Unable to retrieve the image pull secret {name}; attempting to pull without it");
            host.server
                .tell(pod, "Warning", "FailedToRetrieveImagePullSecret", &message);
        }
    }
    found
}

fn volumes_of(pod: &Pod) -> &[Volume] {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default()
}

/// Puts the volumes of a Pod in place. All that they are filled from is asked for at once: a Pod waits for it.
pub(super) async fn prepare(host: &Host, pod: &Pod, facts: &PodFacts, sources: &Sources) -> Result<(), Refused> {
    let mut objects = read(host, pod, sources).await?;
    read_claims(host, pod, &mut objects).await?;
    for volume in volumes_of(pod) {
        put(host, pod, facts, volume, &objects).await?;
    }
    Ok(())
}

/// Brings the volumes of a Pod up to what the API server says now, each by itself: what one is filled from may be gone, and the
/// token in another is due all the same. The first failure is told.
pub(super) async fn refresh(
    host: &Host,
    pod: &Pod,
    facts: &PodFacts,
    sources: &Sources,
    vms: &[PodVm],
) -> Result<(), Refused> {
    let mut first = Ok(());
    for volume in volumes_of(pod).iter().filter(|volume| !is_of_host(volume)) {
        let refreshed = match read(host, &alone(pod, volume), sources).await {
            Ok(objects) => {
                renew(&host.folders, pod, vms, &objects.tokens);
                put(host, pod, facts, volume, &objects).await
            }
            Err(refused) => Err(refused),
        };
        first = first.and(refreshed);
    }
    first
}

/// A Pod as if it had one volume, and nothing else that refers to anything.
fn alone(pod: &Pod, volume: &Volume) -> Pod {
    let account = pod.spec.as_ref().map(|spec| spec::service_account(spec).to_owned());
    Pod {
        metadata: pod.metadata.clone(),
        spec: Some(PodSpec {
            service_account_name: account,
            volumes: Some(vec![volume.clone()]),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// Puts a volume in place.
async fn put(host: &Host, pod: &Pod, facts: &PodFacts, volume: &Volume, objects: &Objects) -> Result<(), Refused> {
    let allocatable = host.allocatable();
    let context = Context {
        pod,
        host_ips: &facts.host_ips,
        pod_ips: &facts.pod_ips,
        allocatable: &allocatable,
    };
    let failed = |why: &dyn std::fmt::Display| {
        let message = format!("MountVolume.SetUp failed for volume \"{}\": {why}", volume.name);
        Refused::new(reasons::CREATING, &message)
    };
    let rendered = volumes::render(&context, volume, objects).map_err(|error| failed(&error))?;
    let path = path(host, pod, &volume.name);
    let made = match rendered {
        Rendered::Files(tree) => {
            Folder::open(path).and_then(|folder| folder.write(&tree, Timestamp::now()).map(|_| ()))
        }
        Rendered::Empty { .. } => volumes::make_empty_dir(&path),
        Rendered::Host(folder) => {
            let found = host.reach.open(&folder, host.kept()).await;
            found.map(|_| ()).map_err(|error| failed(&error))?;
            Ok(())
        }
    };
    made.map_err(|error| failed(&error))
}

/// Brings the tokens for dispatch up to date that containers read beside their environment, also those of VMs that still wait for
/// their place.
fn renew(folders: &Folders, pod: &Pod, vms: &[PodVm], tokens: &BTreeMap<TokenKey, Token>) {
    for vm in vms {
        let token = spec::container(pod, vm.container())
            .and_then(|(_, container)| start::dispatch_token(pod, container, tokens));
        let path = folders.room(vm).env().join(guest::SA_TOKEN);
        // Where there is none, its container has ended or has not begun.
        let (Some(token), Ok(old)) = (token, std::fs::read(&path)) else {
            continue;
        };
        let fresh = token.value.expose().as_bytes();
        if old != fresh
            && let Err(error) = file::write(&path, fresh)
        {
            tracing::warn!(%vm, %error, "the token of a container was not renewed");
        }
    }
}

fn path(host: &Host, pod: &Pod, volume: &str) -> PathBuf {
    host.folders.volumes(&pod.uid().unwrap_or_default()).join(volume)
}

/// The folders of the host among the volumes of a container: where each really is, and whether nobody may write there.
pub(super) async fn of_host(
    host: &Host,
    context: &Context<'_>,
    container: &Container,
    objects: &Objects,
) -> Result<BTreeMap<String, (PathBuf, bool)>, String> {
    let mut found = BTreeMap::new();
    let mounted = |volume: &Volume| {
        let mut mounts = container.volume_mounts.iter().flatten();
        mounts.any(|mount| mount.name == volume.name)
    };
    for volume in volumes_of(context.pod)
        .iter()
        .filter(|volume| is_of_host(volume) && mounted(volume))
    {
        let rendered = volumes::render(context, volume, objects).map_err(|error| error.to_string())?;
        if let Rendered::Host(folder) = rendered {
            let path = host.reach.open(&folder, host.kept()).await;
            let path = path.map_err(|error| error.to_string())?;
            found.insert(volume.name.clone(), (path, folder.read_only));
        }
    }
    Ok(found)
}

fn is_of_host(volume: &Volume) -> bool {
    volume.host_path.is_some() || volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
}

/// The volumes of a container: where they are in its guest, and which folders they are. `of_host` says which of them are not ours.
pub(super) fn shares(
    host: &Host,
    pod: &Pod,
    container: &Container,
    environment: &Environment,
    of_host: &BTreeMap<String, (PathBuf, bool)>,
    room: &Room,
) -> Result<(Vec<Link>, Vec<Share>), String> {
    let mounts = volumes::mounts(pod, container, environment).map_err(|error| error.to_string())?;
    let mut links = Vec::new();
    let mut wanted: BTreeMap<String, (PathBuf, Access)> = BTreeMap::new();
    for (index, mount) in mounts.into_iter().enumerate() {
        let theirs = of_host.get(&mount.volume).cloned();
        let (volume, read_only) = theirs.unwrap_or_else(|| (path(host, pod, &mount.volume), false));
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
                let access = if mount.read_only || read_only {
                    Access::ReadOnly
                } else {
                    Access::ReadWrite
                };
                let (_, known) = wanted.entry(mount.volume.clone()).or_insert((volume, access));
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
        .map(|(volume, (path, access))| start::share(&share_name(&volume), &path, access))
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
    folder::make(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        duplicate(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use russet_api::audiences;
    use serde_json::json;

    /// A start that waits for its place, for hours perhaps, is in no ledger yet. Its token was renewed by the ledger, and so had
    /// expired when its VM came up.
    #[test]
    fn the_token_of_a_start_that_waits_for_its_place_is_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders::new(dir.path());
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "containers": [{"name": "main", "volumeMounts": [{"name": "t", "mountPath": "/t"}]}],
            "volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {
                "path": "token", "audience": audiences::RUNNERS_DISPATCH, "expirationSeconds": 600,
            }}]}}],
        }}))
        .unwrap();
        let vms = [0, 1].map(|attempt| PodVm::new("ci", "job", "main", "0b5d7f3c", attempt).unwrap());
        let [ended, waits] = vms.each_ref().map(|vm| folders.room(vm).env().join(guest::SA_TOKEN));
        folder::make(waits.parent().unwrap()).unwrap();
        file::write(&waits, b"old").unwrap();
        let token = Token {
            value: Secret::new("new".to_owned()),
            expires: Timestamp::UNIX_EPOCH,
        };
        let keys = references(&pod).tokens;
        let tokens = keys.into_iter().map(|key| (key, token.clone())).collect();
        renew(&folders, &pod, &vms, &tokens);
        assert_eq!(std::fs::read(&waits).unwrap(), b"new");
        assert!(!ended.exists(), "what is over gets none");
    }

    /// The clock of a host was set back after the token came: by the clock it would have been good for hours after its end.
    #[tokio::test(start_paused = true)]
    async fn a_token_ages_whatever_the_clock_says() {
        let key = TokenKey {
            audience: String::new(),
            seconds: 3600,
        };
        let hours = |count: i64| Timestamp::from_second(1_000_000 + count * 3600).unwrap();
        let tokens = Tokens::default();
        tokens.put(&key, Secret::new("t".to_owned()), hours(1));
        let fresh = |now| tokens.get(&key).unwrap().is_fresh(&key, Duration::ZERO, now);
        let valid = |now| tokens.get(&key).unwrap().is_valid(&key, now);
        assert!(fresh(hours(0)) && fresh(hours(-3)));
        // Ahead: another is asked for, and if none can be had this one does.
        assert!(!fresh(hours(5)) && valid(hours(5)));
        tokio::time::advance(Duration::from_mins(50)).await;
        assert!(!fresh(hours(-3)) && valid(hours(-3)));
        tokio::time::advance(Duration::from_secs(700)).await;
        assert!(!valid(hours(5)), "it has ended by any measure");
    }
}
