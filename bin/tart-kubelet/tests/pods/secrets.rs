//! Who gets to see a secret: the container it is for, and nobody after it.

use crate::lives::WAITS;
use crate::stage::{IMAGE, Mac, container, phase, until, waits};
use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use russet_sim_tart::{Image, PullFault};
use serde_json::{Value, json};
use std::process::Stdio;

/// In the environment, in a volume, and for the registry.
pub(crate) async fn what_is_secret_is_told_to_containers_alone_and_goes_with_them() -> Result<()> {
    let mac = Mac::new("secre1").await?;
    let (volume, password) = ("canary-volume-55e1", "canary-password-9c40");
    mac.control.require_login("ghcr.io", "robot", password)?;
    put_login(&mac, "registry", "robot", password).await?;
    let files = json!({"metadata": {"name": "files"}, "stringData": {"key": volume}});
    mac.make::<Secret>(files).await?;
    let agent = mac.start()?;
    let more = json!({"spec": {
        "imagePullSecrets": [{"name": "registry"}],
        "containers": [{"image": IMAGE, "volumeMounts": [{}, {"name": "files", "mountPath": "/opt/files"}]}],
        "volumes": [{}, {"name": "files", "secret": {"secretName": "files"}}],
    }});
    let seen = "grep -q canary-volume /opt/files/key && [ -n \"$CANARY\" ] && touch /opt/work/seen";
    let script = format!("{seen}; {WAITS} 0");
    let pod = mac.run("job", &script, more).await?;
    mac.until_running("job").await?;
    mac.until_there(&pod, "seen").await?;
    // While it runs its files are there, and nothing else is.
    let folder = mac.host.path("state/pods");
    let (disk, registry) = (mac.control.home().join("vms"), mac.control.home().join(".sim"));
    for word in [volume, password, &mac.canary()] {
        let leaks = mac.leaks(word);
        let out: Vec<_> = leaks
            .iter()
            .filter(|path| ![&folder, &disk, &registry].iter().any(|known| path.starts_with(known)))
            .collect();
        ensure!(out.is_empty(), "{word} is in {out:?}");
        mac.no_event_tells(word).await?;
    }
    ensure!(!mac.leaks(volume).is_empty(), "this test would not see a secret");
    // The agent dies before it can clean up, and the Pod ends meanwhile.
    agent.killed().await?;
    mac.go(&pod)?;
    let _agent = mac.start()?;
    mac.until_ended("job").await?;
    until("the VM to be gone", || Ok(mac.vms().is_empty())).await?;
    // The Pod is still there to be looked at; what it was given is not.
    until("its secrets to be gone", || {
        Ok(mac.leaks(volume).is_empty() && mac.leaks(&mac.canary()).is_empty())
    })
    .await?;
    mac.delete_all(&["job"]).await
}

/// A password was changed while the image of a Pod was pulled, which took twenty minutes. The container was started with the old one.
pub(crate) async fn a_secret_that_changes_during_a_pull_is_told_as_it_is_by_then() -> Result<()> {
    let mac = Mac::new("secre4").await?;
    let secrets: Api<Secret> = mac.all();
    let secret = |word: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "later"}, "stringData": {"WORD": word}});
    let params = PatchParams::apply("test").force();
    secrets.patch("later", &params, &Patch::Apply(secret("old"))).await?;
    mac.switch(|switches| switches.delay_ms = [("pull".to_owned(), 10_000)].into())?;
    let _agent = mac.start()?;
    let more = json!({"spec": {"containers": [{"envFrom": [{}, {"secretRef": {"name": "later"}}]}]}});
    mac.run("job", "[ \"$WORD\" = new ]", more).await?;
    mac.until_told("job", "Pulling", 1).await?;
    secrets.patch("later", &params, &Patch::Apply(secret("new"))).await?;
    let (_, exit) = mac.until_ended("job").await?;
    ensure!(exit.exit_code == 0, "it was told what was true before: {exit:?}");
    mac.delete_all(&["job"]).await
}

/// A container was dressed for its start and waited for a place when its agent was killed. The next agent dressed it again under
/// another number, and what the first had written lay there for as long as the Pod did, Secrets and all.
pub(crate) async fn a_start_that_never_was_leaves_no_secret() -> Result<()> {
    let mac = Mac::new("secre3").await?;
    let stranger = |name: &str| {
        mac.control.create(name, &Image::default())?;
        let mut tart = tokio::process::Command::new(mac.host.path("bin/tart"));
        tart.args(["run", name, "--no-graphics"])
            .env_clear()
            .env("TART_HOME", mac.control.home())
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        anyhow::Ok(tart.spawn()?)
    };
    let mut strangers = [stranger("one")?, stranger("two")?];
    until("VMs of somebody else", || Ok(mac.control.running()?.len() == 2)).await?;
    let agent = mac.start()?;
    let pod = mac.run("job", &format!("{WAITS} 0"), json!({})).await?;
    let waits = |pod: &Pod| {
        json!(pod.status)
            .to_string()
            .contains("as many virtual machines as macOS allows")
    };
    mac.until("job", "a Pod that waits for a place", waits).await?;
    ensure!(mac.starts(&pod) == ["0"] && !mac.leaks(&mac.canary()).is_empty());
    agent.killed().await?;
    let [one, two] = &mut strangers;
    one.kill().await?;
    let _agent = mac.start()?;
    mac.until_running("job").await?;
    ensure!(mac.starts(&pod) == ["1"], "{:?}", mac.starts(&pod));
    mac.go(&pod)?;
    mac.until_ended("job").await?;
    mac.end("job").await?;
    two.kill().await?;
    mac.until_empty().await
}

/// Makes the namespace that the Mac's Pods are in from now on, with all that they need.
async fn settle(mac: &Mac) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(mac.host.client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": mac.namespace}}))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    mac.settle().await
}

/// A pull secret for the registry.
async fn put_login(mac: &Mac, name: &str, username: &str, password: &str) -> Result<()> {
    let auths = json!({"auths": {"ghcr.io": {"username": username, "password": password}}}).to_string();
    let secret = json!({
        "metadata": {"name": name}, "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": ByteString(auths.into_bytes())},
    });
    mac.make::<Secret>(secret).await?;
    Ok(())
}

/// A Pod runs to its end, and goes. Which image it ran.
async fn runs(mac: &Mac, name: &str, more: Value) -> Result<String> {
    mac.run(name, "exit 0", more).await?;
    let (pod, _) = mac.until_ended(name).await?;
    ensure!(phase(&pod) == "Succeeded", "{:?}", pod.status);
    mac.end(name).await?;
    Ok(container(&pod).context("a container")?.image_id.clone())
}

/// A Pod waits for one of these reasons, with these words, and is given no VM. It goes.
async fn is_refused(mac: &Mac, name: &str, more: Value, reasons: &[&str], words: &str) -> Result<()> {
    mac.run(name, "exit 0", more).await?;
    let refused = |pod: &Pod| {
        let (reason, message) = waits(pod);
        reasons.contains(&reason.as_str()) && message.contains(words)
    };
    mac.until(name, "a Pod that is refused its image", refused).await?;
    let vms = mac.vms();
    let theirs = format!("_{name}_");
    ensure!(!vms.iter().any(|vm| vm.contains(&theirs)), "{name} was given {vms:?}");
    mac.end(name).await
}

/// An image that one namespace had pulled with its secret was run by Pods of every other that knew its name: who found it on the
/// host was asked nothing.
pub(crate) async fn an_image_that_came_with_a_secret_is_for_those_who_may_have_it() -> Result<()> {
    const PULL: &[&str] = &["ErrImagePull", "ImagePullBackOff"];
    const NEVER: &[&str] = &["ErrImageNeverPull"];
    let mut mac = Mac::new("secre2").await?;
    let (first, second) = ("canary-password-41d7", "canary-password-b03e");
    mac.control.require_login("ghcr.io", "robot", first)?;
    put_login(&mac, "registry", "robot", first).await?;
    let agent = mac.start()?;
    let with = |secret: &str| json!({"spec": {"imagePullSecrets": [{"name": secret}]}});
    let never = json!({"spec": {"containers": [{"imagePullPolicy": "Never"}]}});
    let denied = "is not present with pull policy of Never: this Pod has no pull secret";
    let image = runs(&mac, "owner", with("registry")).await?;

    // Somebody else, who knows its name.
    let theirs = std::mem::replace(&mut mac.namespace, "pods-secre2-other".to_owned());
    settle(&mac).await?;
    put_login(&mac, "wrong", "robot", "guessed").await?;
    is_refused(&mac, "bare", json!({}), PULL, "refuses to give").await?;
    is_refused(&mac, "wrong", with("wrong"), PULL, "refuses to give").await?;
    is_refused(&mac, "never", never.clone(), NEVER, denied).await?;
    let pinned = json!({"spec": {"containers": [{"image": image, "imagePullPolicy": "IfNotPresent"}]}});
    is_refused(&mac, "pinned", pinned, PULL, "refuses to give").await?;

    // With a secret of their own that the registry takes, which is another than the first.
    mac.control.require_login("ghcr.io", "other", second)?;
    put_login(&mac, "registry", "other", second).await?;
    runs(&mac, "proves", with("registry")).await?;

    // Who has shown that is known to the next agent, and needs no registry. Others do.
    agent.killed().await?;
    mac.switch(|switches| switches.pull = Some(PullFault::Status(500)))?;
    let _agent = mac.start()?;
    is_refused(&mac, "late", json!({}), PULL, "nothing shows that this Pod may have it").await?;
    is_refused(&mac, "late-never", never, NEVER, denied).await?;
    let known = json!({"spec": {
        "imagePullSecrets": [{"name": "registry"}], "containers": [{"imagePullPolicy": "Never"}],
    }});
    runs(&mac, "known", known).await?;
    mac.namespace = theirs;
    runs(&mac, "owner-again", with("registry")).await?;

    let registry = mac.control.home().join(".sim");
    for word in [first, second] {
        let leaks = mac.leaks(word);
        ensure!(
            leaks.iter().all(|path| path.starts_with(&registry)),
            "{word} is in {leaks:?}"
        );
    }
    mac.until_empty().await?;
    mac.stayed_within_its_rights()
}
