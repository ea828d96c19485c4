//! What may happen to a Node, and to its certificate.

use crate::harness::{Host, script};
use crate::way::Way;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{NodeCondition, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;
use std::time::{Duration, SystemTime};

/// A Node that somebody deleted never came back, and its Machine was replaced. (incidents node-never-comes-back, provider-id)
#[tokio::test]
async fn a_node_that_is_deleted_comes_back_as_the_same_machine() -> Result<()> {
    let host = Host::invited("again2").await?;
    let mut agent = host.start(&[])?;
    let before = host.registered().await?;
    host.nodes().delete(&host.node, &DeleteParams::default()).await?;
    wait::until_true("another Node", PATIENCE, || async {
        let node = host.nodes().get_opt(&host.node).await?;
        Ok(node.is_some_and(|node| node.uid() != before.uid()))
    })
    .await?;
    let node = host.nodes().get(&host.node).await?;
    ensure!(node.spec.and_then(|spec| spec.provider_id) == Some(host.provider_id()));
    ensure!(agent.is_running(), "{}", host.log());
    Ok(())
}

/// Only the garbage collector told a node that it had been deleted, by taking its Lease: while the controller manager was away, a node
/// renewed its Lease for minutes and was no Node.
#[tokio::test]
async fn a_node_that_is_deleted_comes_back_although_nobody_collects_its_lease() -> Result<()> {
    let host = Host::invited("again3").await?;
    let mut agent = host.start(&[])?;
    let before = host.registered().await?;
    let lease = wait::until("the Lease", PATIENCE, || async {
        Ok(match host.leases().get_opt(&host.node).await? {
            Some(lease) => Look::Done(lease),
            None => Look::not_yet(host.log()),
        })
    })
    .await?;
    // It belongs to nobody, so it stays.
    let orphaned = json!({"metadata": {"ownerReferences": null}});
    host.leases()
        .patch(&host.node, &PatchParams::default(), &Patch::Merge(orphaned))
        .await?;
    host.nodes().delete(&host.node, &DeleteParams::default()).await?;
    let node = wait::until("another Node", PATIENCE, || async {
        Ok(match host.nodes().get_opt(&host.node).await? {
            Some(node) if node.uid() != before.uid() => Look::Done(node),
            _ => Look::not_yet(host.log()),
        })
    })
    .await?;
    wait::until("the Lease of that Node", PATIENCE, || async {
        let now = host.leases().get(&host.node).await?;
        ensure!(now.uid() == lease.uid(), "the Lease was taken away: {now:?}");
        let owners = now.metadata.owner_references.clone().unwrap_or_default();
        Ok(
            if owners
                .iter()
                .any(|owner| Some(&owner.uid) == node.metadata.uid.as_ref())
            {
                Look::Done(())
            } else {
                Look::not_yet(now)
            },
        )
    })
    .await?;
    // A status that happened to be due would have told it as well.
    let log = host.log();
    ensure!(agent.is_running() && log.contains("the Node is gone"), "{log}");
    Ok(())
}

/// The status a node wrote once stayed as others had changed it: what counts is what the node sees now.
#[tokio::test]
async fn a_node_that_was_declared_lost_says_that_it_lives_after_a_restart() -> Result<()> {
    let host = Host::invited("lost22").await?;
    let agent = host.start(&["--runtime=synthetic"])?;
    host.registered().await?;
    drop(agent);
    let lost = json!({"status": {"conditions": [{
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "nobody heard of it",
    }]}});
    host.nodes()
        .patch_status(&host.node, &PatchParams::default(), &Patch::Strategic(lost))
        .await?;
    let _agent = host.start(&["--runtime=synthetic"])?;
    wait::until_true("Ready", PATIENCE, || async {
        let node = host.nodes().get(&host.node).await?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True"))
    })
    .await
}

/// The Node's first address, and what it says of a condition.
async fn told(host: &Host, kind: &str) -> Result<(Option<String>, Option<NodeCondition>)> {
    let status = host.nodes().get(&host.node).await?.status.unwrap_or_default();
    let address = status.addresses.into_iter().flatten().next();
    let mut conditions = status.conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition.type_ == kind);
    Ok((address.map(|address| address.address), found))
}

/// A host that got another address on the tailnet stayed not Ready until a person restarted its agent, which listened on the old one.
#[tokio::test]
async fn a_host_with_another_address_on_the_tailnet_is_reached_there_without_anybodys_help() -> Result<()> {
    let host = Host::invited("moves2").await?;
    let tailscale = host.path("bin/tailscale");
    script(&tailscale, "echo 127.77.9.7")?;
    let flag = format!("--tailscale-binary={}", tailscale.display());
    let flags = [
        "--runtime=synthetic",
        "--node-ip-source=tailscale",
        "--metrics-bind-address=0",
        "--kubelet-bind-address=0",
        "--housekeeping-interval=1",
        &flag,
    ];
    let until = async |address: &str, tailnet: &str| {
        wait::until(&format!("{address}, with the tailnet {tailnet}"), PATIENCE, || async {
            let (at, found) = told(&host, "Tailnet").await?;
            let is = found.as_ref().is_some_and(|found| found.status == tailnet);
            Ok(if is && at.as_deref() == Some(address) {
                Look::Done(())
            } else {
                Look::not_yet((at, found, host.log()))
            })
        })
        .await
    };
    let mut agent = host.start_without_address(&flags)?;
    host.registered().await?;
    until("127.77.9.7", "True").await?;
    // A tailnet that is away is waited for.
    script(&tailscale, "echo 'no current Tailscale IPs' >&2; exit 1")?;
    until("127.77.9.7", "False").await?;
    ensure!(agent.is_running(), "{}", host.log());
    script(&tailscale, "echo 127.77.9.8")?;
    ensure!(!agent.ended().await?.success());
    let why = "tart-kubelet: the host's address on the tailnet is now 127.77.9.8 and was 127.77.9.7";
    ensure!(host.log().contains(why), "{}", host.log());
    // As launchd does.
    let _agent = host.start_without_address(&flags)?;
    until("127.77.9.8", "True").await
}

#[tokio::test]
async fn a_certificate_near_its_end_is_renewed_by_the_node_itself() -> Result<()> {
    let host = Host::invited("renew2").await?;
    // One that has lived most of its life.
    let now = SystemTime::now();
    let old = host.certify(now - Duration::from_hours(24 * 99), now + Duration::from_hours(24))?;

    let mut agent = host.start(&[])?;
    let before = host.registered().await?;
    wait::until_true("another certificate", PATIENCE, || async {
        let kept = host.kept()?;
        let certificate = kept["identity"]["certificate_pem"].as_str().context("a certificate")?;
        Ok(certificate != old)
    })
    .await?;
    let asked = host.requests_of(&host.node_user()).await?;
    ensure!(asked.len() == 1, "the node asked {} times", asked.len());
    ensure!(
        host.requests_of(&host.bootstrap_user()?).await?.is_empty(),
        "it used its token, which may be long gone"
    );
    let first = host
        .leases()
        .get(&host.node)
        .await?
        .spec
        .and_then(|spec| spec.renew_time);
    wait::until_true("a renewal with the new certificate", PATIENCE, || async {
        let now = host
            .leases()
            .get(&host.node)
            .await?
            .spec
            .and_then(|spec| spec.renew_time);
        Ok(now > first)
    })
    .await?;
    ensure!(agent.is_running(), "{}", host.log());
    ensure!(host.nodes().get(&host.node).await?.uid() == before.uid());
    Ok(())
}

/// Hosts kept the address they were told when they joined, and were lost when the API server moved. What they are told later wins, and
/// who they are does not depend on it.
#[tokio::test]
async fn a_node_follows_an_api_server_that_moved_and_stays_who_it_is() -> Result<()> {
    let host = Host::invited("moved2").await?;
    // Nobody listens there any more.
    host.write_kubeconfig_for("https://127.0.0.1:9")?;
    host.write_cluster_info()?;
    let flag = format!("--cluster-info={}", host.path("cluster-info").display());
    let agent = host.start(&[&flag])?;
    let node = host.registered().await?;
    ensure!(agent.terminated().await?.success(), "{}", host.log());

    let mut agent = host.start(&[&flag])?;
    let lease = || async {
        let lease = host.leases().get_opt(&host.node).await?;
        anyhow::Ok(lease.and_then(|lease| lease.spec).and_then(|spec| spec.renew_time))
    };
    let first = lease().await?;
    wait::until_true("a renewal", PATIENCE, || async { Ok(lease().await? > first) }).await?;
    ensure!(host.nodes().get(&host.node).await?.uid() == node.uid());
    let asked = host.requests_of(&host.bootstrap_user()?).await?.len();
    ensure!(asked == 1, "it asked {asked} times who it is");
    ensure!(agent.is_running(), "{}", host.log());
    Ok(())
}

/// Three refusals within a second made a node throw its key away and ask with its token, which is worth nothing after an hour: an API
/// server that came up with the wrong authority for clients, or a balancer that led to another one, would have cost every Mac in five
/// seconds, and no Mac could have come back by itself.
#[tokio::test]
async fn an_api_server_that_knows_nobody_for_a_while_does_not_cost_a_node_its_identity() -> Result<()> {
    let host = Host::invited("stran2").await?;
    let plane = host.cluster.control_plane();
    let served = &plane.pki().apiserver;
    let way = Way::to(plane.server(), &served.cert, &served.key).await?;
    host.write_kubeconfig_for(way.url())?;
    let mut agent = host.start(&[])?;
    let node = host.registered().await?;
    let before = host.kept()?["identity"].clone();
    ensure!(before["certificate_pem"].is_string(), "it joined without a certificate");
    // As after an hour.
    let (id, _) = host.token.split_once('.').context("a token")?;
    let tokens: Api<Secret> = Api::namespaced(host.client.clone(), "kube-system");
    tokens
        .delete(&format!("bootstrap-token-{id}"), &DeleteParams::default())
        .await?;

    way.leads_astray(true);
    wait::until("refusals", PATIENCE, || async {
        let refused = way.refused("POST /api/v1/nodes");
        Ok(if refused >= 5 {
            Look::Done(())
        } else {
            Look::NotYet(format!("{refused} of them\n{}", host.log()))
        })
    })
    .await?;
    ensure!(agent.is_running(), "{}", host.log());
    ensure!(host.kept()?["identity"] == before, "it is somebody else");

    let lease = || async {
        let lease = host.leases().get_opt(&host.node).await?;
        anyhow::Ok(lease.and_then(|lease| lease.spec).and_then(|spec| spec.renew_time))
    };
    let first = lease().await?;
    way.leads_astray(false);
    wait::until_true("a renewal", PATIENCE, || async { Ok(lease().await? > first) }).await?;
    ensure!(agent.is_running(), "{}", host.log());
    ensure!(host.kept()?["identity"] == before, "it is somebody else");
    ensure!(host.nodes().get(&host.node).await?.uid() == node.uid());
    let asked = host.requests_of(&host.bootstrap_user()?).await?.len();
    ensure!(asked == 1, "it asked {asked} times who it is");
    Ok(())
}

/// A node whose certificate had ended, or whose clock said so, threw its key away before it had another, and ended when its token was
/// worth nothing. Now it goes on with both until one of them is accepted.
#[tokio::test]
async fn a_node_whose_certificate_is_over_keeps_it_until_there_is_another() -> Result<()> {
    let mut host = Host::invited("ended2").await?;
    let good = std::mem::replace(&mut host.token, "abcdef.fedcba9876543210".to_owned());
    host.write_kubeconfig()?;
    let now = SystemTime::now();
    let old = host.certify(now - Duration::from_hours(24 * 100), now - Duration::from_hours(24))?;
    let mut agent = host.start(&[])?;
    wait::until("tries with both", PATIENCE, || async {
        let log = host.log();
        Ok(if log.matches("both are tried again").count() >= 6 {
            Look::Done(())
        } else {
            Look::NotYet(log)
        })
    })
    .await?;
    ensure!(agent.is_running(), "{}", host.log());
    let kept = host.kept()?;
    ensure!(kept["identity"]["certificate_pem"] == old.as_str(), "it is nobody");
    ensure!(
        kept["next"]["key_pem"].is_string(),
        "it asked with a key that it may forget"
    );
    ensure!(agent.terminated().await?.success(), "{}", host.log());

    // The provider writes another kubeconfig, and starts the agent again.
    host.token = good;
    host.write_kubeconfig()?;
    let _agent = host.start(&[])?;
    host.registered().await?;
    let now = host.kept()?;
    ensure!(
        now["identity"]["key_pem"] == kept["next"]["key_pem"],
        "it asked with another key than the one that it kept"
    );
    ensure!(now["next"].is_null(), "it is two at once");
    let asked = host.requests_of(&host.bootstrap_user()?).await?.len();
    ensure!(asked == 1, "it asked {asked} times");
    Ok(())
}
