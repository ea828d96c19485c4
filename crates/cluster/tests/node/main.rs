//! A real node against a real control plane. Needs root and a few system packages; without them the tests say so and end.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests fail like tests, and what they print is shown with a failure"
)]

mod cluster;
mod scheduled;
mod traces;

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use k8s_openapi::api::core::v1::Taint;
use russet_cluster::{
    node::{self, LinuxNode, Object},
    process::State,
};
use russet_skip::{can_run, test_name};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    cluster::{Cluster, eventually},
    traces::Traces,
};

const WEB: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: web, labels: { app: web } }
spec:
  nodeName: n1
  containers:
  - name: web
    image: localhost/busybox:1
    command: [sh, -c, "mkdir /www; echo hello from $(hostname) >/www/index.html; echo serving; exec httpd -f -p 8080 -h /www"]
    readinessProbe: { httpGet: { port: 8080 }, periodSeconds: 1 }
    resources: { limits: { memory: 64Mi, cpu: 500m } }
---
apiVersion: v1
kind: Service
metadata: { name: web }
spec:
  type: NodePort
  selector: { app: web }
  ports: [{ port: 80, targetPort: 8080 }]
"#;

/// A pod that does nothing, to look around from. Without a node the scheduler has to find one.
fn shell_pod(name: &str, node: Option<&str>) -> String {
    let placement = node.map(|node| format!("nodeName: {node}")).unwrap_or_default();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{ name: {name} }}\nspec:\n  terminationGracePeriodSeconds: 0\n  \
         containers: [{{ name: sh, image: 'localhost/busybox:1', command: [sleep, infinity] }}]\n  {placement}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_join_run_pods_reach_each_other_and_leave_nothing_behind() {
    if !can_run(test_name!(), node::check()) {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(state.path()).await;
    let mut options = node::Options::new("n1", &cluster.network);
    options.labels.insert("russet.example/pool".to_owned(), "a".to_owned());
    let worker = "node-role.kubernetes.io/worker".to_owned();
    options.labels.insert(worker, String::new());
    options.provider_id = Some("russet://n1".to_owned());
    let n1 = cluster.node(options).await;

    let wide = "jsonpath={.spec.providerID} {.metadata.labels}";
    let wide = cluster.kubectl(&["get", "node", "n1", "-o", wide]).await;
    let joined = wide.starts_with("russet://n1 ") && wide.contains("russet.example/pool");
    assert!(joined, "{wide}");
    assert!(wide.contains("node-role.kubernetes.io/worker"), "{wide}");
    let tokens = cluster.kube("get secret -n kube-system -o name").await;
    let outlives = tokens.contains("bootstrap-token");
    assert!(!outlives, "the token must not outlive the join: {tokens}");

    pods_are_served(&cluster, &n1).await;
    node_identities_are_restricted(&cluster, &n1).await;
    a_killed_kubelet_is_started_again(&cluster).await;
    a_second_node_comes_and_goes(&cluster).await;
    a_killed_holder_takes_everything_along(&cluster, n1).await;

    let traces = Traces::of_network(&cluster.network.interface());
    cluster.stop().await;
    traces.vanish().await;
}

/// Logs, exec, a NodePort from outside, and the Service from a neighbour, from itself and by the scheduler's choice.
async fn pods_are_served(cluster: &Cluster, n1: &LinuxNode) {
    cluster.apply(WEB).await;
    cluster.apply(&shell_pod("neighbour", None)).await;
    cluster.pods_ready(&["web", "neighbour"]).await;
    assert_eq!(cluster.kube("logs web").await.trim(), "serving");
    let page = cluster.kube("exec web -- cat /www/index.html").await;
    assert_eq!(page.trim(), "hello from web");

    let place = "jsonpath={.spec.clusterIP} {.spec.ports[0].nodePort}";
    let service = cluster.kubectl(&["get", "svc", "web", "-o", place]).await;
    let (ip, port) = service.split_once(' ').unwrap();
    let url = format!("http://{}:{port}/", n1.address());
    eventually("the NodePort answers", Duration::from_secs(20), async || {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        match client.get(&url).send().await {
            Ok(answer) => answer.text().await.is_ok_and(|text| text.trim() == "hello from web"),
            Err(_) => false,
        }
    })
    .await;
    for pod in ["neighbour", "web"] {
        let said = cluster.fetch_from(pod, &format!("http://{ip}/")).await;
        assert_eq!(said, "hello from web", "from {pod}");
    }
    // A pod reaches kube-apiserver through its Service: a plain HTTP request gets a TLS server's complaint.
    let speak = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 10.96.0.1 443";
    let answer = cluster.kubectl(&["exec", "neighbour", "--", "sh", "-c", speak]).await;
    assert!(answer.contains("HTTPS server"), "{answer}");
}

/// The node's own credentials open nothing but what a node needs.
async fn node_identities_are_restricted(cluster: &Cluster, n1: &LinuxNode) {
    for identity in ["kubelet", "kube-proxy"] {
        // The kubelet's file names its certificate by the path inside, so it is used from inside.
        let inside = format!("/var/lib/{identity}/kubeconfig");
        let kubectl = cluster.tools.path("kubectl").unwrap().to_string_lossy().into_owned();
        let args = ["--kubeconfig", &inside, "get", "secrets", "-A"];
        let refusal = n1.run(&kubectl, &args).await.unwrap_err().to_string();
        let forbidden = refusal.contains("Forbidden") || refusal.contains("forbidden");
        assert!(forbidden, "{identity}: {refusal}");
    }
}

async fn a_killed_kubelet_is_started_again(cluster: &Cluster) {
    let kubelet = || {
        let mut parts = cluster.supervisor.snapshot().into_iter();
        parts.find(|one| one.name == "n1-kubelet").unwrap()
    };
    let pid = kubelet().pid.unwrap();
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    eventually("kubelet runs again", Duration::from_secs(30), async || {
        let now = kubelet();
        now.state == State::Running && now.restarts == 1 && now.pid != Some(pid)
    })
    .await;
    // Containers do not notice. The new kubelet can be asked about them once it has read its list of pods.
    eventually("kubelet knows its pods again", Duration::from_secs(30), async || {
        let answer = cluster.try_kubectl(&["exec", "web", "--", "hostname"], "").await;
        answer.is_ok_and(|name| name.trim() == "web")
    })
    .await;
    let restarts = "jsonpath={.status.containerStatuses[0].restartCount}";
    assert_eq!(cluster.kubectl(&["get", "pod", "web", "-o", restarts]).await, "0");
}

async fn a_second_node_comes_and_goes(cluster: &Cluster) {
    let mut options = node::Options::new("n2", &cluster.network);
    options.taints = vec![Taint {
        key: "russet.example/only".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }];
    let n2 = cluster.node(options).await;
    let taints = cluster.kube("get node n2 -o jsonpath={.spec.taints[*].key}").await;
    assert!(taints.contains("russet.example/only"), "{taints}");
    cluster.apply(&shell_pod("remote", Some("n2"))).await;
    cluster.pods_ready(&["remote"]).await;
    let web = cluster.kube("get pod web -o jsonpath={.status.podIP}").await;
    let said = cluster.fetch_from("remote", &format!("http://{web}:8080/")).await;
    assert_eq!(said, "hello from web");

    let options = node::Options::new("n2", &cluster.network);
    let taken = LinuxNode::start(&cluster.tools, &cluster.supervisor, &cluster.control_plane, options);
    assert!(matches!(taken.await, Err(node::Error::NameTaken { .. })));

    // Switched off and on again: the object stays, and the node comes back to it.
    let before = cluster.kube("get node n2 -o jsonpath={.metadata.uid}").await;
    n2.stop(Object::Keep).await.unwrap();
    let n2 = cluster.node(node::Options::new("n2", &cluster.network)).await;
    assert_eq!(cluster.kube("get node n2 -o jsonpath={.metadata.uid}").await, before);

    let directory = n2.directory().to_owned();
    let traces = Traces::of_node(n2.pid().unwrap(), "n2");
    n2.stop(Object::Delete).await.unwrap();
    traces.vanish().await;
    assert!(!directory.exists());
    let nodes = cluster.kube("get nodes -o name").await;
    assert_eq!(nodes.trim(), "node/n1");
}

async fn a_killed_holder_takes_everything_along(cluster: &Cluster, n1: LinuxNode) {
    let pid = n1.pid().unwrap();
    let traces = Traces::of_node(pid, "n1");
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    traces.vanish().await;
    let given_up = async || {
        let all = cluster.supervisor.snapshot();
        let mut ours = all.iter().filter(|one| one.name.starts_with("n1-"));
        ours.all(|one| one.state == State::Stopped)
    };
    eventually("the node's programs are given up", Duration::from_secs(10), given_up).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_parent_is_killed_leaves_nothing_behind() {
    if !can_run(test_name!(), node::check()) {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "holds_a_node_until_it_is_killed"])
        .env("RUSSET_TEST_STATE", state.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let (pid, interface) = tokio::task::spawn_blocking(move || {
        let ready = lines.find_map(|line| line.unwrap().split_once("READY ").map(|(_, rest)| rest.to_owned()));
        let ready = ready.expect("the parent ended before its node was ready");
        let (pid, interface) = ready.split_once(' ').unwrap();
        (pid.parse().unwrap(), interface.to_owned())
    })
    .await
    .unwrap();
    let (node, network) = (Traces::of_node(pid, "orphan"), Traces::of_network(&interface));

    parent.kill().unwrap();
    parent.wait().unwrap();
    node.vanish().await;
    network.vanish().await;
    let swept = node::sweep(&state.path().canonicalize().unwrap()).await;
    assert_eq!(swept.unwrap(), ["orphan"]);
}

/// Not a test of its own: the process that the test above kills.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by a_node_whose_parent_is_killed_leaves_nothing_behind"]
async fn holds_a_node_until_it_is_killed() {
    let Some(state) = std::env::var_os("RUSSET_TEST_STATE") else {
        return;
    };
    let cluster = Cluster::start(std::path::Path::new(&state)).await;
    let node = cluster.node(node::Options::new("orphan", &cluster.network)).await;
    println!("READY {} {}", node.pid().unwrap(), cluster.network.interface());
    std::future::pending::<()>().await;
}
