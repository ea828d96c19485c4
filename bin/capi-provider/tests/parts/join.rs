//! Join credentials: from a bootstrap token to a node that lives under the Node authorizer, and back.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Node, Secret as KubeSecret};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use rcgen::SanType;
use russet_capi_provider::identity::{Identities, IdentityArgs, Settings};
use russet_capi_provider::machine_ref::MachineRef;
use russet_controller::Classify as _;
use russet_stages::macs::rights::client_of;
use russet_testkit::identity::rule;
use russet_testkit::object;
use russet_testkit::wait::{self, PATIENCE};
use serde_json::json;

use crate::asking::{
    CLIENT, SERVING, addressed, ask, ask_node, denied, forbidden, join, joined, node, outcome, provider, request,
    set_status,
};
use crate::support::{self, merge};

/// The whole way of a machine: token, certificate signed by the real kube-controller-manager, Node under the Node authorizer and
/// NodeRestriction, renewal, serving certificate.
#[tokio::test]
async fn a_machine_joins_as_its_own_node_and_can_be_no_other() -> Result<()> {
    let cluster = support::cluster().await?;
    let sandbox = cluster.sandbox("join").await?;
    let provider = provider(&sandbox).await?;
    let name = format!("mac-{}", sandbox.namespace());
    let machine = support::machine(&provider.admin, sandbox.namespace(), &name).await?;
    set_status(&provider.admin, &machine, addressed("51.15.7.7")).await?;

    let credentials = provider.identities.issue(&machine).await?;
    let config = Kubeconfig::from_yaml(credentials.kubeconfig.expose())?;
    ensure!(config.current_context.as_deref() == Some("tart-kubelet"));
    ensure!(config.auth_infos[0].name == format!("tart-kubelet-{name}"));
    // The token itself is good for nothing but asking.
    let token = joined(&credentials).await?;
    forbidden(Api::<Node>::all(token.clone()).list(&ListParams::default()).await);
    forbidden(
        Api::<KubeSecret>::namespaced(token, "kube-system")
            .list(&ListParams::default())
            .await,
    );

    let itself = join(&provider, cluster, &machine).await?;
    let nodes: Api<Node> = Api::all(itself.clone());
    let provider_id = format!("scw-applesilicon://fr-par-1/{name}");
    nodes
        .create(&PostParams::default(), &node(&name, &provider_id)?)
        .await?;
    forbidden(
        nodes
            .create(&PostParams::default(), &node("somebody-else", "x://y")?)
            .await,
    );
    forbidden(
        Api::<KubeSecret>::namespaced(itself.clone(), sandbox.namespace())
            .list(&ListParams::default())
            .await,
    );
    let address = json!({"status": {"addresses": [{"type": "InternalIP", "address": "100.64.9.9"}]}});
    nodes
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(address))
        .await?;

    // The node renews its own certificate, and gets one to serve with, for what is its own.
    let renewal = request(&itself, CLIENT, &ask_node(&name)?).await?;
    ensure!(outcome(&provider.admin, &renewal).await?.is_ok());
    let subject = format!("system:node:{name}");
    let serve = |names: Vec<SanType>| ask("system:nodes", &subject, names);
    let ip = |text: &str| text.parse().map(SanType::IpAddress);
    let own = vec![
        SanType::DnsName(name.as_str().try_into()?),
        ip("51.15.7.7")?,
        ip("100.64.9.9")?,
    ];
    let granted = request(&itself, SERVING, &serve(own)?).await?;
    ensure!(
        outcome(&provider.admin, &granted).await?.is_ok(),
        "its own names and addresses, tailnet included"
    );
    let foreign = request(&itself, SERVING, &serve(vec![ip("51.15.7.8")?])?).await?;
    denied(&provider.admin, &foreign, "ForeignAddress").await?;
    let api = SanType::DnsName("kubernetes.default.svc".try_into()?);
    let api = request(&itself, SERVING, &serve(vec![api])?).await?;
    denied(&provider.admin, &api, "ForeignName").await?;

    // An address that somebody else has too is nobody's to certify.
    let neighbour = format!("{name}-neighbour");
    let all: Api<Node> = Api::all(provider.admin.clone());
    all.create(&PostParams::default(), &node(&neighbour, "x://neighbour")?)
        .await?;
    let address = json!({"status": {"addresses": [{"type": "InternalIP", "address": "100.64.9.9"}]}});
    all.patch_status(&neighbour, &PatchParams::default(), &Patch::Merge(address))
        .await?;
    let shared = request(&itself, SERVING, &serve(vec![ip("100.64.9.9")?])?).await?;
    denied(&provider.admin, &shared, "ForeignAddress").await?;
    all.delete(&neighbour, &DeleteParams::default()).await?;
    support::no_denials(cluster, &provider.who)?;
    Ok(())
}

#[tokio::test]
async fn what_only_pretends_to_be_ours_is_denied_and_what_is_not_ours_left_alone() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("pretend").await?;
    let provider = provider(&sandbox).await?;
    let admin = &provider.admin;
    let (one, two) = (
        format!("{}-one", sandbox.namespace()),
        format!("{}-two", sandbox.namespace()),
    );
    let first = support::machine(admin, sandbox.namespace(), &one).await?;
    support::machine(admin, sandbox.namespace(), &two).await?;
    let token = joined(&provider.identities.issue(&first).await?).await?;

    // Somebody who may ask, as everybody with a bootstrap token may. (What an administrator asks for, kube-controller-manager approves.)
    let asking = rule("certificates.k8s.io", &["certificatesigningrequests"], &["create"]);
    let stranger = sandbox.identity("stranger").everywhere(vec![asking]).grant().await?;
    let stranger = client_of(&stranger).await?;
    // Somebody else's node: no machine of ours has that name, so others decide.
    let elsewhere = request(&stranger, CLIENT, &ask_node("a-linux-node")?).await?;

    let neighbour = request(&token, CLIENT, &ask_node(&two)?).await?;
    denied(admin, &neighbour, "NotThisMachine").await?;
    let master = ask("system:masters", &format!("system:node:{one}"), Vec::new())?;
    let master = request(&token, CLIENT, &master).await?;
    denied(admin, &master, "WrongSubject").await?;
    let named = vec![SanType::DnsName("kubernetes.default.svc".try_into()?)];
    let named = ask("system:nodes", &format!("system:node:{one}"), named)?;
    let named = request(&token, CLIENT, &named).await?;
    denied(admin, &named, "TooMuch").await?;
    let stranger = request(&stranger, CLIENT, &ask_node(&one)?).await?;
    denied(admin, &stranger, "NotThisMachine").await?;

    let good = request(&token, CLIENT, &ask_node(&one)?).await?;
    ensure!(outcome(admin, &good).await?.is_ok());
    // Everything that was asked later is decided by now; this one was seen and let be.
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let status = requests.get(&elsewhere).await?.status.unwrap_or_default();
    ensure!(status.conditions.unwrap_or_default().is_empty(), "not ours to decide");
    requests.delete(&elsewhere, &DeleteParams::default()).await?;
    Ok(())
}

/// Who may make machines must not get the identity of a Node that is there already.
#[tokio::test]
async fn a_machine_called_like_a_foreign_node_waits_until_the_node_is_gone() -> Result<()> {
    let cluster = support::cluster().await?;
    let sandbox = cluster.sandbox("squat").await?;
    let provider = provider(&sandbox).await?;
    let name = format!("taken-{}", sandbox.namespace());
    let nodes: Api<Node> = Api::all(provider.admin.clone());
    nodes
        .create(&PostParams::default(), &node(&name, "other-cloud://1")?)
        .await?;
    let machine = support::machine(&provider.admin, sandbox.namespace(), &name).await?;
    let token = joined(&provider.identities.issue(&machine).await?).await?;
    let squatter = request(&token, CLIENT, &ask_node(&name)?).await?;
    // A request of another machine, made later, is granted: the first has been looked at.
    let free = support::machine(
        &provider.admin,
        sandbox.namespace(),
        &format!("free-{}", sandbox.namespace()),
    )
    .await?;
    join(&provider, cluster, &free).await?;
    let requests: Api<CertificateSigningRequest> = Api::all(provider.admin.clone());
    let status = requests.get(&squatter).await?.status.unwrap_or_default();
    ensure!(status.conditions.unwrap_or_default().is_empty() && status.certificate.is_none());
    nodes.delete(&name, &DeleteParams::default()).await?;
    ensure!(
        outcome(&provider.admin, &squatter).await?.is_ok(),
        "a Node that was left over is gone"
    );
    Ok(())
}

#[tokio::test]
async fn a_token_is_shared_while_it_lasts_and_replaced_before_it_ends() -> Result<()> {
    let cluster = support::cluster().await?;
    let sandbox = cluster.sandbox("token").await?;
    let provider = provider(&sandbox).await?;
    let machine = support::machine(&provider.admin, sandbox.namespace(), "mac-token").await?;
    let issued = try_join_all((0..6).map(|_| provider.identities.issue(&machine))).await?;
    let texts: BTreeSet<&String> = issued
        .iter()
        .map(|credentials| credentials.kubeconfig.expose())
        .collect();
    ensure!(texts.len() == 1, "callers at the same time get the same token");

    let tokens: Api<KubeSecret> = Api::namespaced(provider.admin.clone(), "kube-system");
    let ours = ListParams::default().labels(&format!("tuist.dev/owner-uid={}", machine.uid));
    let found = tokens.list(&ours).await?.items;
    ensure!(found.len() == 1, "one token per machine");
    let soon = Timestamp::now() + SignedDuration::from_mins(59);
    let expiration = STANDARD.encode(Timestamp::from_second(soon.as_second())?.to_string());
    merge(
        &tokens,
        &found[0].name_any(),
        json!({"data": {"expiration": expiration}}),
    )
    .await?;
    let renewed = provider.identities.issue(&machine).await?;
    ensure!(
        renewed.kubeconfig.expose() != issued[0].kubeconfig.expose(),
        "less than an hour was left"
    );
    ensure!(renewed.expires > soon);
    ensure!(tokens.list(&ours).await?.items.len() == 1);
    ensure!(provider.identities.issue(&machine).await?.kubeconfig.expose() == renewed.kubeconfig.expose());
    support::no_denials(cluster, &provider.who)?;
    Ok(())
}

#[tokio::test]
async fn a_machine_that_leaves_can_no_longer_ask_and_nothing_of_it_stays() -> Result<()> {
    let cluster = support::cluster().await?;
    let sandbox = cluster.sandbox("revoke").await?;
    let provider = provider(&sandbox).await?;
    let admin = &provider.admin;
    let name = format!("mac-{}", sandbox.namespace());
    let machine = support::machine(admin, sandbox.namespace(), &name).await?;
    let itself = join(&provider, cluster, &machine).await?;
    let token = joined(&provider.identities.issue(&machine).await?).await?;

    // What an earlier release made for this machine.
    let labels = json!({"tuist.dev/managed-by": "capi-scaleway-applesilicon", "tuist.dev/machine": name});
    let old = format!("tart-kubelet-{name}");
    let meta = |name: &str| json!({"name": name, "labels": labels});
    support::create(
        admin,
        Some(sandbox.namespace()),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(&old)}),
    )
    .await?;
    support::create(
        admin,
        Some(sandbox.namespace()),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta(&format!("{old}-token"))}),
    )
    .await?;

    // A machine that is being deleted gets nothing more.
    let (version, kind) = (
        "infrastructure.cluster.x-k8s.io/v1alpha1",
        "ScalewayAppleSiliconMachine",
    );
    let machines = object::api(admin, Some(sandbox.namespace()), version, kind);
    merge(
        &machines,
        &name,
        json!({"metadata": {"finalizers": ["test.russet.dev/hold"]}}),
    )
    .await?;
    machines.delete(&name, &DeleteParams::default()).await?;
    let late = request(&token, CLIENT, &ask_node(&name)?).await?;
    denied(admin, &late, "MachineDeleting").await?;
    let renewal = request(&itself, CLIENT, &ask_node(&name)?).await?;
    denied(admin, &renewal, "MachineDeleting").await?;

    provider.identities.revoke(&machine).await?;
    provider.identities.revoke(&machine).await?;
    wait::until_true("the token to be refused", PATIENCE, || async {
        // While it is known, the answer is 403.
        let answer = Api::<Node>::all(token.clone()).list(&ListParams::default()).await;
        Ok(matches!(answer, Err(kube::Error::Api(status)) if status.code == 401))
    })
    .await?;
    let secrets: Api<KubeSecret> = Api::namespaced(admin.clone(), sandbox.namespace());
    ensure!(
        secrets.get_opt(&format!("{old}-token")).await?.is_none(),
        "the old token is revoked"
    );
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let left = requests.list(&ListParams::default()).await?.items;
    let group = russet_capi_provider::identity::machine_group(&machine.uid);
    let open = left.iter().filter(|request| {
        let ours = request.spec.groups.iter().flatten().any(|name| *name == group);
        ours && request
            .status
            .as_ref()
            .is_none_or(|status| status.certificate.is_none())
    });
    ensure!(open.count() == 0, "no open request of the machine stays");
    merge(&machines, &name, json!({"metadata": {"finalizers": null}})).await?;
    Ok(())
}

/// Requests stay for an hour after they were granted. A fleet of a thousand that was scaled to nothing within it read all of them once
/// for each machine that went, four megabytes at a time, and the provider grew to twice the memory it may have.
#[tokio::test]
async fn the_requests_of_all_machines_are_not_read_for_each_that_leaves() -> Result<()> {
    let cluster = support::cluster().await?;
    let sandbox = cluster.sandbox("revoke-many").await?;
    let provider = provider(&sandbox).await?;
    let mut machines = Vec::new();
    for number in 0..3 {
        let name = format!("mac-{}-{number}", sandbox.namespace());
        let machine = support::machine(&provider.admin, sandbox.namespace(), &name).await?;
        // Granted, so the approver has seen requests.
        join(&provider, cluster, &machine).await?;
        machines.push(machine);
    }
    for machine in &machines {
        provider.identities.revoke(machine).await?;
    }
    let asked = cluster.audit()?.of_user(&provider.who.username)?;
    let lists = asked.iter().filter(|entry| {
        let object = entry.object();
        entry.verb == "list" && object.resource == "certificatesigningrequests" && object.name.is_empty()
    });
    let uris: Vec<&str> = lists.map(|entry| entry.request_uri.as_str()).collect();
    ensure!(uris.len() <= 1, "only the approver reads them all, once: {uris:?}");
    Ok(())
}

#[tokio::test]
async fn credentials_are_not_made_for_what_is_not_stored_and_not_to_an_unknown_place() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("join-bad").await?;
    let client = sandbox.client().await?;
    let machine = MachineRef {
        namespace: sandbox.namespace().to_owned(),
        name: "mac-1".into(),
        uid: String::new(),
    };
    let with = |url: Option<&str>| {
        let args = IdentityArgs {
            api_server_url: url.map(str::to_owned),
            ..IdentityArgs::default()
        };
        Identities::new(client.clone(), Settings::new(&args, sandbox.namespace().to_owned()))
    };
    let error = with(None).issue(&machine).await.unwrap_err();
    ensure!(error.to_string().contains("uid"), "{error}");
    let stored = MachineRef {
        uid: "0000-1".into(),
        ..machine
    };
    let error = with(Some("http://plain:80")).issue(&stored).await.unwrap_err();
    ensure!(
        error.to_string().contains("https://host:port") && error.reason() == "KubeconfigUnavailable",
        "{error}"
    );
    Ok(())
}
