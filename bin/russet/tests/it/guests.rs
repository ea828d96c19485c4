//! Pods on the emulated Macs of `up`, through the real kubectl: they become virtual machines that one can look into.

use crate::fleet::fleet;
use crate::sandbox::{PATIENCE, Sandbox, met, text, until};
use russet::status::document::Vm;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

const TAHOE: &str = "ghcr.io/cirruslabs/macos-tahoe-base:latest";
const SEQUOIA: &str = "ghcr.io/cirruslabs/macos-sequoia-base:latest";

/// Answers one line to whoever connects.
const SERVER: &str = r#"echo "macOS $(sw_vers -productVersion) at $GUEST_ADDRESS"; exec python3 -c '
import os, socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((os.environ["GUEST_ADDRESS"], 8080)); s.listen()
while True:
    c, _ = s.accept(); c.sendall(b"hello " + c.recv(100)); c.close()
'"#;

/// What a job does with its cache: asks whether it is there, puts something, and gets it back.
const JOB: &str = r#"set -e
ask() { curl --noproxy '*' --silent --show-error --fail --max-time 60 "$@"; }
ask --output /dev/null "$TUIST_CACHE_ENDPOINT/up"
echo "built on $(sw_vers -productVersion)" >/tmp/there
ask --upload-file /tmp/there "$TUIST_CACHE_ENDPOINT/generic/guests/out/app"
ask --output /tmp/back "$TUIST_CACHE_ENDPOINT/generic/guests/out/app"
cmp /tmp/there /tmp/back
echo cached"#;

/// Only what wants to be on a Mac is put there.
const ON_A_MAC: &str = r#"--overrides={"spec":{"tolerations":[{"key":"tuist.dev/macos","operator":"Exists"}]}}"#;

fn kubectl(sandbox: &Sandbox, args: &[&str]) -> String {
    let words: Vec<&str> = std::iter::once("kubectl").chain(args.iter().copied()).collect();
    sandbox.run(&words).expect(0).stdout
}

fn vms(sandbox: &Sandbox) -> Vec<(String, Vm)> {
    let macs = fleet(&sandbox.status()).macs;
    let hosted = macs.into_iter().filter_map(|mac| Some((mac.name, mac.hosting?.vms)));
    let vms = hosted.flat_map(|(mac, vms)| vms.into_iter().map(move |vm| (mac.clone(), vm)));
    vms.collect()
}

fn run(sandbox: &Sandbox, name: &str, script: &str) {
    let image = format!("--image={TAHOE}");
    kubectl(sandbox, &["run", name, &image, ON_A_MAC, "--", "sh", "-c", script]);
    until_ready(sandbox, name);
}

fn until_ready(sandbox: &Sandbox, name: &str) {
    let patience = format!("--timeout={}s", PATIENCE.as_secs());
    let pod = format!("pod/{name}");
    kubectl(sandbox, &["wait", "--for=condition=Ready", &pod, &patience]);
}

/// `kubectl run`, and everything that reaches into what it made.
pub(crate) async fn one_can_be_looked_into(sandbox: &Sandbox) {
    run(sandbox, "demo", SERVER);
    // A Mac that has just joined is reached once its serving certificate is approved.
    until("a log", || {
        let log = sandbox.run(&["kubectl", "logs", "demo"]);
        met(log.stdout.starts_with("macOS 26.0 at 127."), format!("{log:?}"))
    })
    .await;

    let version = kubectl(sandbox, &["exec", "demo", "--", "sw_vers", "-productVersion"]);
    assert_eq!(version, "26.0\n");
    let ended = sandbox.run(&["kubectl", "exec", "demo", "--", "sh", "-c", "exit 7"]);
    ended.expect(7);

    let (there, back) = (sandbox.path().join("there"), sandbox.path().join("back"));
    std::fs::write(&there, "carried\n").unwrap();
    kubectl(sandbox, &["cp", &there.display().to_string(), "demo:/tmp/there"]);
    let carried = kubectl(sandbox, &["exec", "demo", "--", "cat", "/tmp/there"]);
    assert_eq!(carried, "carried\n");
    kubectl(sandbox, &["cp", "demo:/tmp/there", &back.display().to_string()]);
    assert_eq!(text(&back), "carried\n");

    let output = sandbox.path().join("forward");
    let mut forward = sandbox.spawn(&["kubectl", "port-forward", "pod/demo", ":8080"], &output);
    let port: u16 = until("a forwarded port", || {
        let said = text(&output);
        let port = said.split("127.0.0.1:").nth(1);
        let port = port.and_then(|rest| rest.split_whitespace().next());
        port.and_then(|port| port.parse().ok()).ok_or(said)
    })
    .await;
    until("an answer through the port", || {
        let answer = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(b"you")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        match answer() {
            Ok(answer) if answer == "hello you" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    forward.kill().unwrap();
    forward.wait().unwrap();

    let shown = vms(sandbox);
    let (_, vm) = shown.first().unwrap();
    let shown = (vm.pod.as_str(), vm.image.as_str(), vm.phase.as_str(), vm.ready);
    assert_eq!(shown, ("demo", TAHOE, "Running", true));
    let table = sandbox.run(&["status"]).expect(0).stdout;
    assert!(table.contains("default/demo"), "{table}");
    kubectl(sandbox, &["delete", "pod", "demo", "--wait=true"]);
}

/// The cache that `up` started, as dispatch hands it to a job.
fn endpoint(sandbox: &Sandbox) -> String {
    let ports = text(&sandbox.layout().cache().join("ports.json"));
    let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
    format!("http://127.0.0.1:{}", ports.get("kura").unwrap())
}

/// On Scaleway this path is a VLAN with NAT and had no proof at all; here guests share the loopback, and the job is the same.
pub(crate) async fn a_job_reaches_its_cache(sandbox: &Sandbox) {
    let cache = endpoint(sandbox);
    let (image, env) = (
        format!("--image={TAHOE}"),
        format!("--env=TUIST_CACHE_ENDPOINT={cache}"),
    );
    let job = ["run", "job", &image, &env, ON_A_MAC, "--restart=Never", "--"];
    kubectl(sandbox, &[&job[..], &["sh", "-c", JOB]].concat());
    until("the job to be done", || {
        let phase = kubectl(sandbox, &["get", "pod", "job", "--output=jsonpath={.status.phase}"]);
        let log = sandbox.run(&["kubectl", "logs", "job"]);
        assert_ne!(phase, "Failed", "{log:?}");
        met(
            (phase.as_str(), log.stdout.as_str()) == ("Succeeded", "cached\n"),
            format!("{phase}: {log:?}"),
        )
    })
    .await;
    // It is in this cache and nowhere else.
    let url = format!("{cache}/generic/guests/out/app");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let kept = client.get(url).send().await.unwrap().error_for_status().unwrap();
    assert_eq!(kept.text().await.unwrap(), "built on 26.0\n");
    kubectl(sandbox, &["delete", "pod", "job", "--wait=true"]);
}

/// Two Pods on two Macs change their image one after the other.
async fn a_deployment_rolls_over_two_macs(sandbox: &Sandbox) {
    let manifest = sandbox.path().join("deployment.json");
    let deployment = serde_json::json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "tolerations": [{"key": "tuist.dev/macos", "operator": "Exists"}],
                    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}},
                    ]}},
                    "containers": [{"name": "web", "image": TAHOE, "command": ["sh", "-c", "exec sleep 100000"]}],
                },
            },
        },
    });
    std::fs::write(&manifest, deployment.to_string()).unwrap();
    let patience = format!("--timeout={}s", PATIENCE.as_secs());
    kubectl(sandbox, &["apply", "--filename", &manifest.display().to_string()]);
    kubectl(sandbox, &["rollout", "status", "deployment/web", &patience]);
    kubectl(sandbox, &["set", "image", "deployment/web", &format!("web={SEQUOIA}")]);
    kubectl(sandbox, &["rollout", "status", "deployment/web", &patience]);
    until("two Pods of the new image on two Macs", || {
        let vms = vms(sandbox);
        let ready = vms.iter().filter(|(_, vm)| vm.image == SEQUOIA && vm.ready);
        let macs: std::collections::BTreeSet<&String> = ready.map(|(mac, _)| mac).collect();
        met((macs.len(), vms.len()) == (2, 2), format!("{vms:?}"))
    })
    .await;
    kubectl(sandbox, &["delete", "deployment", "web"]);
    until("no Pod", || {
        let vms = vms(sandbox);
        met(vms.is_empty(), format!("{vms:?}"))
    })
    .await;
}

/// On the Macs nothing is left of any Pod.
async fn nothing_is_left(sandbox: &Sandbox) {
    for mac in fleet(&sandbox.status()).macs {
        until("no virtual machine of a Pod", || {
            let command =
                "/usr/local/bin/tart list --source local --quiet; ls /var/lib/tart-kubelet/pods 2>/dev/null || true";
            let left = sandbox
                .run(&["host", "exec", &mac.name, "--", command])
                .expect(0)
                .stdout;
            // What is left are golden bases, which no Pod owns.
            let ours = left.lines().any(|line| !line.starts_with("tuist-golden-"));
            if ours { Err(left) } else { Ok(()) }
        })
        .await;
    }
}

/// All of it, on two Macs that serve.
pub(crate) async fn pods_become_virtual_machines(sandbox: &Sandbox) {
    one_can_be_looked_into(sandbox).await;
    a_job_reaches_its_cache(sandbox).await;
    a_deployment_rolls_over_two_macs(sandbox).await;
    nothing_is_left(sandbox).await;
}

/// A Pod that is there when everything is killed.
pub(crate) fn one_that_stays(sandbox: &Sandbox) {
    run(sandbox, "kept", "exec sleep 100000");
}

/// The Macs went down with `up`, so its virtual machine is another one; its Pod is the same and runs again. Macs that came back had nobody
/// at the screen, and no virtual machine ran on them any more.
pub(crate) async fn it_runs_again(sandbox: &Sandbox) {
    until("the Pod to run again", || {
        let restarts =
            "--output=jsonpath={.status.containerStatuses[0].restartCount}{.status.containerStatuses[0].ready}";
        let seen = kubectl(sandbox, &["get", "pod", "kept", restarts]);
        met(seen.ends_with("true") && !seen.starts_with('0'), seen)
    })
    .await;
    let version = kubectl(sandbox, &["exec", "kept", "--", "sw_vers", "-productVersion"]);
    assert_eq!(version, "26.0\n");
    kubectl(sandbox, &["delete", "pod", "kept", "--now"]);
}
