//! Egress Services, written by us and by the Tailscale operator.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use russet_capi_provider::egress::{Egress, EgressArgs, Error, Invalid};
use russet_capi_provider::machine_ref::MachineRef;
use russet_stages::macs::rights::client_of;
use russet_testkit::Sandbox;
use russet_testkit::identity::rule;
use russet_testkit::wait::{self, PATIENCE};
use serde_json::json;

use crate::support::{self, applier, merge};

fn args(sandbox: &Sandbox<'_>) -> EgressArgs {
    EgressArgs {
        proxy_group: "macmini-egress".into(),
        namespace: sandbox.namespace().to_owned(),
        magicdns_suffix: "tail1234.ts.net".into(),
    }
}

fn egress(sandbox: &Sandbox<'_>, client: &kube::Client) -> Result<Egress> {
    Egress::new(&args(sandbox), applier(client.clone()))?.context("a proxy group is given")
}

fn mac(uid: &str) -> MachineRef {
    MachineRef {
        namespace: "fleet".into(),
        name: "mac-1".into(),
        uid: uid.into(),
    }
}

#[tokio::test]
async fn without_a_proxy_group_there_are_no_services_and_half_a_setting_is_refused() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("egress-off").await?;
    let client = sandbox.client().await?;
    let with = |change: fn(&mut EgressArgs)| {
        let mut args = args(&sandbox);
        change(&mut args);
        Egress::new(&args, applier(client.clone()))
    };
    ensure!(with(|args| args.proxy_group = " ".into())?.is_none());
    ensure!(matches!(
        with(|args| args.magicdns_suffix = String::new()),
        Err(Invalid::Suffix)
    ));
    ensure!(matches!(
        with(|args| args.namespace = String::new()),
        Err(Invalid::Namespace)
    ));
    Ok(())
}

/// What the Tailscale operator does to a Service of ours: whole-object updates of what it read.
async fn operator(services: Api<Service>, rounds: u32) -> Result<()> {
    let mut round = 1;
    while round <= rounds {
        let Some(mut service) = services.get_opt("mac-1").await? else {
            tokio::task::yield_now().await;
            continue;
        };
        service
            .annotations_mut()
            .insert("operator/round".into(), round.to_string());
        if !service
            .finalizers()
            .iter()
            .any(|name| name == "tailscale.com/finalizer")
        {
            service.finalizers_mut().push("tailscale.com/finalizer".into());
        }
        service.spec.get_or_insert_default().external_name = Some("ts-mac-1.tailscale.svc.cluster.local".into());
        match services.replace("mac-1", &PostParams::default(), &service).await {
            Ok(_) => round += 1,
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Incident `egress-service-race`: the operator wrote between our read and our write. Both writers' fields survive, and neither sees
/// an error.
#[tokio::test]
async fn both_writers_fields_survive_a_race() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("egress-race").await?;
    let client = sandbox.client().await?;
    let services: Api<Service> = Api::namespaced(client.clone(), sandbox.namespace());
    let egress = egress(&sandbox, &client)?;
    let ours = async {
        for round in 0..30 {
            // The fleet changes each time, so that each time there is something to write.
            egress.ensure(&mac("u1"), Some(&format!("fleet-{round}"))).await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    let (ours, theirs) = tokio::join!(ours, operator(services.clone(), 30));
    ours.context("we")?;
    theirs.context("the operator")?;

    let service = services.get("mac-1").await?;
    ensure!(
        service.annotations().get("operator/round").map(String::as_str) == Some("30"),
        "{service:?}"
    );
    ensure!(
        service.labels().get("tuist.dev/fleet").map(String::as_str) == Some("fleet-29"),
        "{service:?}"
    );
    ensure!(service.finalizers() == ["tailscale.com/finalizer"]);
    let spec = service.spec.context("a spec")?;
    ensure!(spec.external_name.as_deref() == Some("ts-mac-1.tailscale.svc.cluster.local"));
    ensure!(spec.ports.context("ports")?.len() == 5);
    Ok(())
}

/// Incident `namespaced-informer`: services in one namespace are all the provider may touch. The whole life of a Service, and no
/// request that is not needed.
#[tokio::test]
async fn a_role_in_the_egress_namespace_suffices_for_the_whole_life() -> Result<()> {
    let cluster = support::cluster().await?;
    let sandbox = cluster.sandbox("egress-life").await?;
    let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let who = sandbox
        .identity("provider")
        .here(vec![rule("", &["services"], &all)])
        .grant()
        .await?;
    let client = client_of(&who).await?;
    let services: Api<Service> = Api::namespaced(sandbox.client().await?, sandbox.namespace());
    let egress = egress(&sandbox, &client)?;
    egress.remove(&mac("u1")).await?;
    for _ in 0..3 {
        egress.ensure(&mac("u1"), Some("runners")).await?;
    }
    let audit = cluster.audit()?;
    let key = format!("{}/mac-1", sandbox.namespace());
    let writes = audit.writes_per_object(&who.username, "services")?;
    ensure!(
        writes.values().sum::<usize>() == 1,
        "an unchanged Service is not written: {writes:?}"
    );

    // Somebody's edit of what is ours is undone, of what is not it is kept.
    let edit = json!({"metadata": {"labels": {"tuist.dev/macmini-egress": "no", "theirs": "kept"}}});
    merge(&services, "mac-1", edit).await?;
    egress.ensure(&mac("u1"), Some("runners")).await?;
    let service = services.get("mac-1").await?;
    ensure!(service.labels()["tuist.dev/macmini-egress"] == "true" && service.labels()["theirs"] == "kept");

    // A later machine of the same name takes the Service over; the earlier one no longer removes it.
    egress.ensure(&mac("u2"), Some("runners")).await?;
    egress.remove(&mac("u1")).await?;
    ensure!(
        services.get_opt("mac-1").await?.is_some(),
        "{key} belongs to another machine"
    );
    egress.remove(&mac("u2")).await?;
    egress.remove(&mac("u2")).await?;
    wait::until_true("the Service to be gone", PATIENCE, || async {
        Ok(services.get_opt("mac-1").await?.is_none())
    })
    .await?;
    support::no_denials(cluster, &who)?;
    Ok(())
}

#[tokio::test]
async fn a_service_of_somebody_else_is_left_alone() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("egress-foreign").await?;
    let client = sandbox.client().await?;
    let services: Api<Service> = Api::namespaced(client.clone(), sandbox.namespace());
    let foreign: Service = serde_json::from_value(json!({
        "metadata": {"name": "mac-1"}, "spec": {"type": "ExternalName", "externalName": "theirs.example"},
    }))?;
    let before = services.create(&PostParams::default(), &foreign).await?;
    let egress = egress(&sandbox, &client)?;
    let error = egress.ensure(&mac("u1"), None).await.unwrap_err();
    ensure!(matches!(error, Error::Foreign { .. }), "{error}");
    egress.remove(&mac("u1")).await?;
    ensure!(services.get("mac-1").await? == before);
    Ok(())
}
