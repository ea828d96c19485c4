//! The Linux cache nodes of `up`: as root they are machines that run Pods, otherwise Nodes that say what they are.

use crate::fleet::{fleet, is_built, killed_with_its_port_lost, server_of, until_renewed};
use crate::sandbox::{Sandbox, met, text, until};
use russet::status::document::{Document, Kind, Server};
use rustix::process::{Pid, Signal};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What every start of these tests has in common: one Mac, and time for a busy machine.
const UP: [&str; 5] = ["up", "--detach", "--pool=1", "--macs=1", "--timeout=10m"];

fn servers(document: &Document) -> Vec<Server> {
    fleet(document).servers
}

/// Both kinds serve. Returns them, Elastic Metal first.
#[track_caller]
fn both_serve(document: &Document, synthetic: bool) -> [Server; 2] {
    let mut all = servers(document);
    all.sort_by_key(|server| server.kind == Kind::Instance);
    let [metal, instance]: [Server; 2] = all.try_into().expect("one server of each kind");
    assert_eq!((metal.kind, instance.kind), (Kind::ElasticMetal, Kind::Instance));
    for server in [&metal, &instance] {
        assert!(server.ready && server.node_ready, "{server:?}");
        assert_eq!(server.synthetic, synthetic, "{server:?}");
        let address = server.private_address.as_ref().unwrap();
        assert!(address.starts_with("172.28."), "{server:?}");
        assert!(server.per_hour_micro_eur.unwrap() > 0, "{server:?}");
    }
    [metal, instance]
}

fn per_hour(document: &Document) -> u64 {
    document.account.as_ref().unwrap().per_hour_micro_eur
}

#[tokio::test]
async fn synthetic_cache_nodes_say_so_and_follow_like_macs_an_api_server_that_moved() {
    assert!(is_built(), "build the workspace first: cargo build --workspace --bins");
    let sandbox = Sandbox::new();
    // Macs that are set up over SSH are told anew, which has a story of its own; stand-ins follow by themselves.
    let up = [&UP[..], &["--synthetic-linux", "--synthetic-macs"]].concat();
    let ran = sandbox.run(&up).expect(0);
    let told = ran.stdout.contains("synthetic: Nodes without machines");
    assert!(told, "{}", ran.stdout);
    let status = sandbox.until_well().await;
    let before = both_serve(&status, true);
    assert!(sandbox.run(&["status"]).expect(0).stdout.contains("Ready, synthetic"));

    a_stand_in_refuses_pods(&sandbox, &fleet(&status).macs.first().unwrap().name).await;

    let old_place = killed_with_its_port_lost(&sandbox).await;
    sandbox.run(&up).expect(0);
    assert_ne!(server_of(&sandbox.status()), old_place);
    let after = both_serve(&sandbox.status(), true);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.server_id, after.server_id, "the same server");
        until_renewed(&sandbox, &after.name).await;
    }

    // They were told the old place when they joined, and so were the Macs.
    let macs = fleet(&sandbox.status()).macs;
    until_renewed(&sandbox, &macs.first().unwrap().name).await;

    // Left out the next time, they are given up and cost nothing.
    let paid = per_hour(&sandbox.status());
    let saved: u64 = after.iter().filter_map(|server| server.per_hour_micro_eur).sum();
    sandbox.run(&["down", "--keep-data"]).expect(0);
    let without = [&UP[..], &["--no-linux", "--synthetic-macs"]].concat();
    sandbox.run(&without).expect(0);
    until("the cache nodes to be given up", || {
        let status = sandbox.status();
        let (left, cost) = (servers(&status), per_hour(&status));
        met(
            left.is_empty() && cost + saved <= paid,
            format!("{left:?}, {cost} an hour"),
        )
    })
    .await;
    sandbox.run(&["down"]).expect(0);
}

/// A Pod on such a Mac waited for ever without a word, on a Node that was ready.
async fn a_stand_in_refuses_pods(sandbox: &Sandbox, mac: &str) {
    let name = format!(r#"--overrides={{"spec":{{"nodeName":"{mac}"}}}}"#);
    sandbox.run(&["kubectl", "run", "demo", "--image=mac", &name]).expect(0);
    until("the Pod to be refused", || {
        let output = "--output=jsonpath={.status.phase} {.status.reason}: {.status.message}";
        let said = sandbox.run(&["kubectl", "get", "pod", "demo", output]).expect(0).stdout;
        met(
            said.starts_with("Failed NoVirtualMachines: ") && said.contains("run `make up` as root"),
            said,
        )
    })
    .await;
    sandbox.ok("kubectl delete pod demo --wait=true");
}

/// A Pod of a cache: on one kind of server, with a volume on its disk.
fn cache(server: &Server) -> serde_json::Value {
    let claim = serde_json::json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": server.name},
        "spec": {
            "storageClassName": "scw-local-nvme", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": server.name},
        "spec": {
            "nodeSelector": {"node.cluster.x-k8s.io/pool": "kura-scw-fr-par", "kubernetes.io/hostname": server.name},
            "tolerations": [{"key": "tuist.dev/runner-cache", "operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "cache", "image": "localhost/busybox:1", "command": ["sleep", "1000000"],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": server.name}}],
        },
    });
    serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [claim, pod]})
}

/// Waits until a command succeeds in the Pod on a server. What it printed.
async fn until_in_pod(sandbox: &Sandbox, server: &Server, command: &str) -> String {
    until(&format!("`{command}` on {}", server.name), || {
        let ran = sandbox.run(&["kubectl", "--", "exec", &server.name, "--", "sh", "-c", command]);
        if ran.code == Some(0) {
            return Ok(ran.stdout);
        }
        let pod = sandbox.run(&["kubectl", "describe", "pod", &server.name]).stdout;
        let events: Vec<&str> = pod.lines().rev().take(8).collect();
        Err(format!("{}{}", ran.stderr, events.join("\n")))
    })
    .await
}

#[tokio::test]
async fn real_cache_nodes_run_pods_on_their_disks_survive_kill_and_leave_nothing() {
    assert!(is_built(), "build the workspace first: cargo build --workspace --bins");
    if !russet_stages::linux::can_run(russet_skip::test_name!()).await {
        return;
    }
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&UP).expect(0);
    let told = ran.stdout.contains("emulated with a real kubelet each");
    assert!(told, "{}", ran.stdout);
    let status = sandbox.until_well().await;
    let before = both_serve(&status, false);
    for server in &before {
        let file = sandbox.path().join(format!("{}.json", server.name));
        std::fs::write(&file, cache(server).to_string()).unwrap();
        sandbox.ok(&format!("kubectl -- apply --filename {}", file.display()));
    }
    for server in &before {
        until_in_pod(&sandbox, server, "echo warm > /data/blob && sync").await;
    }

    // Everything dies at once, the guards of the machines first: nobody is left who could clean up.
    let traces = Traces::of(&sandbox);
    assert!(traces.cgroups.len() >= 2 && traces.interface.exists(), "{traces:?}");
    assert!(
        !traces.disks.is_empty(),
        "Elastic Metal has a disk for its data: {traces:?}"
    );
    for guard in traces.guards() {
        let _ = rustix::process::kill_process(guard, Signal::KILL);
    }
    let old_place = killed_with_its_port_lost(&sandbox).await;
    sandbox.run(&UP).expect(0);
    assert_ne!(server_of(&sandbox.status()), old_place);
    let said = text(&sandbox.layout().log("russet"));
    assert!(said.contains("removed the cgroup russet-"), "{said}");
    let after = both_serve(&sandbox.status(), false);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.server_id, after.server_id, "the same server");
        until_renewed(&sandbox, &after.name).await;
        assert_eq!(until_in_pod(&sandbox, after, "cat /data/blob").await, "warm\n");
    }

    let traces = Traces::of(&sandbox);
    sandbox.run(&["down"]).expect(0);
    traces.until_nothing().await;
}

/// What machines put into the kernel.
#[derive(Debug)]
struct Traces {
    dir: PathBuf,
    tags: Vec<String>,
    interface: PathBuf,
    cgroups: Vec<PathBuf>,
    /// Inodes of what loop devices are on.
    disks: Vec<u64>,
}

impl Traces {
    fn of(sandbox: &Sandbox) -> Self {
        let dir = sandbox.layout().linux().canonicalize().unwrap();
        let record: serde_json::Value =
            serde_json::from_slice(&std::fs::read(dir.join("network.json")).unwrap()).unwrap();
        let tags: Vec<String> = names(&dir.join("boxes"));
        let disks = tags.iter().flat_map(|tag| {
            let folder = dir.join("boxes").join(tag).join("disk/var/lib/russet-box/disks");
            let files = names(&folder).into_iter().map(move |name| folder.join(name));
            files
                .filter_map(|file| Some(std::fs::metadata(file).ok()?.ino()))
                .collect::<Vec<_>>()
        });
        let ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with("russet-") && tags.iter().any(|tag| name.ends_with(tag))
        };
        Self {
            interface: Path::new("/sys/class/net").join(format!("rst{}", record.get("index").unwrap())),
            cgroups: cgroups().into_iter().filter(ours).collect(),
            disks: disks.collect(),
            dir,
            tags,
        }
    }

    /// The processes that clean up after machines.
    fn guards(&self) -> Vec<Pid> {
        let of_ours = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.starts_with("sh\0-c\0") && self.tags.iter().any(|tag| line.contains(&format!("russet-box-{tag}")))
        };
        let pids = names(Path::new("/proc"))
            .into_iter()
            .filter_map(|name| name.parse().ok());
        pids.filter(of_ours).filter_map(Pid::from_raw).collect()
    }

    /// What is there of them; nothing, hopefully.
    fn left(&self) -> Vec<String> {
        let paths = self.cgroups.iter().chain([&self.interface, &self.dir]);
        let there = paths
            .filter(|path| path.exists())
            .map(|path| path.display().to_string());
        let mut left: Vec<String> = there.collect();
        let mut loops = std::process::Command::new("losetup");
        let loops = loops.args(["--noheadings", "--output", "BACK-INO"]).output().unwrap();
        for inode in String::from_utf8_lossy(&loops.stdout).split_whitespace() {
            if self.disks.iter().any(|disk| disk.to_string() == inode) {
                left.push(format!("a loop device on inode {inode}"));
            }
        }
        let dir = self.dir.to_string_lossy();
        for pid in names(Path::new("/proc")) {
            let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
            if mounts.contains(&*dir) {
                left.push(format!("process {pid} in a mount namespace of a machine"));
            }
        }
        left
    }

    async fn until_nothing(&self) {
        until("nothing of the machines to be left", || {
            let left = self.left();
            met(left.is_empty(), left.join(", "))
        })
        .await;
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}

/// Every cgroup right below a hierarchy.
fn cgroups() -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = table.lines().filter(|line| line.contains(" - cgroup"));
    let points = points.filter_map(|line| line.split(' ').nth(4).map(PathBuf::from));
    let inside = points.flat_map(|point| names(&point).into_iter().map(move |name| point.join(name)));
    inside.collect()
}
