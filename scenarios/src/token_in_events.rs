//! Proves a part, the provider on stand-in hosts, which no secret passes: a script with a token in it failed, and the error that embedded
//! the script was on its way into an event.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use russet_sim_scaleway::DEFAULT_SECRET_KEY;
use russet_stages::macs::{CORE, Fleet, INFRA, Yard};
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use super::{FLEET_ARGS, Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "token-in-events",
    from: "S3",
    what_happened: "a failing config script could leak its token",
    must_hold: "no secret appears in any event, status, log line or argv, checked by canary values while joins fail",
    without: None,
    play: Play::Own(run),
};

const CANARY: &str = "AFAKETOKENFORTHISSTORY";
/// Attempts that must have failed before anybody looks.
const ATTEMPTS: i32 = 3;

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> LocalBoxFuture<'a, Result<()>> {
    async move {
        naive(stage).await?;
        let Stage { narrator, .. } = stage;
        // A cluster of its own, since every object and process of it is looked at.
        let fleet = Fleet::apart(&FLEET_ARGS).await?;
        narrator.step("two Macs whose every attempt to join fails, until each has failed several times");
        let yard = fleet.yard("canary", 2).await?;
        for server in yard.minis() {
            ensure!(
                fleet.macs.fail_joins(&server, u32::MAX).await,
                "there is no Mac {server}"
            );
        }
        // What the hosts are protected by before anything can have wiped them.
        let mut canaries = passwords(&yard);
        yard.cluster().await?;
        yard.template("macos", json!({})).await?;
        yard.deployment("macos", "macos", 2).await?;
        failing(&yard).await?;
        canaries.extend(passwords(&yard));
        canaries.extend(secrets(&yard).await?);
        canaries.insert("the Scaleway secret key".to_owned(), DEFAULT_SECRET_KEY.to_owned());
        for (what, least) in [
            ("password", 2),
            ("bootstrap token", 2),
            ("fleet key", 1),
            ("kubeconfig", 1),
        ] {
            let found = canaries.keys().filter(|name| name.contains(what)).count();
            ensure!(found >= least, "only {found} of kind {what} to look for");
        }
        narrator.step(&format!(
            "look for {} secrets wherever the provider says something",
            canaries.len()
        ));

        let events = events(&yard).await?;
        ensure!(events.contains(&yard.namespace), "no event is about these Macs");
        clean("the events", &events, &canaries)?;
        narrator.holds("none is in an event");
        let objects = objects(&yard).await?;
        ensure!(objects.contains("BootstrapFailed"), "no status tells of the failure");
        clean("an object", &objects, &canaries)?;
        narrator.holds("none is in a status or anywhere else in an object, though conditions tell of the failure");
        let log = fleet.provider_log();
        ensure!(log.contains(&yard.namespace), "the log tells nothing of these Macs");
        clean("the provider's log", &log, &canaries)?;
        narrator.holds("none is in a line of the provider's log");
        clean("an argv", &command_lines(&fleet)?, &canaries)?;
        narrator.holds("none is in the argv of a process");
        Ok(())
    }
    .boxed_local()
}

/// A script with its token inside, as it was run.
async fn naive(stage: &mut Stage<'_, ()>) -> Result<()> {
    stage.step("a naive controller puts the token into a script, runs it with sh -c, and reports what failed");
    let script = format!("echo started; read -r _; ./config.sh --token {CANARY}");
    let mut child = tokio::process::Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("failed to start sh")?;
    let canaries = BTreeMap::from([("the token".to_owned(), CANARY.to_owned())]);
    // It runs once it has said something.
    let mut said = String::new();
    let stdout = child.stdout.take().context("no output")?;
    BufReader::new(stdout).read_line(&mut said).await?;
    let pid = child.id().context("it ended too early")?;
    ensure!(
        clean("the argv", &command_line(pid)?, &canaries).is_err(),
        "the staged fault did not bite"
    );
    stage.bites("whoever may list processes reads the token in the argv");
    drop(child.stdin.take());
    let mut complaint = String::new();
    let mut stderr = child.stderr.take().context("no errors")?;
    stderr.read_to_string(&mut complaint).await?;
    let status = child.wait().await?;
    ensure!(!status.success(), "the script did not fail");
    let error = format!("running `{script}` failed with {status}: {complaint}");
    ensure!(
        clean("the error", &error, &canaries).is_err(),
        "the staged fault did not bite"
    );
    stage.bites("the error embeds its script, and an event made of it would show the token to every reader");
    Ok(())
}

/// Fails if one of the secrets is in a text. Says which and where, not what.
fn clean(place: &str, text: &str, canaries: &BTreeMap<String, String>) -> Result<()> {
    let found: Vec<&String> = canaries
        .iter()
        .filter(|(_, secret)| text.contains(secret.as_str()))
        .map(|(what, _)| what)
        .collect();
    ensure!(found.is_empty(), "{place} shows {found:?}");
    Ok(())
}

async fn failing(yard: &Yard<'_>) -> Result<()> {
    wait::until("both Macs to have failed several times", PATIENCE, || async {
        let macs = yard.all_macs().await?;
        let attempts: Vec<i32> = macs
            .iter()
            .map(|mac| {
                mac.status
                    .as_ref()
                    .and_then(|status| status.bootstrap_attempts)
                    .unwrap_or(0)
            })
            .collect();
        let enough = attempts.len() == 2 && attempts.iter().all(|count| *count >= ATTEMPTS);
        Ok(if enough {
            Look::Done(())
        } else {
            Look::not_yet(attempts)
        })
    })
    .await
}

fn passwords(yard: &Yard<'_>) -> BTreeMap<String, String> {
    let hosts = yard
        .minis()
        .into_iter()
        .filter_map(|server| yard.fleet.sim.handle().host(&server));
    hosts
        .map(|host| {
            let what = format!(
                "the password of {} after {} installations",
                host.server_id, host.generation
            );
            (what, host.password)
        })
        .collect()
}

/// What the provider keeps in Secrets.
async fn secrets(yard: &Yard<'_>) -> Result<BTreeMap<String, String>> {
    let all = Api::<Secret>::all(yard.client.clone())
        .list(&ListParams::default())
        .await?;
    let mut found = BTreeMap::new();
    for secret in all.items {
        let name = secret.metadata.name.clone().unwrap_or_default();
        for (key, value) in secret.data.unwrap_or_default() {
            let text = String::from_utf8_lossy(&value.0).into_owned();
            match key.as_str() {
                "token-secret" => {
                    found.insert(format!("the bootstrap token {name}"), text);
                }
                "id_ed25519" => {
                    // Any line of it: a log would not keep them together.
                    let lines = text
                        .lines()
                        .filter(|line| !line.starts_with("-----") && line.len() >= 16);
                    found.extend(
                        lines
                            .enumerate()
                            .map(|(number, line)| (format!("line {number} of the fleet key {name}"), line.to_owned())),
                    );
                }
                "value" => {
                    let kubeconfig: serde_json::Value = serde_yaml_ng::from_str(&text).unwrap_or_default();
                    let tokens = kubeconfig.get("users").and_then(serde_json::Value::as_array).cloned();
                    let tokens = tokens
                        .into_iter()
                        .flatten()
                        .filter_map(|user| user.pointer("/user/token")?.as_str().map(str::to_owned));
                    found.extend(tokens.map(|token| (format!("the token of kubeconfig {name}"), token)));
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

async fn events(yard: &Yard<'_>) -> Result<String> {
    let all = Api::<Event>::all(yard.client.clone())
        .list(&ListParams::default())
        .await?;
    Ok(serde_json::to_string(&all.items)?)
}

/// Every object of ours, and those of core that repeat what ours say, whole.
async fn objects(yard: &Yard<'_>) -> Result<String> {
    let mut text = String::new();
    for (group, version, kind) in [
        (INFRA, "v1alpha1", "ScalewayAppleSiliconCluster"),
        (INFRA, "v1alpha1", "ScalewayAppleSiliconMachine"),
        (INFRA, "v1alpha1", "ScalewayAppleSiliconMachineTemplate"),
        (CORE, "v1beta2", "Cluster"),
        (CORE, "v1beta2", "Machine"),
        (CORE, "v1beta2", "MachineSet"),
        (CORE, "v1beta2", "MachineDeployment"),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::all_with(yard.client.clone(), &resource);
        let all = api.list(&ListParams::default()).await?;
        ensure!(!all.items.is_empty(), "there is no {kind} to look at");
        text.push_str(&serde_json::to_string(&all.items)?);
    }
    Ok(text)
}

/// The argv of every process that the stage runs.
fn command_lines(fleet: &Fleet) -> Result<String> {
    ensure!(fleet.provider_pid().is_some(), "the provider does not run");
    let parts = fleet.cluster.supervisor().snapshot();
    let lines: Result<Vec<String>> = parts
        .into_iter()
        .filter_map(|part| part.pid)
        .map(command_line)
        .collect();
    Ok(lines?.join("\n"))
}

fn command_line(pid: u32) -> Result<String> {
    let path = format!("/proc/{pid}/cmdline");
    let bytes = std::fs::read(&path).with_context(|| format!("failed to read {path}"))?;
    ensure!(!bytes.is_empty(), "{path} is empty");
    Ok(String::from_utf8_lossy(&bytes).replace('\0', " "))
}
