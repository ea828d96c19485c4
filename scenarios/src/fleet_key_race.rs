//! Two workers found no key, made one each, and a whole fleet was locked out of the hosts it installed.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use russet_capi_provider::fleet_key::FleetKeys;
use russet_sim_scaleway::{DEFAULT_PROJECT, Minis, Options, Sim};
use russet_testkit::TestCluster;
use serde_json::{Value, json};

use super::raw::{self, DEFAULT, Raw};
use super::{Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "fleet-key-race",
    from: "F capi 7.4",
    what_happened: "two workers made two keys for one fleet, and the fleet locked itself out",
    must_hold: "one key wins everywhere: in the Secret, in IAM, and on every host that is installed",
    without: None,
    play: Play::Cluster(run),
};

const WORKERS: usize = 6;

fn run<'a>(stage: &'a mut Stage<'_, TestCluster>) -> BoxFuture<'a, Result<()>> {
    async move {
        naive(stage).await?;
        ours(stage).await
    }
    .boxed()
}

async fn naive(stage: &mut Stage<'_, TestCluster>) -> Result<()> {
    let sim = Sim::start(Options::default()).await?;
    let namespace = stage.world.sandbox("naive").await?.namespace().to_owned();
    let secrets: Api<Secret> = Api::namespaced(stage.world.client().await?, &namespace);
    let url = format!("{}/iam/v1alpha1/ssh-keys", sim.url());
    let raw = Raw::default();

    stage.step("two naive workers look for the key of a fleet, both find none, and each makes a pair");
    let (mut publics, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        seen.push(secrets.get_opt("macs-ssh").await?);
        publics.push(public_key()?);
    }
    ensure!(seen.iter().all(Option::is_none), "somebody made a key already");
    stage.step("each replaces what is registered under the fleet's name by its own key, and then writes the Secret if there is none");
    for public in &publics {
        let list = format!("{url}?project_id={DEFAULT_PROJECT}&name=macs");
        let known = raw.call("GET", &list, Value::Null).await?;
        let known = known.get("ssh_keys").and_then(Value::as_array).cloned();
        for stale in known.context("a list of keys")? {
            let id = stale.get("id").and_then(Value::as_str).context("an id")?;
            raw.call("DELETE", &format!("{url}/{id}"), Value::Null).await?;
        }
        let body = json!({"name": "macs", "public_key": public, "project_id": DEFAULT_PROJECT});
        raw.call("POST", &url, body).await?;
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "macs-ssh"}, "stringData": {"id_ed25519.pub": public},
        }))?;
        match secrets.create(&PostParams::default(), &secret).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let kept = stored(&secrets).await?;
    let admitted = installed(&sim)?;
    ensure!(
        !admitted.contains(&kept),
        "the staged fault did not bite: the Secret has {kept}, a new host admits {admitted:?}"
    );
    stage.bites("the Secret has the first key, IAM the second: a host that is installed now admits nobody we could be");
    Ok(())
}

async fn ours(stage: &mut Stage<'_, TestCluster>) -> Result<()> {
    stage.step(format!(
        "{WORKERS} providers that know nothing of each other want the key of a fleet at once"
    ));
    let sim = Sim::start(Options::default()).await?;
    let namespace = stage.world.sandbox("ours").await?.namespace().to_owned();
    let client = stage.world.client().await?;
    let scaleway = raw::client(&sim, DEFAULT)?;
    let project = scaleway.project().clone();
    let workers: Vec<FleetKeys> = (0..WORKERS)
        .map(|_| FleetKeys::new(client.clone(), scaleway.clone(), namespace.clone(), project.clone()))
        .collect();
    let keys = try_join_all(workers.iter().map(|worker| worker.ensure("macs"))).await?;
    let publics: BTreeSet<&str> = keys.iter().map(|key| key.public.as_str()).collect();
    ensure!(publics.len() == 1, "several keys: {publics:?}");
    stage.holds("all of them got one and the same key");

    let kept = stored(&Api::namespaced(client, &namespace)).await?;
    let registered = scaleway.list_ssh_keys().await?;
    let one = matches!(registered.as_slice(), [only] if only.is_key(&kept));
    ensure!(one, "the Secret has {kept}, IAM has {registered:?}");
    stage.holds("it is the one in the Secret, and the only one in IAM");

    let admitted = installed(&sim)?;
    ensure!(admitted.contains(&kept), "a new host admits {admitted:?}, not {kept}");
    stage.holds("a host that is installed now admits it");
    Ok(())
}

/// A fresh public key, as SSH writes it.
pub(super) fn public_key() -> Result<String> {
    let pair = Ed25519KeyPair::generate().ok().context("no random numbers")?;
    let mut blob = Vec::new();
    for part in [b"ssh-ed25519".as_slice(), pair.public_key().as_ref()] {
        blob.extend(u32::try_from(part.len())?.to_be_bytes());
        blob.extend(part);
    }
    Ok(format!("ssh-ed25519 {}", STANDARD.encode(blob)))
}

/// A key without its comment.
fn essence(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().take(2).collect();
    words.join(" ")
}

async fn stored(secrets: &Api<Secret>) -> Result<String> {
    let secret = secrets.get("macs-ssh").await?;
    let data = secret.data.unwrap_or_default();
    let line = data.get("id_ed25519.pub").context("the Secret has no public key")?;
    Ok(essence(std::str::from_utf8(&line.0)?))
}

/// Who may log in to a host that is installed now.
fn installed(sim: &Sim) -> Result<BTreeSet<String>> {
    let made = sim.handle().add_minis(Minis::default())?;
    let server = made.first().context("no mini was made")?;
    let host = sim.handle().host(server).context("the mini is gone")?;
    Ok(host.authorized_keys.iter().map(|line| essence(line)).collect())
}
