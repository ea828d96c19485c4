//! Who may do what, tried request by request.

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};
use russet_testkit::wait::{self, Look, PATIENCE};
use russet_testkit::{Extras, TestCluster};
use serde_json::{Value, json};

use super::{CORE, FULL, Helm, INFRA, api_of, make_namespaces, objects, text};

/// One question to the authorizer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    namespace: &'static str,
    name: &'static str,
}

const VERBS: [&str; 9] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "approve",
];
const NAMESPACES: [&str; 7] = [
    "",
    "russet",
    "russet-claims",
    "russet-builders",
    "kube-system",
    "kube-public",
    "tailscale-operator",
];
const CSR: &str = "certificates.k8s.io";

/// Every kind of thing that is asked about: group, resource, subresource, name.
const THINGS: [(&str, &str, &str, &str); 42] = [
    (INFRA, "scalewayapplesiliconmachines", "", ""),
    (INFRA, "scalewayapplesiliconmachines", "status", ""),
    (INFRA, "scalewayapplesiliconmachines", "finalizers", ""),
    (INFRA, "scalewayapplesiliconclusters", "", ""),
    (INFRA, "scalewayapplesiliconmachinetemplates", "", ""),
    (INFRA, "scalewayelasticmetalmachines", "", ""),
    (INFRA, "scalewayelasticmetalmachines", "status", ""),
    (INFRA, "scalewayelasticmetalmachines", "finalizers", ""),
    (INFRA, "scalewayinstancemachines", "", ""),
    (INFRA, "scalewayinstancemachines", "status", ""),
    (INFRA, "scalewayinstancemachines", "finalizers", ""),
    (CORE, "clusters", "", ""),
    (CORE, "clusters", "status", ""),
    (CORE, "machines", "", ""),
    (CORE, "machinesets", "", ""),
    (CORE, "machinedeployments", "", ""),
    ("", "nodes", "", ""),
    ("", "nodes", "status", ""),
    ("", "events", "", ""),
    ("events.k8s.io", "events", "", ""),
    (CSR, "certificatesigningrequests", "", ""),
    (CSR, "certificatesigningrequests", "approval", ""),
    (CSR, "certificatesigningrequests", "status", ""),
    (CSR, "signers", "", "kubernetes.io/kube-apiserver-client-kubelet"),
    (CSR, "signers", "", "kubernetes.io/kubelet-serving"),
    (CSR, "signers", "", "kubernetes.io/kube-apiserver-client"),
    ("", "configmaps", "", "cluster-info"),
    ("", "configmaps", "", "other"),
    ("", "secrets", "", ""),
    ("coordination.k8s.io", "leases", "", ""),
    ("", "serviceaccounts", "", ""),
    ("", "serviceaccounts", "token", "capi-remote"),
    ("", "serviceaccounts", "token", "default"),
    ("", "services", "", ""),
    ("", "services", "", "kube-dns"),
    ("", "pods", "", ""),
    ("apps", "deployments", "", ""),
    ("rbac.authorization.k8s.io", "clusterroles", "", ""),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "", ""),
    ("", "persistentvolumes", "", ""),
    ("", "persistentvolumes", "status", ""),
    ("", "persistentvolumeclaims", "", ""),
];

impl Request {
    fn of([verb, group, resource, subresource, namespace, name]: [&'static str; 6]) -> Self {
        Self {
            verb,
            group,
            resource,
            subresource,
            namespace,
            name,
        }
    }
}

impl From<Request> for ResourceAttributes {
    fn from(request: Request) -> Self {
        let some = |text: &str| Some(text.to_owned());
        Self {
            verb: some(request.verb),
            group: some(request.group),
            resource: some(request.resource),
            subresource: some(request.subresource),
            namespace: some(request.namespace),
            name: some(request.name),
            ..Self::default()
        }
    }
}

/// What the documentation of the chart says the provider may do; all else is refused.
fn is_documented(request: &Request) -> bool {
    let verb = |verbs: &[&str]| verbs.contains(&request.verb);
    let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let ours = matches!(request.namespace, "russet" | "russet-claims" | "russet-builders");
    match (request.group, request.resource, request.subresource, request.name) {
        (INFRA, _, "", _) => verb(&["get", "list", "watch", "update", "patch"]),
        (INFRA, _, "status", _) => verb(&["get", "update", "patch"]),
        (INFRA, _, "finalizers", _) | (CSR, "certificatesigningrequests", "approval", _) => verb(&["update"]),
        (CORE, _, "", _) => verb(&["get", "list", "watch"]),
        ("", "nodes", "", _) => verb(&["get", "list", "watch", "patch", "delete"]),
        ("", "pods", "", _) => verb(&["list"]),
        ("", "persistentvolumes", "", _) => verb(&["list", "delete"]),
        ("", "persistentvolumeclaims", "", _) => verb(&["get", "delete"]),
        ("" | "events.k8s.io", "events", "", _) => verb(&["create", "patch"]),
        (CSR, "certificatesigningrequests", "", _) => verb(&["get", "list", "watch", "delete"]),
        (CSR, "signers", "", "kubernetes.io/kube-apiserver-client-kubelet" | "kubernetes.io/kubelet-serving") => {
            verb(&["approve"])
        }
        ("", "configmaps", "", "cluster-info") => request.namespace == "kube-public" && verb(&["get"]),
        ("", "secrets", "", _) if request.namespace == "kube-system" => verb(&["create", "get", "update", "delete"]),
        ("", "secrets", "", _) | ("coordination.k8s.io", "leases", "", _) => ours && verb(&all),
        ("", "serviceaccounts", "", _) => ours && verb(&["get", "create"]),
        ("", "serviceaccounts", "token", "capi-remote") => ours && verb(&["create"]),
        ("", "services", "", "kube-dns") if request.namespace == "kube-system" => verb(&["get"]),
        ("", "services", "", _) => request.namespace == "tailscale-operator" && verb(&all),
        _ => false,
    }
}

/// What Cluster API core may do as capi-remote; facts from a run of every step of a deletion.
fn is_remote(request: &Request) -> bool {
    let verb = |verbs: &[&str]| verbs.contains(&request.verb);
    match (request.group, request.resource, request.subresource) {
        ("", "nodes", "") => verb(&["list", "watch", "patch", "delete"]),
        ("", "pods" | "persistentvolumes", "") => verb(&["list"]),
        _ => false,
    }
}

async fn differences(client: &Client, user: &str, expected: fn(&Request) -> bool) -> Result<Vec<String>> {
    let mut questions = Vec::new();
    for (group, resource, subresource, name) in THINGS {
        for verb in VERBS {
            for namespace in NAMESPACES {
                let question = [verb, group, resource, subresource, namespace, name];
                questions.push(Request::of(question));
            }
        }
    }
    let answers: Vec<Option<String>> = futures::stream::iter(questions)
        .map(|request| async move {
            let allowed = may(client, user, &[], Some(request.clone().into()), None).await?;
            let wanted = expected(&request);
            anyhow::Ok((allowed != wanted).then(|| format!("{request:?}: allowed {allowed}, documented {wanted}")))
        })
        .buffer_unordered(16)
        .try_collect()
        .await?;
    Ok(answers.into_iter().flatten().collect())
}

async fn may(
    client: &Client,
    user: &str,
    groups: &[&str],
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<NonResourceAttributes>,
) -> Result<bool> {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            groups: Some(groups.iter().map(|&group| group.to_owned()).collect()),
            resource_attributes,
            non_resource_attributes,
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// `nodes-in-a-role`: what the provider may do is what the chart says, tried request by request.
#[tokio::test]
async fn the_provider_may_do_what_is_documented_and_nothing_else() -> Result<()> {
    let cluster = TestCluster::start(Extras::default()).await?;
    let client = cluster.client().await?;
    make_namespaces(
        &client,
        &[
            "russet",
            "russet-claims",
            "russet-builders",
            "tailscale-operator",
            "capi-system",
        ],
    )
    .await?;
    wait::until_true("kube-public", PATIENCE, || async {
        Ok(Api::<Namespace>::all(client.clone())
            .get_opt("kube-public")
            .await?
            .is_some())
    })
    .await?;
    let helm = Helm::new().await?;
    // The API server has none of Cluster API's kinds: rights are words, and the rest is left out.
    let roles: Vec<Value> = objects(&helm.template(FULL)?)?
        .into_iter()
        .filter(|object| !text(object, "/apiVersion").contains("x-k8s.io/"))
        .collect();
    apply(&client, &roles).await?;

    let provider = "system:serviceaccount:russet:macs-capi-provider";
    // The authorizer reads roles a moment after they are written.
    let found = wait::until("the rights to be as documented", PATIENCE, || async {
        let found = differences(&client, provider, is_documented).await?;
        Ok(Look::value_if(found.is_empty(), found))
    });
    found.await?;
    core_may_do_its_part(&client).await?;
    real_requests_agree(&cluster, provider).await?;
    macs_may_ask_for_certificates(client).await
}

/// Cluster API core as capi-remote.
async fn core_may_do_its_part(client: &Client) -> Result<()> {
    let remote = "system:serviceaccount:russet:capi-remote";
    let found = differences(client, remote, is_remote).await?;
    ensure!(found.is_empty(), "{found:#?}");
    let probe = NonResourceAttributes {
        path: Some("/".to_owned()),
        verb: Some("get".to_owned()),
    };
    ensure!(
        may(client, remote, &[], None, Some(probe)).await?,
        "core's probe of / would be refused"
    );
    for (group, resource, subresource, verb, namespace) in [
        ("", "pods", "eviction", "create", "russet"),
        ("", "namespaces", "", "list", ""),
        ("", "namespaces", "", "watch", ""),
        ("apps", "daemonsets", "", "get", "russet"),
        ("storage.k8s.io", "volumeattachments", "", "list", ""),
        ("", "pods", "", "get", "capi-system"),
    ] {
        let request = Request::of([verb, group, resource, subresource, namespace, ""]);
        ensure!(
            may(client, remote, &[], Some(request.into()), None).await?,
            "capi-remote may not {verb} {resource}"
        );
    }
    Ok(())
}

/// What is refused on paper is refused.
async fn real_requests_agree(cluster: &TestCluster, provider: &str) -> Result<()> {
    let kubeconfig = Kubeconfig::read_from(cluster.control_plane().admin_kubeconfig())?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.auth_info.impersonate = Some(provider.to_owned());
    let account = Client::try_from(config)?;
    let refused =
        |result: Result<(), kube::Error>| matches!(result, Err(kube::Error::Api(status)) if status.code == 403);
    let everywhere: Api<Secret> = Api::all(account.clone());
    ensure!(refused(everywhere.list(&ListParams::default()).await.map(drop)));
    let system: Api<Secret> = Api::namespaced(account.clone(), "kube-system");
    ensure!(refused(system.list(&ListParams::default()).await.map(drop)));
    let claims: Api<Secret> = Api::namespaced(account.clone(), "russet-claims");
    claims.list(&ListParams::default()).await?;
    let nodes: Api<Node> = Api::all(account);
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "fake"}}))?;
    ensure!(refused(nodes.create(&PostParams::default(), &node).await.map(drop)));
    nodes.list(&ListParams::default()).await?;
    Ok(())
}

/// The group of Macs that join.
async fn macs_may_ask_for_certificates(client: Client) -> Result<()> {
    let (user, groups) = ("system:bootstrap:abcdef", ["system:bootstrappers:tuist-applesilicon"]);
    for (verb, resource, wanted) in [
        ("create", "certificatesigningrequests", true),
        ("get", "certificatesigningrequests", true),
        ("update", "certificatesigningrequests", false),
    ] {
        let request = Request::of([verb, CSR, resource, "", "", ""]);
        let allowed = may(&client, user, &groups, Some(request.into()), None).await?;
        ensure!(allowed == wanted, "{verb} {resource}");
    }
    Ok(())
}

/// Creates objects of any kind, as Helm would.
async fn apply(client: &Client, objects: &[Value]) -> Result<()> {
    for object in objects {
        let (api, object) = api_of(client, object).await?;
        let created = api.create(&PostParams::default(), &object).await;
        created.with_context(|| format!("{:?} {} was refused", object.types, object.name_any()))?;
    }
    Ok(())
}
