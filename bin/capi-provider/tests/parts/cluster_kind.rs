//! The cluster kind under real Cluster API core: contract fields, the kubeconfig Secret, pausing, and what is said when something is wrong.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use russet_api::conditions;
use russet_stages::macs::rights;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::fleet::{settings, world};
use crate::support::{self, merge};

/// Incident `no-workload-kubeconfig`: on an empty cluster the provider supplies what core connects with. Contract rules C1, C3 and C4, and the
/// control-plane half of the same object.
#[tokio::test]
async fn core_connects_through_the_secret_we_supply_and_the_cluster_becomes_available() -> Result<()> {
    let test_cluster = support::cluster().await?;
    let sandbox = test_cluster.sandbox("kubeconfig").await?;
    rights::core(&sandbox.client().await?, sandbox.namespace()).await?;
    let mut settings = settings(&sandbox);
    settings.zones = vec!["fr-par-1".into(), "fr-par-3".into()];
    let world = world(&sandbox, settings).await?;
    world.fleet(&sandbox, json!({})).await?;

    for type_ in [
        "InfrastructureReady",
        "ControlPlaneInitialized",
        "ControlPlaneAvailable",
        "RemoteConnectionProbe",
        "Available",
    ] {
        world.core_says(type_, "True").await?;
    }
    let infra = world.infras.get("fleet").await?;
    let endpoint = infra
        .spec
        .control_plane_endpoint
        .clone()
        .context("the endpoint was filled in")?;
    let (host, port) = endpoint.known().context("host and port")?;
    ensure!(test_cluster.control_plane().server() == format!("https://{host}:{port}"));
    let cluster = world.clusters.get("fleet").await?;
    ensure!(
        cluster.data.pointer("/spec/controlPlaneEndpoint/host") == Some(&json!(host)),
        "C1: core copies it"
    );
    let status = infra.status.context("a status")?;
    ensure!(status.external_managed_control_plane == Some(true) && status.ready == Some(true));
    ensure!(status.initialized == Some(true) && status.failure_domains.len() == 2);
    let domains = cluster.data.pointer("/status/failureDomains").and_then(Value::as_array);
    ensure!(
        domains.is_some_and(|domains| domains.len() == 2),
        "C2: core copies them"
    );

    let secret = world.secret().await?;
    ensure!(secret.type_.as_deref() == Some("cluster.x-k8s.io/secret"));
    ensure!(secret.labels()["cluster.x-k8s.io/cluster-name"] == "fleet");
    let owner = &secret.owner_references()[0];
    ensure!(owner.kind == "Cluster" && Some(&owner.uid) == cluster.metadata.uid.as_ref());

    // Incident `secret-dies-with-hook`: whoever takes it away, it comes back.
    world
        .secrets
        .delete("fleet-kubeconfig", &DeleteParams::default())
        .await?;
    let again = world.secret().await?;
    ensure!(again.metadata.uid != secret.metadata.uid);
    // It goes with its Cluster.
    world.clusters.delete("fleet", &DeleteParams::default()).await?;
    wait::until_true("the Secret to go with its Cluster", PATIENCE, || async {
        Ok(world.secrets.get_opt("fleet-kubeconfig").await?.is_none())
    })
    .await?;
    support::no_denials(test_cluster, &world.who)?;
    Ok(())
}

/// A quiet cluster is not written to.
#[tokio::test]
async fn nothing_is_written_while_nothing_changes() -> Result<()> {
    let test_cluster = support::cluster().await?;
    let sandbox = test_cluster.sandbox("quiet").await?;
    rights::core(&sandbox.client().await?, sandbox.namespace()).await?;
    let world = world(&sandbox, settings(&sandbox)).await?;
    world.fleet(&sandbox, json!({})).await?;
    world.core_says("Available", "True").await?;
    let writes = |resource: &str| -> Result<usize> {
        Ok(test_cluster
            .audit()?
            .writes_per_object(&world.who.username, resource)?
            .values()
            .sum())
    };
    let reads = || -> Result<usize> {
        let all = test_cluster.audit()?.of_user(&world.who.username)?;
        Ok(all
            .iter()
            .filter(|entry| entry.verb == "get" && entry.object().resource == "secrets")
            .count())
    };
    let (before, looked) = (writes("scalewayapplesiliconclusters")?, reads()?);
    let secret = world.secret().await?;
    wait::until_true("the controller to look ten times more", PATIENCE, || async {
        Ok(reads()? >= looked + 10)
    })
    .await?;
    ensure!(
        writes("scalewayapplesiliconclusters")? == before,
        "the status was written again"
    );
    ensure!(
        world.secret().await?.resource_version() == secret.resource_version(),
        "the Secret was written again"
    );
    Ok(())
}

#[tokio::test]
async fn a_missing_service_account_is_named_and_healed_and_a_new_one_gives_a_new_token() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("account").await?;
    let world = world(&sandbox, settings(&sandbox)).await?;
    world.fleet(&sandbox, json!({})).await?;
    let condition = world.condition("Ready", "False", "CredentialUnavailable").await?;
    let message = condition.message.unwrap_or_default();
    ensure!(
        message.contains("capi-remote does not exist") && message.contains("create it"),
        "{message}"
    );
    ensure!(
        world
            .infras
            .get("fleet")
            .await?
            .status
            .unwrap_or_default()
            .ready
            .is_none(),
        "nothing is ready yet"
    );

    rights::core(&world.admin, sandbox.namespace()).await?;
    world.condition("Ready", "True", "Ready").await?;
    world.condition("Available", "True", "Ready").await?;
    let first = world.secret().await?;

    // Deleted and made anew: the old token is refused from then on.
    let accounts: Api<ServiceAccount> = Api::namespaced(world.admin.clone(), sandbox.namespace());
    accounts.delete("capi-remote", &DeleteParams::default()).await?;
    world.condition("Ready", "False", "CredentialUnavailable").await?;
    support::service_account(&world.admin, sandbox.namespace()).await?;
    world.condition("Ready", "True", "Ready").await?;
    world.condition("Available", "True", "Ready").await?;
    ensure!(world.secret().await?.data != first.data);
    Ok(())
}

/// Core goes on with the old token until it is refused, so the new one has to be there long before the old one ends.
#[tokio::test]
async fn a_token_past_half_of_its_life_is_replaced() -> Result<()> {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let sandbox = support::cluster().await?.sandbox("renew").await?;
    rights::core(&sandbox.client().await?, sandbox.namespace()).await?;
    let world = world(&sandbox, settings(&sandbox)).await?;
    world.fleet(&sandbox, json!({})).await?;
    world.condition("Available", "True", "Ready").await?;
    let secret = world.secret().await?;
    let text = String::from_utf8(secret.data.context("data")?["value"].0.clone())?;
    let now = k8s_openapi::jiff::Timestamp::now().as_second();
    let life = |text: &str| -> Result<(i64, i64)> {
        let token = text
            .split("token: ")
            .nth(1)
            .and_then(|rest| rest.lines().next())
            .context("a token")?;
        let payload: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1).context("a JWT")?)?)?;
        Ok((
            payload["iat"].as_i64().context("iat")?,
            payload["exp"].as_i64().context("exp")?,
        ))
    };
    let (began, ends) = life(&text)?;
    ensure!(
        ends - began >= 3600,
        "a lifetime with room for half of it: {began}..{ends}"
    );

    // The same Secret, with a token that says it is past its half.
    let old = URL_SAFE_NO_PAD.encode(json!({"iat": now - 7200, "exp": now + 3600}).to_string());
    let token = text
        .split("token: ")
        .nth(1)
        .and_then(|rest| rest.lines().next())
        .context("a token")?;
    let aged = text.replace(token, &format!("e30.{old}.c2ln"));
    merge(
        &world.secrets,
        "fleet-kubeconfig",
        json!({"stringData": {"value": aged}}),
    )
    .await?;
    wait::until("a new token", PATIENCE, || async {
        let data = world.secret().await?.data.unwrap_or_default();
        let (_, ends) = life(&String::from_utf8(data["value"].0.clone())?)?;
        Ok(Look::done_if(ends > now + 3600, ends))
    })
    .await?;
    world.condition("Available", "True", "Ready").await?;
    Ok(())
}

/// Contract rules C7 and C8.
#[tokio::test]
async fn a_paused_cluster_waits_and_one_that_somebody_else_manages_is_not_touched() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("paused").await?;
    rights::core(&sandbox.client().await?, sandbox.namespace()).await?;
    let world = world(&sandbox, settings(&sandbox)).await?;
    // Before anybody refers to it, there is nothing to do but to say so.
    world.infra(&sandbox, json!({"cluster.x-k8s.io/paused": ""})).await?;
    world.condition("Ready", "False", "WaitingForOwner").await?;
    world.cluster(&sandbox, json!({})).await?;
    let condition = world.condition("Paused", "True", "Paused").await?;
    ensure!(condition.message.unwrap_or_default().contains("annotation"));
    ensure!(
        world.secrets.get_opt("fleet-kubeconfig").await?.is_none(),
        "nothing is done while paused"
    );

    merge(&world.clusters, "fleet", json!({"spec": {"paused": true}})).await?;
    merge(
        &world.infras,
        "fleet",
        json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}}),
    )
    .await?;
    wait::until_true("the Cluster's pause to be told", PATIENCE, || async {
        let status = world.infras.get("fleet").await?.status.unwrap_or_default();
        let paused = conditions::find(&status.conditions, "Paused").and_then(|c| c.message.clone());
        Ok(paused.is_some_and(|message| message.contains("Cluster is paused")))
    })
    .await?;
    merge(&world.clusters, "fleet", json!({"spec": {"paused": false}})).await?;
    world.condition("Paused", "False", "NotPaused").await?;
    world.condition("Available", "True", "Ready").await?;

    // From here on somebody else manages it: even what we would correct stays as it is.
    merge(
        &world.infras,
        "fleet",
        json!({"metadata": {"annotations": {"cluster.x-k8s.io/managed-by": "somebody"}}}),
    )
    .await?;
    let theirs = json!({"status": {"externalManagedControlPlane": false}});
    world
        .infras
        .patch_status("fleet", &PatchParams::default(), &Patch::Merge(theirs))
        .await?;
    // An object that is made later is looked at; so theirs has been, and was let be.
    let later = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ScalewayAppleSiliconCluster",
        "metadata": {"name": "later"}, "spec": {},
    });
    support::create(&world.admin, Some(sandbox.namespace()), later).await?;
    wait::until_true("the later object to be looked at", PATIENCE, || async {
        Ok(world.infras.get("later").await?.status.is_some())
    })
    .await?;
    let status = world.infras.get("fleet").await?.status.unwrap_or_default();
    ensure!(
        status.external_managed_control_plane == Some(false),
        "somebody else manages it"
    );
    merge(
        &world.infras,
        "fleet",
        json!({"metadata": {"annotations": {"cluster.x-k8s.io/managed-by": null}}}),
    )
    .await?;
    wait::until_true("us to manage it again", PATIENCE, || async {
        let status = world.infras.get("fleet").await?.status.unwrap_or_default();
        Ok(status.external_managed_control_plane == Some(true))
    })
    .await?;
    Ok(())
}

/// An address where nobody listens is told apart from a refused credential, and heals when somebody does.
#[tokio::test]
async fn an_api_server_that_does_not_answer_is_said_and_heals() -> Result<()> {
    let test_cluster = support::cluster().await?;
    let sandbox = test_cluster.sandbox("silent").await?;
    rights::core(&sandbox.client().await?, sandbox.namespace()).await?;
    let real = test_cluster
        .control_plane()
        .server()
        .trim_start_matches("https://")
        .to_owned();
    let reserved = TcpListener::bind("127.0.0.1:0").await?;
    let address = reserved.local_addr()?;
    drop(reserved);
    let mut settings = settings(&sandbox);
    settings.server.url = Some(format!("https://{address}"));
    let world = world(&sandbox, settings).await?;
    world.fleet(&sandbox, json!({})).await?;
    let condition = world.condition("Available", "False", "ControlPlaneUnreachable").await?;
    let message = condition.message.unwrap_or_default();
    ensure!(message.contains("--api-server-url"), "{message}");

    let listener = TcpListener::bind(address).await?;
    let forward = tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let real = real.clone();
            tokio::spawn(async move {
                if let Ok(mut to) = TcpStream::connect(real).await {
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                }
            });
        }
    });
    world.condition("Available", "True", "Ready").await?;
    forward.abort();
    Ok(())
}
