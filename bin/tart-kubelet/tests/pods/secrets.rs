//! Who gets to see a secret: the container it is for, and nobody after it.

use crate::lives::WAITS;
use crate::stage::{IMAGE, Mac, PATIENCE};
use anyhow::{Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use russet_e2e::wait;
use serde_json::json;

/// In the environment, in a volume, and for the registry.
pub(crate) async fn what_is_secret_is_told_to_containers_alone_and_goes_with_them() -> Result<()> {
    let mac = Mac::new("secre1").await?;
    let (volume, password) = ("canary-volume-55e1", "canary-password-9c40");
    mac.control.require_login("ghcr.io", "robot", password)?;
    let secrets: Api<Secret> = Api::namespaced(mac.host.client.clone(), &mac.namespace);
    let auths = json!({"auths": {"ghcr.io": {"username": "robot", "password": password}}}).to_string();
    for secret in [
        json!({"metadata": {"name": "files"}, "stringData": {"key": volume}}),
        json!({
            "metadata": {"name": "registry"}, "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": ByteString(auths.into_bytes())},
        }),
    ] {
        secrets
            .create(&PostParams::default(), &serde_json::from_value(secret)?)
            .await?;
    }
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
    wait::until_true("a container that has read them", PATIENCE, || async {
        Ok(mac.work(&pod).join("seen").exists())
    })
    .await?;
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
    wait::until_true("the VM to be gone", PATIENCE, || async { Ok(mac.vms().is_empty()) }).await?;
    // The Pod is still there to be looked at; what it was given is not.
    wait::until_true("its secrets to be gone", PATIENCE, || async {
        Ok(mac.leaks(volume).is_empty() && mac.leaks(&mac.canary()).is_empty())
    })
    .await?;
    mac.delete("job").await?;
    mac.until_gone("job").await?;
    mac.until_empty().await
}
