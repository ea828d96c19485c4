//! One cluster through everything that happens to it.

use crate::sandbox::{Identity, PATIENCE, Ran, Sandbox, met, processes, text, until, until_gone};
use russet::state::run::PartState;
use russet::status::document::{Document, Health};
use rustix::process::Signal;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use tokio::time::Instant;

/// The cache node is started when its program lies beside ours, which it does after a build of the workspace.
const CACHE: &str = "kura";

const PARTS: [&str; 5] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "capi-core",
];

#[tokio::test]
async fn a_cluster_survives_everything_short_of_down() {
    let sandbox = Sandbox::new();

    interrupted_half_way_it_leaves_no_process(&sandbox).await;
    comes_up_in_the_background(&sandbox).await;
    sandbox.run(&["kubectl", "create", "configmap", "survivor"]).expect(0);
    serves_our_crds_and_cluster_api(&sandbox);
    the_cache_node_keeps(&sandbox, "PUT", "warm", "201");
    the_cache_node_keeps(&sandbox, "GET", "", "warm");
    a_second_up_is_refused(&sandbox);
    an_existing_cluster_gets_our_crds(&sandbox);
    a_killed_apiserver_is_restarted_and_shown(&sandbox).await;
    logs_are_one_command_away(&sandbox);

    let before = sandbox.status();
    let running = processes(&before);
    up_of(&running).signal(Signal::INT);
    until_gone(&running).await;
    assert_eq!(sandbox.status().state, Health::Stopped);

    let squatter = TcpListener::bind(port_of(&before, "kube-apiserver")).unwrap();
    let said = resumes_in_the_foreground(&sandbox).await;
    assert!(said.contains("was taken by another process; it now uses"), "{said}");
    let unchanged = said.contains("CRD chart (helm)           unchanged");
    assert!(unchanged, "helm must not run again:\n{said}");
    drop(squatter);
    the_cache_node_keeps(&sandbox, "GET", "", "warm");

    // As a Helm that was killed together with russet leaves it: without help every later `helm upgrade` would refuse.
    let releases = "--namespace=russet-system label secret --selector=owner=helm";
    sandbox.ok(&format!("kubectl {releases} status=pending-upgrade --overwrite"));

    let running = processes(&sandbox.status());
    up_of(&running).signal(Signal::KILL);
    until_gone(&running).await;

    let layout = sandbox.layout();
    let ports = layout.cluster().join("ports.json");
    for file in [layout.run(), layout.record(), layout.lock(), ports] {
        fs::write(&file, "{\"torn\": ").unwrap();
    }
    let said = resumes_in_the_foreground(&sandbox).await;
    assert!(said.contains("state.json was damaged"), "{said}");

    let running = processes(&sandbox.status());
    let ran = sandbox.run(&["down"]).expect(0);
    assert!(ran.stderr.contains("stopped and removed"), "{ran:?}");
    assert!(running.iter().all(|process| !process.is_alive()), "{running:?}");
    assert!(!layout.root().exists());
}

async fn interrupted_half_way_it_leaves_no_process(sandbox: &Sandbox) {
    let output = sandbox.path().join("interrupted.log");
    let mut child = sandbox.spawn(&["up", "--no-fleet"], &output);
    let running = until("kube-apiserver to be starting", || {
        let status = sandbox.status();
        let mut parts = status.parts.iter();
        let found = parts.any(|part| part.name == "kube-apiserver" && part.pid.is_some());
        met(found, text(&output)).map(|()| processes(&status))
    })
    .await;
    up_of(&running).signal(Signal::INT);
    let ended = until("up to end", || child.try_wait().unwrap().ok_or_else(|| text(&output))).await;
    assert_eq!(ended.code(), Some(130), "{}", text(&output));
    assert!(running.iter().all(|process| !process.is_alive()), "{running:?}");
    assert_eq!(sandbox.status().state, Health::Stopped);
}

async fn comes_up_in_the_background(sandbox: &Sandbox) {
    let ran = sandbox.run(&["up", "--detach", "--no-fleet"]).expect(0);
    let hints = ["russet kubectl get crd", "russet down"];
    for expected in ["Ready after", "API server", "Kubeconfig"].iter().chain(&hints) {
        assert!(ran.stdout.contains(expected), "{expected}:\n{}", ran.stdout);
    }
    for part in PARTS {
        let mut lines = ran.stderr.lines();
        let told = lines.any(|line| line.starts_with(part) && line.contains("ready after"));
        assert!(told, "{}", ran.stderr);
    }
    let status = sandbox.until_well().await;
    let names: Vec<&str> = status.parts.iter().map(|part| part.name.as_str()).collect();
    let russet = std::path::Path::new(env!("CARGO_BIN_EXE_russet"));
    // The cache node is started exactly when its program is there.
    let cache = russet.with_file_name(CACHE).is_file();
    assert_eq!(names.contains(&CACHE), cache, "{names:?}");
    assert_eq!(names.len(), PARTS.len() + usize::from(cache), "{names:?}");
    for part in &status.parts {
        assert!(PARTS.contains(&part.name.as_str()) || part.name == CACHE);
        assert_eq!((part.state, part.restarts), (PartState::Running, 0), "{part:?}");
        assert!(part.memory_bytes.unwrap() > 1 << 20, "{part:?}");
        assert!(part.address.is_some() && part.log.is_file(), "{part:?}");
    }
    sandbox.run(&["status"]).expect(0);
}

fn serves_our_crds_and_cluster_api(sandbox: &Sandbox) {
    let crds = sandbox.run(&["kubectl", "get", "crd", "-o", "name"]).expect(0).stdout;
    let ours = russet::status::cluster::our_crds();
    for name in ours.iter().map(String::as_str).chain(["clusters.cluster.x-k8s.io"]) {
        assert!(crds.contains(name), "{name} is missing:\n{crds}");
    }
    let cluster = sandbox.status().cluster.unwrap();
    assert!(cluster.crds.iter().all(|crd| crd.established));
    assert!(cluster.cluster_api.ready);
}

/// What a build stored before a restart is a hit after it.
fn the_cache_node_keeps(sandbox: &Sandbox, method: &str, body: &str, expected: &str) {
    let Some(cache) = sandbox.status().parts.into_iter().find(|part| part.name == CACHE) else {
        return;
    };
    let (address, length) = (cache.address.unwrap(), body.len());
    let mut stream = std::net::TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    let fields = format!("Host: cache\r\nConnection: close\r\nContent-Length: {length}\r\n");
    write!(stream, "{method} {ENTRY} HTTP/1.1\r\n{fields}\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let right = answer.starts_with(&format!("HTTP/1.1 {expected}")) || answer.ends_with(expected);
    assert!(right, "{method}: {answer}");
}

const ENTRY: &str = "/api/cache/gradle/abc?tenant_id=default&namespace_id=app";

fn a_second_up_is_refused(sandbox: &Sandbox) {
    let pid = sandbox.status().up.unwrap().pid;
    for args in [&["up"][..], &["up", "--detach"]] {
        let ran = sandbox.run(args).expect(4);
        assert!(ran.stderr.contains(&format!("pid {pid}")), "{ran:?}");
    }
}

fn an_existing_cluster_gets_our_crds(sandbox: &Sandbox) {
    let kubeconfig = sandbox.layout().kubeconfig();
    let args = ["up", "--dir", "existing", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let ran = sandbox.run(&args).expect(0);
    assert!(ran.stderr.contains("CRD chart russet-crds: upgraded"), "{ran:?}");
    let unseen = "installed, but its controller was not seen running";
    assert!(ran.stdout.contains(unseen), "{ran:?}");
    // Everything is recorded: the second time Helm is not needed.
    let again = sandbox.run(&args).expect(0).stderr;
    assert!(again.contains("CRD chart russet-crds: unchanged"));
    sandbox.run(&["status", "--dir", "existing"]).expect(0);
    sandbox.ok("kubectl --dir existing get configmap survivor");
    let refused = sandbox.run(&["up", "--dir", "existing"]).expect(1);
    let told = refused.stderr.contains("belongs to the existing cluster");
    assert!(told, "{refused:?}");
    sandbox.run(&["down", "--dir", "existing"]).expect(0);
    assert!(!sandbox.path().join("existing").exists());
    sandbox.ok("kubectl get crd runnerpools.tuist.dev");
}

async fn a_killed_apiserver_is_restarted_and_shown(sandbox: &Sandbox) {
    let before = sandbox.status();
    let apiserver = find(&processes(&before), "kube-apiserver");
    apiserver.signal(Signal::KILL);
    let after = until("kube-apiserver to be restarted and everything to be well", || {
        let status = sandbox.status();
        let restarts = part(&status, "kube-apiserver").restarts;
        let well = status.state == Health::Ready && restarts > 0;
        met(well, format!("{:?}", status.problems)).map(|()| status)
    })
    .await;
    let restarted = part(&after, "kube-apiserver");
    assert_eq!(restarted.restarts, 1);
    assert_ne!(restarted.pid, Some(apiserver.pid));
    assert!(restarted.last_exit.as_ref().unwrap().contains('9'), "{restarted:?}");
    sandbox.run(&["kubectl", "get", "configmap", "survivor"]).expect(0);
    let told = text(&sandbox.layout().log("russet"));
    let restarted = |line: &str| line.starts_with("kube-apiserver") && line.contains("restart 1");
    assert!(told.lines().any(restarted), "{told}");
}

fn logs_are_one_command_away(sandbox: &Sandbox) {
    let list = sandbox.run(&["logs"]).expect(0).stdout;
    assert!(PARTS.iter().all(|part| list.contains(part)), "{list}");
    assert!(!sandbox.ok("logs etcd --tail 5").stdout.is_empty());
    let mistyped = sandbox.run(&["logs", "ectd"]).expect(1).stderr;
    assert!(mistyped.contains("did you mean `etcd`"));
    let table = sandbox.run(&["status"]).expect(0).stdout;
    assert!(table.contains("logs/kube-apiserver.log"), "{table}");
}

/// Starts `up` as somebody at a terminal would, waits until it is ready, and returns what it said so far.
async fn resumes_in_the_foreground(sandbox: &Sandbox) -> String {
    let output = sandbox.path().join("foreground.log");
    let began = Instant::now();
    let mut child = sandbox.spawn(&["up", "--no-fleet"], &output);
    until("up to be ready", || {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("up ended ({status}):\n{}", text(&output));
        }
        let status = sandbox.status();
        met(status.state == Health::Ready, format!("{:?}", status.problems))
    })
    .await;
    assert!(began.elapsed() < PATIENCE);
    // Whoever ends it later is not its parent; reap it so that it does not look alive.
    std::thread::spawn(move || child.wait());
    let ran: Ran = sandbox.run(&["kubectl", "get", "configmap", "survivor"]);
    ran.expect(0);
    text(&output)
}

fn part<'a>(document: &'a Document, name: &str) -> &'a russet::status::document::Part {
    document.parts.iter().find(|part| part.name == name).unwrap()
}

fn find(processes: &[Identity], name: &str) -> Identity {
    processes.iter().find(|process| process.name == name).unwrap().clone()
}

/// The first is `up` itself.
fn up_of(processes: &[Identity]) -> &Identity {
    processes.first().unwrap()
}

fn port_of(document: &Document, name: &str) -> String {
    let address = part(document, name).address.as_ref().unwrap();
    address.trim_start_matches("https://").to_owned()
}
