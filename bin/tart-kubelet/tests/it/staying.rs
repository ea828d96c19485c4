//! What may happen to a Node, and to its certificate.

use crate::harness::{Host, script};
use crate::way::Way;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// The Node that is registered in the place of one that was deleted.
async fn another_node(host: &Host, before: &Node) -> Result<Node> {
    let node = async || Ok(host.nodes().get_opt(&host.node).await?);
    let another = |node: &Option<Node>| node.as_ref().is_some_and(|node| node.uid() != before.uid());
    host.until("another Node", node, another).await?.context("another Node")
}

/// A Node that somebody deleted never came back, and its Machine was replaced. (incidents node-never-comes-back, provider-id)
#[tokio::test]
async fn a_node_that_is_deleted_comes_back_as_the_same_machine() -> Result<()> {
    let host = Host::invited("again2").await?;
    let mut agent = host.start(&[])?;
    let before = host.registered().await?;
    host.nodes().delete(&host.node, &DeleteParams::default()).await?;
    let node = another_node(&host, &before).await?;
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
    host.until_renewed(None).await?;
    let lease = host.leases().get(&host.node).await?;
    // It belongs to nobody, so it stays.
    let orphaned = json!({"metadata": {"ownerReferences": null}});
    host.leases()
        .patch(&host.node, &PatchParams::default(), &Patch::Merge(orphaned))
        .await?;
    host.nodes().delete(&host.node, &DeleteParams::default()).await?;
    let node = another_node(&host, &before).await?;
    let see = async || {
        let now = host.leases().get(&host.node).await?;
        ensure!(now.uid() == lease.uid(), "the Lease was taken away: {now:?}");
        Ok(now)
    };
    host.until("the Lease of that Node", see, |lease| {
        let mut owners = lease.owner_references().iter();
        owners.any(|owner| Some(&owner.uid) == node.metadata.uid.as_ref())
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
    let ready = |(_, found): &(_, Option<NodeCondition>)| found.as_ref().is_some_and(|found| found.status == "True");
    host.until("Ready", async || told(&host, "Ready").await, ready).await?;
    Ok(())
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
        let what = format!("{address}, with the tailnet {tailnet}");
        let see = async || told(&host, "Tailnet").await;
        host.until(&what, see, |(at, found)| {
            at.as_deref() == Some(address) && found.as_ref().is_some_and(|found| found.status == tailnet)
        })
        .await
        .map(drop)
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
    let kept = async || host.kept();
    let another = |kept: &Value| {
        kept["identity"]["certificate_pem"]
            .as_str()
            .is_some_and(|now| now != old)
    };
    host.until("another certificate", kept, another).await?;
    let asked = host.requests_of(&host.node_user()).await?;
    ensure!(asked.len() == 1, "the node asked {} times", asked.len());
    ensure!(
        host.requests_of(&host.bootstrap_user()?).await?.is_empty(),
        "it used its token, which may be long gone"
    );
    // With the new certificate.
    host.until_renewed(host.renewed().await?).await?;
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
    host.until_renewed(host.renewed().await?).await?;
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
    let refused = async || Ok(way.refused("POST /api/v1/nodes"));
    host.until("refusals", refused, |refused| *refused >= 5).await?;
    ensure!(agent.is_running(), "{}", host.log());
    ensure!(host.kept()?["identity"] == before, "it is somebody else");

    let first = host.renewed().await?;
    way.leads_astray(false);
    host.until_renewed(first).await?;
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
    let tries = async || Ok(host.log().matches("both are tried again").count());
    host.until("tries with both", tries, |tries| *tries >= 6).await?;
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
