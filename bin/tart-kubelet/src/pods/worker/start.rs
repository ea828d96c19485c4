//! From a container of a Pod to everything its VM is made from.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use russet_api::{audiences, labels};
use russet_pod::facts::{PodFacts, reasons};
use russet_pod::quantity::Amount;
use russet_pod::{Context, Objects, Token, TokenKey, env, mounted_tokens, spec};
use russet_telemetry::Secret;
use russet_vm::{Access, Credentials, Error, Hardware, ImageRef, Launch, PodVm, PullPolicy, Screen, Share, Source};
use tokio::time::Instant;

use super::objects::{self, Sources};
use crate::file;
use crate::pods::Host;
use crate::pods::folder::Room;
use crate::pods::guest::{self, Program};
use crate::pods::images;
use crate::pods::machine::{Plan, Tally};

const MIB: i64 = 1024 * 1024;
/// What was read before a pull that took this long is read again.
const STALE: Duration = Duration::from_secs(2);

/// A container that can be given its VM.
pub(super) struct Ready {
    pub(super) vm: PodVm,
    pub(super) plan: Plan,
    /// Where its image came from, in words.
    pub(super) pulled: String,
}

/// Why a container cannot start now.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    /// A word of Kubernetes.
    pub(super) reason: &'static str,
    /// A sentence.
    pub(super) message: String,
    /// Whether it waits as pulls do, longer each time.
    pub(super) pulls: bool,
    /// How long it waits otherwise.
    pub(super) pause: Duration,
}

impl Refused {
    pub(super) fn new(reason: &'static str, message: &impl ToString) -> Self {
        Self {
            reason,
            message: message.to_string(),
            pulls: false,
            pause: Duration::from_secs(5),
        }
    }
}

/// Whether a program is started in the VM of a container.
pub(super) fn has_command(pod: &Pod, container: &str) -> bool {
    spec::container(pod, container).is_some_and(|(_, container)| {
        let words = container.command.iter().chain(&container.args).flatten();
        words.count() > 0
    })
}

/// What stands in for the last words of a container.
pub(super) fn message_policy(pod: &Pod, container: &str) -> Option<String> {
    let (_, container) = spec::container(pod, container)?;
    container.termination_message_policy.clone()
}

/// What stands for the address of a container's VM in what it is started with, if it asks for that: nobody knows it before the
/// VM is up.
pub(super) fn late(container: &Container, uid: &str) -> Option<IpAddr> {
    env::needs_address(container).then(|| guest::stand_in(uid))
}

/// Whether the address of a container is that of its Pod.
pub(super) fn is_main(pod: &Pod, container: &str) -> bool {
    let first = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    first.is_some_and(|first| first.name == container)
}

/// Fetches and writes everything. May be dropped anywhere and done again. One that fails leaves nothing: the next has a folder of
/// its own.
pub(super) async fn ready(
    host: &Host,
    pod: &Pod,
    name: &str,
    vm: PodVm,
    facts: &PodFacts,
    sources: &Sources,
) -> Result<Ready, Refused> {
    let made = make_ready(host, pod, name, vm.clone(), facts, sources).await;
    if made.is_err()
        && let Err(error) = host.folders.remove_room(&vm)
    {
        tracing::warn!(%vm, %error, "what a start left could not be removed");
    }
    made
}

async fn make_ready(
    host: &Host,
    pod: &Pod,
    name: &str,
    vm: PodVm,
    facts: &PodFacts,
    sources: &Sources,
) -> Result<Ready, Refused> {
    let missing = || Refused::new(reasons::CONFIG, &format!("the Pod has no container {name}"));
    let (_, container) = spec::container(pod, name).ok_or_else(missing)?;
    let text = container.image.clone().unwrap_or_default();
    let image = ImageRef::parse(&text).map_err(|error| Refused::new(reasons::BAD_IMAGE, &error))?;
    // What is wrong with it is said before a pull that may take an hour.
    let mut read = objects::read_all(host, pod, sources).await?;
    let allocatable = host.allocatable();
    let late = late(container, vm.uid());
    let context = Context {
        pod,
        host_ips: &facts.host_ips,
        pod_ips: late.as_ref().map_or(&facts.pod_ips, std::slice::from_ref),
        allocatable: &allocatable,
    };
    let told = |read: &Objects| {
        env::environment(&context, container, read).map_err(|error| Refused::new(reasons::CONFIG, &error))
    };
    let mut environment = told(&read)?;
    let policy = images::policy(&text, container.image_pull_policy.as_deref());
    let logins = objects::logins(host, pod, sources).await;
    let begun = Instant::now();
    let (golden, asked) = pull(host, pod, image, policy, logins).await?;
    let fetched = begun.elapsed();
    let pulled = match (asked, golden.fresh) {
        (true, true) => format!("Successfully pulled image \"{text}\" in {fetched:.1?}"),
        // How long it took to hear that nothing has changed is no news each time.
        (true, false) => format!("Successfully pulled image \"{text}\""),
        (false, _) => format!("Container image \"{text}\" is present on the host"),
    };
    if fetched >= STALE {
        // A container is told what is true when it starts, and gets a token that lasts.
        read = objects::read_all(host, pod, sources).await?;
        environment = told(&read)?;
    }
    let folders = objects::of_host(host, &context, container, &read).await;
    let folders = folders.map_err(|why| Refused::new(reasons::CONFIG, &why))?;
    // Nothing is waited for from here on, so that one that is called off has written nothing or is heard of.
    let room = host.folders.room(&vm);
    let unmade = |error| {
        Refused::new(
            reasons::CREATE,
            &format!("the folders of the container could not be made: {error}"),
        )
    };
    room.furnish().map_err(unmade)?;
    let (links, mut shares) = objects::shares(host, pod, container, &environment, &folders, &room)
        .map_err(|why| Refused::new(reasons::CONFIG, &why))?;
    let command = environment.command(container);
    let program = Program {
        words: [command.command, command.args].concat(),
        env: environment
            .iter()
            .map(|(name, value)| (name.to_owned(), value.expose().clone()))
            .collect(),
        dir: container.working_dir.clone().filter(|dir| !dir.is_empty()),
        links,
        last_words: container.termination_message_path.clone(),
        input: container.stdin == Some(true),
        terminal: container.tty == Some(true),
    };
    dress(&room, &program).map_err(unmade)?;
    if let Some(token) = dispatch_token(pod, container, &read.tokens) {
        file::write(&room.env().join(guest::SA_TOKEN), token.value.expose().as_bytes()).map_err(unmade)?;
    }
    shares.extend([
        share(guest::ENV, &room.env(), Access::ReadOnly),
        share(guest::STATUS, &room.status(), Access::ReadWrite),
    ]);
    let plan = Plan {
        pod: pod.name_any(),
        source: Some(Source::Vm(golden.vm)),
        image: golden.image.to_string(),
        hardware: hardware(container),
        launch: Launch {
            shares,
            screen: Screen::None,
        },
        command: !program.words.is_empty(),
        late,
        message_policy: container.termination_message_policy.clone(),
        tally: Tally {
            fetched,
            fresh: golden.fresh,
            ..Tally::default()
        },
    };
    Ok(Ready { vm, plan, pulled })
}

pub(super) fn share(name: &str, path: &Path, access: Access) -> Share {
    Share {
        name: name.to_owned(),
        path: path.to_owned(),
        access,
    }
}

fn dress(room: &Room, program: &Program) -> std::io::Result<()> {
    file::write(&room.env().join(guest::TUIST_ENV), program.tuist_env().as_bytes())?;
    file::write(&room.env().join(guest::ENTER), program.entrance().as_bytes())?;
    file::write(&room.env().join(guest::START), program.script().as_bytes())
}

/// The token for dispatch, for a container that may have one. Images that bring their own program know no mounts, and read it
/// beside their environment.
pub(super) fn dispatch_token<'t>(
    pod: &Pod,
    container: &Container,
    tokens: &'t BTreeMap<TokenKey, Token>,
) -> Option<&'t Token> {
    let mounted = mounted_tokens(pod, container);
    let key = mounted.iter().find(|key| key.audience == audiences::RUNNERS_DISPATCH)?;
    tokens.get(key)
}

/// The base of an image, and whether its registry was asked for it.
async fn pull(
    host: &Host,
    pod: &Pod,
    image: ImageRef,
    policy: PullPolicy,
    logins: Vec<Credentials>,
) -> Result<(russet_vm::Golden, bool), Refused> {
    let shown = image.to_string();
    let pulls = |reason, message| Refused {
        pulls: true,
        ..Refused::new(reason, &message)
    };
    let pool = pod.labels().get(labels::RUNNER_POOL).cloned().unwrap_or_default();
    // With several credentials a registry may be asked several times.
    let asked = Arc::new(AtomicBool::new(false));
    let asks = {
        let (asked, server, pod) = (Arc::clone(&asked), host.server.clone(), pod.clone());
        let message = format!("Pulling image \"{shown}\"");
        move || {
            if !asked.swap(true, Ordering::Relaxed) {
                server.tell(&pod, "Normal", "Pulling", &message);
            }
        }
    };
    match host
        .images()
        .ensure(image, policy, images::Asker::Pod(logins), pool, asks)
        .await
    {
        Ok(golden) => Ok((golden, asked.load(Ordering::Relaxed))),
        Err(Error::Missing(_)) if policy == PullPolicy::Never => Err(pulls(
            reasons::NEVER_PULL,
            format!("Container image \"{shown}\" is not present with pull policy of Never"),
        )),
        // It is here and not theirs. A kubelet says the same, without the reason.
        Err(Error::Unauthorized(_)) if policy == PullPolicy::Never => Err(pulls(
            reasons::NEVER_PULL,
            format!(
                "Container image \"{shown}\" is not present with pull policy of Never: this Pod has no pull secret that is known \
                 to open it"
            ),
        )),
        Err(error) => Err(pulls(
            reasons::ERR_PULL,
            format!("Failed to pull image \"{shown}\": {error}"),
        )),
    }
}

/// What a container asks for, limits before requests; what it does not say is up to the image.
fn hardware(container: &Container) -> Hardware {
    let resources = container.resources.clone().unwrap_or_default();
    let wanted = |name: &str| {
        let lists = [&resources.limits, &resources.requests];
        lists
            .into_iter()
            .flatten()
            .find_map(|list| list.get(name))
            .map(Amount::of)
    };
    Hardware {
        cpu: wanted("cpu")
            .and_then(|cpu| u32::try_from(cpu.milli() / 1000).ok())
            .filter(|cpu| *cpu > 0),
        memory_mib: wanted("memory")
            .and_then(|memory| u64::try_from(memory.value() / MIB).ok())
            .filter(|memory| *memory > 0),
        disk_gb: None,
        own_identity: true,
    }
}

/// Credentials from a Secret of one of the two kinds Kubernetes has for them.
pub(super) fn logins(secret: &k8s_openapi::api::core::v1::Secret) -> Vec<Credentials> {
    #[derive(serde::Deserialize)]
    struct File {
        auths: BTreeMap<String, Auth>,
    }
    #[derive(serde::Deserialize)]
    struct Auth {
        #[serde(default)]
        username: String,
        #[serde(default)]
        password: String,
        #[serde(default, rename = "auth")]
        both: String,
    }
    let data = secret.data.clone().unwrap_or_default();
    let auths = if let Some(bytes) = data.get(".dockerconfigjson") {
        serde_json::from_slice::<File>(&bytes.0).ok().map(|file| file.auths)
    } else {
        data.get(".dockercfg")
            .and_then(|bytes| serde_json::from_slice(&bytes.0).ok())
    };
    let read = |(host, auth): (String, Auth)| {
        use base64::Engine as _;
        let (username, password) = if auth.username.is_empty() {
            let bytes = base64::engine::general_purpose::STANDARD.decode(&auth.both).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            let (username, password) = text.split_once(':')?;
            (username.to_owned(), password.to_owned())
        } else {
            (auth.username, auth.password)
        };
        let host = host.trim_start_matches("https://").trim_start_matches("http://");
        let host = host.split('/').next().unwrap_or_default().to_owned();
        Some(Credentials {
            host,
            username,
            password: Secret::new(password),
        })
    };
    auths.into_iter().flatten().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn container(value: serde_json::Value) -> Container {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn limits_go_before_requests_and_parts_of_a_core_do_not_count() {
        let with = |resources| hardware(&container(json!({"name": "c", "resources": resources})));
        let asked =
            with(json!({"limits": {"cpu": "3500m", "memory": "4Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}));
        assert_eq!((asked.cpu, asked.memory_mib), (Some(3), Some(4096)));
        let requested = with(json!({"requests": {"cpu": "2"}}));
        assert_eq!((requested.cpu, requested.memory_mib), (Some(2), None));
        assert_eq!(with(json!({"limits": {"cpu": "500m"}})).cpu, None);
    }

    #[test]
    fn credentials_are_read_from_both_kinds_of_secrets() {
        let secret = |key: &str, value: serde_json::Value| k8s_openapi::api::core::v1::Secret {
            data: Some([(key.to_owned(), k8s_openapi::ByteString(value.to_string().into_bytes()))].into()),
            ..Default::default()
        };
        let new = secret(
            ".dockerconfigjson",
            json!({"auths": {"https://ghcr.io/v2/": {"auth": "bWU6cGFzczp3b3Jk"}}}),
        );
        let found = logins(&new).pop().unwrap();
        assert_eq!((found.host.as_str(), found.username.as_str()), ("ghcr.io", "me"));
        assert_eq!(found.password.expose(), "pass:word");
        let old = secret(
            ".dockercfg",
            json!({"r.example:5000": {"username": "u", "password": "p"}}),
        );
        assert_eq!(logins(&old).pop().unwrap().host, "r.example:5000");
        assert!(logins(&secret(".dockercfg", json!("nonsense"))).is_empty());
    }
}
