//! The Macs of `up`: they come, they scale both ways, they are still there after a restart.

use crate::guests;
use crate::sandbox::{Sandbox, met, processes, text, until, until_gone};
use russet::status::document::{Document, Fleet};
use rustix::process::Signal;

const MACS: &str = "machinedeployment/macos";

/// The programs of the fleet lie beside ours after a build of the workspace.
pub(crate) fn is_built() -> bool {
    let russet = std::path::Path::new(env!("CARGO_BIN_EXE_russet"));
    ["capi-provider", "sim-scaleway", "sim-mac", "sim-linux"]
        .iter()
        .all(|name| russet.with_file_name(name).is_file())
}

pub(crate) fn fleet(document: &Document) -> Fleet {
    let cluster = document.cluster.clone();
    cluster.and_then(|cluster| cluster.fleet).unwrap_or_default()
}

async fn until_free(sandbox: &Sandbox, macs: usize, pooled: usize) {
    until(&format!("{macs} Macs and {pooled} free minis"), || {
        let status = sandbox.status();
        let serving = fleet(&status).macs.iter().filter(|mac| mac.ready).count();
        let free = status.account.as_ref().map_or(0, |account| account.pooled_ready);
        met(
            (serving, fleet(&status).macs.len(), free) == (macs, macs, pooled),
            format!("{serving} serve, {free} free: {:?}", fleet(&status)),
        )
    })
    .await;
}

fn renewed(sandbox: &Sandbox, node: &str) -> String {
    let lease = format!("lease/{node}");
    let time = "--namespace=kube-node-lease --output=jsonpath={.spec.renewTime}";
    sandbox.ok(&format!("kubectl get {lease} {time}")).stdout
}

/// Only who reaches the API server renews the Lease of its Node.
pub(crate) async fn until_renewed(sandbox: &Sandbox, node: &str) {
    let before = renewed(sandbox, node);
    until(&format!("{node} to renew its Lease"), || {
        let now = renewed(sandbox, node);
        if now == before { Err(now) } else { Ok(()) }
    })
    .await;
}

/// Kills `up`, and lets the next one put its API server elsewhere, as it does when somebody took the port. Where it was.
pub(crate) async fn killed_with_its_port_lost(sandbox: &Sandbox) -> String {
    let status = sandbox.status();
    let running = processes(&status);
    running.first().unwrap().signal(Signal::KILL);
    until_gone(&running).await;
    let file = sandbox.layout().cluster().join("ports.json");
    let mut ports: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let all = ports.as_object_mut().unwrap();
    all.insert("kube-apiserver".to_owned(), free.local_addr().unwrap().port().into());
    std::fs::write(&file, ports.to_string()).unwrap();
    server_of(&status)
}

pub(crate) fn server_of(document: &Document) -> String {
    document.cluster.as_ref().unwrap().server.clone().unwrap()
}

/// Whether minis are Macs that are set up over SSH: with the agent built, and as root or where others may have namespaces.
pub(crate) fn are_macs(sandbox: &Sandbox) -> bool {
    let runtimes = "--output=jsonpath={.items[*].status.nodeInfo.containerRuntimeVersion}";
    let of_macs = "--selector=kubernetes.io/os=darwin";
    let said = sandbox.run(&["kubectl", "get", "nodes", of_macs, runtimes]).expect(0);
    !said.stdout.contains("stand-in")
}

/// What an operator sees of a Mac, and does on it.
fn look_into(sandbox: &Sandbox, mac: &str) {
    let steps = sandbox.run(&["host", "steps", mac]).expect(0).stdout;
    for step in ["connect", "sudo", "tart-kubelet-job"] {
        let line = steps.lines().find(|line| line.split_whitespace().next() == Some(step));
        assert!(line.is_some_and(|line| line.contains("Succeeded")), "{step} in {steps}");
    }
    let job = "launchctl print system/dev.tuist.tart-kubelet";
    let running = sandbox.run(&["host", "exec", mac, "--", job]).expect(0).stdout;
    assert!(running.contains("state = running"), "{running}");
    let script = "echo out; echo err >&2; exit 7";
    let told = sandbox.run(&["host", "exec", mac, "--", "sh", "-c", script]).expect(7);
    assert_eq!((told.stdout.as_str(), told.stderr.as_str()), ("out\n", "err\n"));
    let wrong = sandbox.run(&["host", "exec", "nobody", "--", "true"]).expect(1);
    assert!(wrong.stderr.contains("there is no Mac `nobody`"), "{}", wrong.stderr);
}

#[tokio::test]
async fn emulated_macs_come_up_scale_both_ways_and_survive_a_restart() {
    assert!(is_built(), "build the workspace first: cargo build --workspace --bins");
    let sandbox = Sandbox::new();
    let ran = sandbox.ok("up --detach --no-linux --pool 2 --macs 1");
    assert!(ran.stdout.contains("1 serve, emulated"), "{}", ran.stdout);
    let status = sandbox.until_well().await;
    let account = status.account.as_ref().unwrap();
    assert_eq!((account.servers, account.pooled, account.emulated), (2, 1, true));
    assert!(account.per_hour_micro_eur > 0);
    assert_eq!(status.cluster.as_ref().unwrap().nodes.ready, 1);
    let are_macs = are_macs(&sandbox);
    // As root nothing is in the way of Macs.
    assert!(are_macs || !rustix::process::geteuid().is_root());
    if are_macs {
        look_into(&sandbox, &fleet(&status).macs.first().unwrap().name);
    }

    let scale = |replicas: &str| {
        sandbox.ok(&format!(
            "kubectl scale {MACS} --namespace=russet-system --replicas={replicas}"
        ));
    };
    scale("2");
    until_free(&sandbox, 2, 0).await;
    if are_macs {
        guests::pods_become_virtual_machines(&sandbox).await;
    }
    scale("1");
    until_free(&sandbox, 1, 1).await;

    if are_macs {
        guests::one_that_stays(&sandbox);
    }
    let before = fleet(&sandbox.status()).macs;
    let running = processes(&sandbox.status());
    running.first().unwrap().signal(Signal::KILL);
    until_gone(&running).await;
    let ran = sandbox.ok("up --detach --no-linux --pool 2 --macs 1");
    let log = text(&sandbox.layout().log("russet"));
    let unchanged = ran.stderr.contains("provider chart (helm)      unchanged");
    assert!(unchanged, "{}\n{log}", ran.stderr);
    let after = fleet(&sandbox.status()).macs;
    let hosts = |macs: &[russet::status::document::Mac]| -> Vec<Option<String>> {
        macs.iter().map(|mac| mac.server_id.clone()).collect()
    };
    assert_eq!(hosts(&after), hosts(&before), "the same Mac on the same host");
    // Only a Mac that was started again renews its Lease.
    let mac = &after.first().unwrap().name;
    until_renewed(&sandbox, mac).await;
    if are_macs {
        guests::it_runs_again(&sandbox).await;
        follows_an_api_server_that_moved(&sandbox, mac).await;
    }
    sandbox.run(&["down"]).expect(0);
}

/// A Mac kept the address it was told when it was set up, and was lost when somebody else had the port at the next start. It cannot
/// ask; the provider sees that it was told another one and mends that over SSH.
async fn follows_an_api_server_that_moved(sandbox: &Sandbox, mac: &str) {
    let told = || {
        let command = ["host", "exec", mac, "--", "cat", "/etc/tart-kubelet/cluster-info"];
        sandbox.run(&command).expect(0).stdout
    };
    let old_place = killed_with_its_port_lost(sandbox).await;
    sandbox.ok("up --detach --no-linux --pool 2 --macs 1");
    let place = server_of(&sandbox.status());
    assert_ne!(place, old_place);
    until("the Mac to be told where the API server is now", || {
        let told = told();
        met(told.contains(&place), told)
    })
    .await;
    until_renewed(sandbox, mac).await;
    let macs = fleet(&sandbox.status()).macs;
    let names: Vec<&str> = macs.iter().map(|mac| mac.name.as_str()).collect();
    assert_eq!(names, [mac], "no other Mac took its place");
}
