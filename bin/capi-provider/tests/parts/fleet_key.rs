//! One SSH key per fleet, in its Secret and in IAM alike.

use std::collections::BTreeSet;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use russet_capi_provider::fleet_key::{Error, FleetKeys};
use russet_controller::{Class, Classify as _};
use russet_scaleway::config::Proxy;
use russet_scaleway::iam::SshKey;
use russet_scaleway::{Client, Config, Context as Shared, Kind};
use russet_sim_scaleway::{
    Act, DEFAULT_ACCESS_KEY, DEFAULT_PROJECT, DEFAULT_SECRET_KEY, Deed, Fault, Options, Permission, PermissionSet, Sim,
};
use russet_stages::macs::rights::{self, client_of};
use russet_telemetry::Secret;
use russet_testkit::Sandbox;
use serde_json::json;

use crate::support::{self, merge};

const KEYS: &str = "/iam/v1alpha1/ssh-keys";
const OTHER_PROJECT: &str = "0a11ce00-0000-4000-a000-00000000000b";

fn scaleway(sim: &Sim, access: &str, secret: &str, project: &str) -> Result<Client> {
    let mut config = Config::new(access, Secret::from(secret), project.parse()?, sim.url())?;
    config.proxy = Proxy::Never;
    Ok(Client::new(&config, Shared::default())?)
}

fn default_client(sim: &Sim) -> Result<Client> {
    scaleway(sim, DEFAULT_ACCESS_KEY, DEFAULT_SECRET_KEY, DEFAULT_PROJECT)
}

/// A provider that was just started: it remembers nothing.
fn keys(client: &kube::Client, sim: &Sim, sandbox: &Sandbox<'_>) -> Result<FleetKeys> {
    keys_by(client, default_client(sim)?, sandbox)
}

/// The same with another key of Scaleway's.
fn keys_by(client: &kube::Client, scaleway: Client, sandbox: &Sandbox<'_>) -> Result<FleetKeys> {
    let namespace = sandbox.namespace().to_owned();
    Ok(FleetKeys::new(
        client.clone(),
        scaleway,
        namespace,
        DEFAULT_PROJECT.parse()?,
    ))
}

/// A key of Scaleway's for all projects, with all that a provider needs.
fn scaleway_key(access: &str, secret: &str) -> Deed {
    Deed::AddKey {
        access_key: access.to_owned(),
        secret_key: secret.to_owned(),
        organization_id: None,
        projects: None,
        permission_sets: PermissionSet::PROVIDER.into(),
        expires_at: None,
    }
}

async fn registered(sim: &Sim) -> Result<Vec<SshKey>> {
    Ok(default_client(sim)?.list_ssh_keys().await?)
}

fn secrets(client: &kube::Client, sandbox: &Sandbox<'_>) -> Api<KubeSecret> {
    Api::namespaced(client.clone(), sandbox.namespace())
}

/// Incident `fleet-key-race`: two workers found no Secret, made two keys, and the loser deleted the winner's registration. The
/// fleet was locked out of every host it installed from then on.
#[tokio::test]
async fn racing_callers_on_an_empty_cluster_end_with_one_key_everywhere() -> Result<()> {
    let cluster = support::cluster().await?;
    for doubles in [Permission::Refuse, Permission::Accept] {
        let sandbox = cluster.sandbox("fleet-key-race").await?;
        let who = rights::provider(&sandbox).await?.grant().await?;
        let client = client_of(&who).await?;
        let sim = Sim::start(Options::default()).await?;
        sim.handle().set(|settings| settings.duplicate_ssh_keys = doubles);
        let providers = (0..6)
            .map(|_| keys(&client, &sim, &sandbox))
            .collect::<Result<Vec<_>>>()?;
        let found = try_join_all(
            providers
                .iter()
                .flat_map(|keys| [keys.ensure("macs"), keys.ensure("macs")]),
        )
        .await?;

        let publics: BTreeSet<&str> = found.iter().map(|key| key.public.as_str()).collect();
        ensure!(publics.len() == 1, "several keys: {publics:?}");
        let ids: BTreeSet<&str> = found.iter().map(|key| key.key_id.as_str()).collect();
        ensure!(ids.len() == 1, "several registrations: {ids:?}");
        let settled = keys(&client, &sim, &sandbox)?.ensure("macs").await?;
        let secret = secrets(&client, &sandbox).get("macs-ssh").await?;
        ensure!(
            secret
                .annotations()
                .get("scaleway.tuist.dev/ssh-key-id")
                .map(String::as_str)
                == Some(settled.key_id.as_str())
        );
        let registered = registered(&sim).await?;
        ensure!(registered.len() == 1, "{doubles:?}: {registered:?}");
        ensure!(registered[0].id == settled.key_id && registered[0].is_key(&settled.public));
        ensure!(registered[0].name == "macs");
        support::no_denials(cluster, &who)?;
    }
    Ok(())
}

/// The form is that of `ssh-keygen`, which every client understands.
#[tokio::test]
async fn openssh_reads_the_private_key() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("fleet-key-form").await?;
    let client = sandbox.client().await?;
    let sim = Sim::start(Options::default()).await?;
    let key = keys(&client, &sim, &sandbox)?.ensure("macs").await?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("id");
    tokio::fs::write(&file, key.private.expose()).await?;
    tokio::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).await?;
    let output = tokio::process::Command::new("ssh-keygen")
        .args(["-y", "-f"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .await;
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            russet_skip::skipped(russet_skip::test_name!(), "there is no ssh-keygen");
            return Ok(());
        }
        other => other?,
    };
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8(output.stdout)?;
    ensure!(shown.trim() == key.public.trim(), "{shown} is not {}", key.public);
    Ok(())
}

/// A gateway that answers 502 after the key was registered must not lead to a second registration.
#[tokio::test]
async fn a_lost_answer_registers_no_second_key() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("fleet-key-lost").await?;
    let client = sandbox.client().await?;
    for act in [Act::Status(502), Act::Cut] {
        let sim = Sim::start(Options::default()).await?;
        sim.handle()
            .set(|settings| settings.duplicate_ssh_keys = Permission::Accept);
        sim.handle().inject(Fault::new("POST", KEYS, act).after_effect());
        let key = keys(&client, &sim, &sandbox)?.ensure("macs").await?;
        let registered = registered(&sim).await?;
        ensure!(
            registered.len() == 1 && registered[0].id == key.key_id,
            "{registered:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn an_operators_own_secret_is_respected() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("fleet-key-operator").await?;
    let client = sandbox.client().await?;
    let sim = Sim::start(Options::default()).await?;
    // Somebody's own key, made as ours are, under a label-less Secret; and an unrelated key under the fleet's name.
    let own = keys(&client, &sim, &sandbox)?.ensure("donor").await?;
    let other = keys(&client, &sim, &sandbox)?.ensure("other").await?;
    let iam = default_client(&sim)?;
    iam.delete_ssh_key(&own.key_id).await?;
    iam.delete_ssh_key(&other.key_id).await?;
    let older = iam.create_ssh_key("macs", &other.public).await?;
    support::create(
        &client,
        Some(sandbox.namespace()),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "macs-ssh"},
            "stringData": {"id_ed25519": own.private.expose(), "sudo-password": "hunter2\n"},
        }),
    )
    .await?;
    let before = secrets(&client, &sandbox).get("macs-ssh").await?;

    let key = keys(&client, &sim, &sandbox)?.ensure("macs").await?;
    ensure!(key.public == own.public, "the operator's key is the fleet's");
    ensure!(key.sudo_password.context("a password")?.expose() == "hunter2");
    let after = secrets(&client, &sandbox).get("macs-ssh").await?;
    ensure!(
        after.data == before.data && after.labels() == before.labels(),
        "only the annotation is ours"
    );
    let registered = registered(&sim).await?;
    ensure!(
        registered.iter().any(|known| known.id == older.id),
        "what stood under the name beside an operator's Secret is not ours to remove"
    );
    ensure!(
        registered
            .iter()
            .any(|known| known.id == key.key_id && known.is_key(&own.public))
    );
    Ok(())
}

#[tokio::test]
async fn an_older_key_of_the_name_gives_way_in_our_project_and_in_no_other() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("fleet-key-older").await?;
    let client = sandbox.client().await?;
    let sim = Sim::start(Options::default()).await?;
    sim.handle()
        .set(|settings| settings.duplicate_ssh_keys = Permission::Accept);
    sim.handle().perform(Deed::AddProject {
        id: OTHER_PROJECT.parse()?,
        name: "theirs".into(),
        organization_id: None,
    })?;
    let (access, secret) = ("SCWWHOLEORGANISATION", "5ca1ab1e-0000-4000-a000-00000000000b");
    sim.handle().perform(scaleway_key(access, secret))?;
    let whole = |project| scaleway(&sim, access, secret, project);
    let donor = keys(&client, &sim, &sandbox)?.ensure("donor").await?;
    let ours = whole(DEFAULT_PROJECT)?.create_ssh_key("macs", &donor.public).await?;
    let theirs = whole(OTHER_PROJECT)?.create_ssh_key("macs", &donor.public).await?;

    let fleet = keys_by(&client, whole(DEFAULT_PROJECT)?, &sandbox)?;
    let key = fleet.ensure("macs").await?;
    let here: Vec<_> = registered(&sim)
        .await?
        .into_iter()
        .filter(|key| key.name == "macs")
        .collect();
    ensure!(
        here.len() == 1 && here[0].id == key.key_id && here[0].id != ours.id,
        "{here:?}"
    );
    let there = whole(OTHER_PROJECT)?.list_ssh_keys().await?;
    ensure!(
        there.len() == 1 && there[0].id == theirs.id,
        "another project's key was touched: {there:?}"
    );
    Ok(())
}

/// Incident `iam-project-scope`: a key that is limited to one project may not ask about the organisation.
#[tokio::test]
async fn a_key_for_one_project_suffices_and_iam_is_asked_seldom() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("iam-project-scope").await?;
    let client = sandbox.client().await?;
    let sim = Sim::start(Options::default()).await?;
    let secret = "5ca1ab1e-0000-4000-a000-00000000000c";
    sim.handle().perform(Deed::AddKey {
        access_key: "SCWONEPROJECTONLY000".into(),
        secret_key: secret.into(),
        organization_id: None,
        projects: Some([DEFAULT_PROJECT.parse()?].into()),
        permission_sets: [PermissionSet::SshKeysFullAccess].into(),
        expires_at: None,
    })?;
    let narrow = || scaleway(&sim, "SCWONEPROJECTONLY000", secret, DEFAULT_PROJECT);
    let new = || keys_by(&client, narrow()?, &sandbox);
    let fleet = new()?;
    let first = fleet.ensure("macs").await?;
    let calls = sim.handle().journal().len();
    for _ in 0..10 {
        ensure!(fleet.ensure("macs").await?.key_id == first.key_id);
    }
    ensure!(
        sim.handle().journal().len() == calls,
        "a key that was just seen is not looked up again"
    );
    ensure!(
        sim.handle()
            .journal()
            .iter()
            .all(|call| call.method != "GET" || call.query.contains(&format!("project_id={DEFAULT_PROJECT}"))),
        "{:?}",
        sim.handle().journal()
    );
    // A restart looks, and finds what somebody took away.
    narrow()?.delete_ssh_key(&first.key_id).await?;
    let again = new()?.ensure("macs").await?;
    ensure!(again.public == first.public && again.key_id != first.key_id);
    ensure!(registered(&sim).await?.len() == 1);
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_is_said_and_heals() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("fleet-key-bad").await?;
    let client = sandbox.client().await?;
    let sim = Sim::start(Options::default()).await?;
    let fleet = keys(&client, &sim, &sandbox)?;
    support::create(
        &client,
        Some(sandbox.namespace()),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "macs-ssh"}, "stringData": {"id_ed25519": "canary"}}),
    )
    .await?;
    let error = fleet.ensure("macs").await.unwrap_err();
    ensure!(matches!(error, Error::Malformed { .. }) && error.class() == Class::Forbidden);
    let text = format!("{error} {error:?}");
    ensure!(text.contains("ssh-keygen") && !text.contains("canary"), "{text}");
    secrets(&client, &sandbox)
        .delete("macs-ssh", &DeleteParams::default())
        .await?;

    sim.handle().perform(Deed::ExpireKey {
        access_key: DEFAULT_ACCESS_KEY.into(),
    })?;
    let error = fleet.ensure("macs").await.unwrap_err();
    ensure!(
        matches!(&error, Error::Iam { source, .. } if matches!(source.kind, Kind::Unauthenticated { .. })),
        "{error:?}"
    );
    ensure!(error.to_string().contains("SCW_SECRET_KEY"), "{error}");
    let made = secrets(&client, &sandbox).get("macs-ssh").await?;
    sim.handle()
        .perform(scaleway_key(DEFAULT_ACCESS_KEY, DEFAULT_SECRET_KEY))?;
    let key = fleet.ensure("macs").await?;
    let kept = secrets(&client, &sandbox).get("macs-ssh").await?;
    ensure!(
        kept.data == made.data,
        "the key that was made is the key that is registered"
    );
    // An annotation that was lost or scribbled over is put right from what IAM lists.
    let scribble = json!({"metadata": {"annotations": {"scaleway.tuist.dev/ssh-key-id": "no such id!"}}});
    merge(&secrets(&client, &sandbox), "macs-ssh", scribble).await?;
    ensure!(fleet.ensure("macs").await?.key_id == key.key_id);
    ensure!(registered(&sim).await?.len() == 1);
    ensure!(matches!(fleet.ensure("No Good").await, Err(Error::Name { .. })));
    Ok(())
}
