//! The kubelet API, through a real API server and with a real kubectl.

use crate::harness::Agent;
use crate::lives::WAITS;
use crate::stage::{IMAGE, Mac, PATIENCE, restarts, until};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use russet_sim_tart::Image;
use russet_testkit::wait::{self, Look};
use serde_json::json;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

/// A Mac whose kubelet API answers.
pub(crate) struct Reached {
    pub(crate) mac: Mac,
    kubectl: PathBuf,
    agent: Agent,
}

impl Reached {
    pub(crate) async fn new(name: &str, address: &str) -> Result<Self> {
        Self::with(name, &[&format!("--node-ip={address}")]).await
    }

    pub(crate) async fn with(name: &str, flags: &[&str]) -> Result<Self> {
        let mac = Mac::new(name).await?;
        let agent = mac.start_with(flags)?;
        let tools = russet_testkit::cluster::tools(&["kubectl"]).await?;
        let kubectl = tools.path("kubectl").context("kubectl")?.to_owned();
        approve(&mac).await?;
        Ok(Self { mac, kubectl, agent })
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let plane = self.mac.host.cluster.control_plane();
        let mut command = Command::new(&self.kubectl);
        command
            .arg(format!("--kubeconfig={}", plane.admin_kubeconfig().display()))
            .arg(format!("--namespace={}", self.mac.namespace))
            .args(words)
            .env("HOME", self.mac.host.dir.path())
            .kill_on_drop(true);
        command
    }

    async fn kubectl(&self, words: &[&str]) -> Result<Output> {
        let output = self.command(words).stdin(Stdio::null()).output();
        tokio::time::timeout(PATIENCE, output)
            .await
            .context("kubectl took too long")?
            .context("kubectl")
    }

    /// What kubectl prints, once the API server reaches the node.
    pub(crate) async fn says(&self, words: &[&str]) -> Result<String> {
        wait::until(&format!("kubectl {words:?}"), PATIENCE, || async {
            let output = self.kubectl(words).await?;
            Ok(if output.status.success() {
                Look::Done(String::from_utf8_lossy(&output.stdout).into_owned())
            } else {
                Look::NotYet(format!(
                    "{} {}",
                    String::from_utf8_lossy(&output.stderr),
                    self.mac.host.log()
                ))
            })
        })
        .await
    }

    /// kubectl, joined to a container.
    async fn attached(&self, words: &[&str]) -> Result<Child> {
        // The API server reaches the node once another call has gone through.
        self.says(&["logs", words.last().context("a Pod")?]).await?;
        self.spawn(words)
    }

    pub(crate) fn spawn(&self, words: &[&str]) -> Result<Child> {
        let mut command = self.command(words);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command.spawn()?)
    }
}

/// Approves the serving certificate, as the provider does for its machines.
async fn approve(mac: &Mac) -> Result<()> {
    let requests: Api<CertificateSigningRequest> = Api::all(mac.host.client.clone());
    wait::until("a request for a serving certificate", PATIENCE, || async {
        let all = requests.list(&ListParams::default()).await?;
        let ours = all.items.into_iter().find(|request| {
            request.spec.signer_name == "kubernetes.io/kubelet-serving"
                && request.spec.username == Some(mac.host.node_user())
        });
        let Some(request) = ours else {
            return Ok(Look::not_yet(mac.host.log()));
        };
        let approval = json!({"status": {"conditions": [{
            "type": "Approved", "status": "True", "reason": "Test", "message": "it is ours",
        }]}});
        let params = PatchParams::default();
        requests
            .patch_approval(&request.name_any(), &params, &Patch::Strategic(approval))
            .await?;
        Ok(Look::Done(()))
    })
    .await
}

pub(crate) async fn kubectl_reaches_into_a_vm() -> Result<()> {
    let there = Reached::new("reach1", "127.77.10.1").await?;
    let mac = &there.mac;
    let script = format!("echo one; echo two; echo three; {WAITS} 0");
    let more = json!({"spec": {"containers": [{"env": [{"name": "COLOUR", "value": "blue sky"}]}]}});
    let pod = mac.run("job", &script, more).await?;
    mac.until_running("job").await?;

    wait::until_true("its log", PATIENCE, || async {
        Ok(there.says(&["logs", "job"]).await? == "one\ntwo\nthree\n")
    })
    .await?;
    ensure!(there.says(&["logs", "--tail=1", "job"]).await? == "three\n");
    let stamped = there.says(&["logs", "--timestamps", "--tail=1", "job"]).await?;
    let (at, text) = stamped.split_once(' ').context("a time")?;
    ensure!(text == "three\n" && at.parse::<jiff::Timestamp>().is_ok(), "{stamped}");

    // With the environment of the container, and its own exit code.
    let told = there
        .kubectl(&["exec", "job", "--", "sh", "-c", "echo $COLOUR; echo bad >&2; exit 3"])
        .await?;
    ensure!(told.status.code() == Some(3), "{told:?}");
    ensure!(told.stdout == b"blue sky\n", "{told:?}");
    ensure!(String::from_utf8_lossy(&told.stderr).contains("bad"));
    // `tart` tells every end by a signal so.
    let told = there
        .kubectl(&["exec", "job", "--", "sh", "-c", "kill -TERM $$"])
        .await?;
    ensure!(told.status.code() == Some(255), "{told:?}");
    let mut cat = there.spawn(&["exec", "-i", "job", "--", "cat"])?;
    let mut stdin = cat.stdin.take().context("stdin")?;
    stdin.write_all(b"through and back").await?;
    drop(stdin);
    let through = tokio::time::timeout(PATIENCE, cat.wait_with_output()).await??;
    ensure!(through.stdout == b"through and back", "{through:?}");

    let file = mac.host.path("file");
    std::fs::write(&file, "copied")?;
    there
        .says(&["cp", &file.display().to_string(), "job:/opt/work/copy"])
        .await?;
    ensure!(std::fs::read_to_string(mac.work(&pod).join("copy"))? == "copied");

    let mut following = there.spawn(&["logs", "-f", "job"])?;
    mac.go(&pod)?;
    let ended = tokio::time::timeout(PATIENCE, following.wait()).await??;
    ensure!(ended.success());
    mac.until_ended("job").await?;
    ensure!(
        there.says(&["logs", "job"]).await? == "one\ntwo\nthree\n",
        "a log outlives its VM"
    );
    mac.stayed_within_its_rights()
}

/// What a port of a Pod answers through kubectl, or what kubectl says to that.
async fn through(there: &Reached, port: u16) -> Result<String> {
    let mut forward = there.spawn(&["port-forward", "pod/job", &format!(":{port}")])?;
    let mut lines = BufReader::new(forward.stdout.take().context("stdout")?).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line())
        .await??
        .unwrap_or_default();
    let local = line
        .split("127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .with_context(|| format!("a port in {line:?}"))?;
    let mut stream = tokio::net::TcpStream::connect(format!("127.0.0.1:{local}")).await?;
    stream.write_all(b"you").await?;
    let mut answer = vec![0; "hello you".len()];
    if tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer))
        .await?
        .is_ok()
    {
        return Ok(String::from_utf8(answer)?);
    }
    // It has said why before it let go of the connection.
    forward.start_kill()?;
    let output = tokio::time::timeout(PATIENCE, forward.wait_with_output()).await??;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A program that listens on the loopback of its guest alone, as most servers of developers do, could not be reached. A program of
/// the guest leads there.
pub(crate) async fn a_port_of_a_vm_is_forwarded() -> Result<()> {
    let there = Reached::new("reach2", "127.77.10.2").await?;
    let script = r#"exec python3 -c '
import os, socket, threading
def serve(address, port):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port)); s.listen()
    while True:
        c, _ = s.accept()
        try:
            c.sendall(b"hello " + c.recv(100))
        except OSError:
            pass
        c.close()
threading.Thread(target=serve, args=("127.0.0.1", 18081)).start()
serve(os.environ["GUEST_ADDRESS"], 18080)
'"#;
    there.mac.run("job", script, json!({})).await?;
    there.mac.until_running("job").await?;
    for port in [18080, 18081] {
        let asked = async || through(&there, port).await;
        let answer = there
            .mac
            .host
            .until("an answer through the port", asked, |answer| answer == "hello you");
        answer.await?;
    }
    Ok(())
}

/// After a crash the newest start was taken for the present one, so `--previous` showed the one before it, or nothing; and a VM that
/// was still being made had an empty log instead of a word about that.
pub(crate) async fn the_log_of_the_start_before_is_there() -> Result<()> {
    let there = Reached::new("reach3", "127.77.10.3").await?;
    let script = "echo run $(wc -l </opt/work/runs); echo run >>/opt/work/runs; [ $(wc -l </opt/work/runs) -ge 2 ] || exit 9; sleep 1000";
    let more = json!({"spec": {
        "restartPolicy": "OnFailure",
        "initContainers": [{
            "name": "first", "image": IMAGE, "command": ["/bin/sh", "-c", ": >/opt/work/runs"],
            "volumeMounts": [{"name": "work", "mountPath": "/opt/work"}],
        }],
    }});
    there.mac.run("job", script, more).await?;
    wait::until_true("the log of the second start", PATIENCE, || async {
        let output = there.kubectl(&["logs", "job", "-c", "main"]).await?;
        Ok(output.stdout == b"run 1\n")
    })
    .await?;
    ensure!(there.says(&["logs", "--previous", "job", "-c", "main"]).await? == "run 0\n");
    let none = there.kubectl(&["logs", "--previous", "job", "-c", "first"]).await?;
    ensure!(!none.status.success());
    ensure!(
        String::from_utf8_lossy(&none.stderr).contains("previous terminated container \"first\""),
        "{none:?}"
    );

    let mac = &there.mac;
    mac.switch(|switches| {
        switches.delay_ms.insert("clone".to_owned(), 10_000);
    })?;
    mac.run("slow", "true", json!({})).await?;
    until("a VM that is being made", || {
        Ok(mac.stages().iter().any(|stage| stage == "planned"))
    })
    .await?;
    let early = there.kubectl(&["logs", "slow"]).await?;
    mac.quick()?;
    ensure!(
        String::from_utf8_lossy(&early.stderr)
            .contains("container \"main\" in pod \"slow\" is waiting to start: ContainerCreating"),
        "{early:?}"
    );
    mac.until_ended("slow").await?;

    let script = "n=$(cat /opt/work/n || echo 0); echo run $n; echo $((n + 1)) >/opt/work/n; exit 9";
    mac.run("loop", script, json!({"spec": {"restartPolicy": "Always"}}))
        .await?;
    let waits = |pod: &Pod| (crate::stage::waits(pod).0 == "CrashLoopBackOff").then(|| restarts(pod))?;
    let pod = mac.until("loop", "a crash loop", |pod| waits(pod).is_some()).await?;
    let ended = waits(&pod).context("a crash loop")?;
    let said = there.says(&["logs", "--previous", "loop"]).await?;
    ensure!(said.ends_with(&format!("run {ended}\n")), "{ended} {said}");
    Ok(())
}

/// Whoever followed the log of such an image before it had left one saw nothing of it.
pub(crate) async fn the_log_of_an_image_that_starts_by_itself_is_followed_before_there_is_one() -> Result<()> {
    let there = Reached::new("reach8", "127.77.10.8").await?;
    let mac = &there.mac;
    let boot = r"
        cd '/Volumes/My Shared Files' || exit
        until [ -e v-work/go ]; do sleep 0.1; done
        sleep 1
        echo up >status/runner.log
        echo 0 >status/runner-rc
        shutdown -h now
    ";
    let boot = boot.to_owned();
    mac.control.push(
        "ghcr.io/acme/self:v1",
        &Image {
            boot,
            ..Image::default()
        },
    )?;
    let more = json!({"spec": {"containers": [{"image": "ghcr.io/acme/self:v1", "command": null}]}});
    let pod = mac.run("runner", "", more).await?;
    mac.until_running("runner").await?;
    ensure!(there.says(&["logs", "runner"]).await?.is_empty());
    let following = there.spawn(&["logs", "-f", "runner"])?;
    mac.go(&pod)?;
    let followed = tokio::time::timeout(PATIENCE, following.wait_with_output()).await??;
    ensure!(followed.stdout == b"up\n", "{followed:?}");
    mac.until_ended("runner").await?;
    Ok(())
}

/// Sessions that ended with their agent had no last word, and kubectl takes silence for success: a deployment that ran
/// `kubectl exec` went on as if its command had.
pub(crate) async fn a_command_that_is_cut_off_by_the_end_of_the_agent_is_no_success() -> Result<()> {
    let there = Reached::new("reach9", "127.77.10.9").await?;
    there.mac.run("job", "sleep 1000", json!({})).await?;
    there.mac.until_running("job").await?;
    there.says(&["logs", "job"]).await?;
    let mut exec = there.spawn(&["exec", "job", "--", "sh", "-c", "echo begun; sleep 1000"])?;
    let mut lines = BufReader::new(exec.stdout.take().context("stdout")?).lines();
    let begun = tokio::time::timeout(PATIENCE, lines.next_line()).await??;
    ensure!(begun.as_deref() == Some("begun"), "{begun:?}");
    let Reached { mac, agent, .. } = there;
    ensure!(agent.terminated().await?.success(), "{}", mac.host.log());
    let output = tokio::time::timeout(PATIENCE, exec.wait_with_output()).await??;
    ensure!(!output.status.success(), "{output:?}");
    Ok(())
}

/// Its input ends with the first caller, or goes on after each who leaves; and a container without an input refuses one. Callers
/// whose input was over stayed for as long as the container ran.
pub(crate) async fn a_container_is_attached_to_and_told_things() -> Result<()> {
    let there = Reached::new("reach4", "127.77.10.4").await?;
    let mac = &there.mac;
    let once = json!({"spec": {"containers": [{"stdin": true, "stdinOnce": true}]}});
    let pod = mac
        .run(
            "once",
            "cat >/opt/work/heard; echo heard all; until [ -e /opt/work/go ]; do sleep 0.1; done",
            once,
        )
        .await?;
    mac.until_running("once").await?;
    let mut attached = there.attached(&["attach", "-i", "once"]).await?;
    let mut stdin = attached.stdin.take().context("stdin")?;
    stdin.write_all(b"to be read").await?;
    drop(stdin);
    // Its input ends with the first caller, so it goes on and answers.
    let mut lines = BufReader::new(attached.stdout.take().context("stdout")?).lines();
    let answer = tokio::time::timeout(PATIENCE, lines.next_line()).await??;
    ensure!(answer.as_deref() == Some("heard all"), "{answer:?} {}", mac.host.log());
    ensure!(std::fs::read_to_string(mac.work(&pod).join("heard"))? == "to be read");
    // Whoever comes later was told that all was heard, though nobody listens any more.
    let mut late = there.spawn(&["attach", "-i", "once"])?;
    let mut typing = late.stdin.take().context("stdin")?;
    typing.write_all(b"too late").await?;
    let late = tokio::time::timeout(PATIENCE, late.wait_with_output()).await??;
    drop(typing);
    let said = String::from_utf8_lossy(&late.stderr);
    ensure!(!late.status.success() && said.contains("stdinOnce"), "{late:?}");
    mac.go(&pod)?;
    let ended = tokio::time::timeout(PATIENCE, attached.wait()).await??;
    ensure!(
        ended.success(),
        "an attached caller leaves when the container has ended"
    );

    let none = json!({"spec": {"containers": [{"name": "main"}]}});
    mac.run("deaf", "sleep 1000", none).await?;
    mac.until_running("deaf").await?;
    let refused = there.kubectl(&["attach", "-i", "deaf"]).await?;
    ensure!(!refused.status.success(), "{refused:?}");

    let open = json!({"spec": {"containers": [{"stdin": true}]}});
    let pod = mac.run("open", "cat >/opt/work/heard", open).await?;
    mac.until_running("open").await?;
    for word in [b"one ", b"two "] {
        let mut attached = there.attached(&["attach", "-i", "open"]).await?;
        let mut stdin = attached.stdin.take().context("stdin")?;
        stdin.write_all(word).await?;
        drop(stdin);
        let left = tokio::time::timeout(PATIENCE, attached.wait_with_output()).await??;
        ensure!(left.status.success(), "{left:?}");
    }
    until("both words", || {
        Ok(std::fs::read_to_string(mac.work(&pod).join("heard"))? == "one two ")
    })
    .await?;
    Ok(())
}

/// A shell that waits on its terminal had its input ended at once when nobody was to be attached to it.
pub(crate) async fn a_container_that_asks_for_a_terminal_has_one() -> Result<()> {
    let there = Reached::new("reach6", "127.77.10.6").await?;
    let mac = &there.mac;
    let silent = json!({"spec": {"containers": [{"tty": true}]}});
    let script = "[ -t 0 ] && [ -t 1 ] && stty size >/opt/work/size; read -r line; echo \"over: $line\"; exit 3";
    let pod = mac.run("silent", script, silent).await?;
    mac.until_running("silent").await?;
    let size = mac.work(&pod).join("size");
    until("the size of its terminal", || {
        Ok(std::fs::read_to_string(&size)? == "24 80\n")
    })
    .await?;
    let log = there.says(&["logs", "silent"]).await?;
    ensure!(log.is_empty(), "it waits for its input, which nobody ends: {log}");

    let talking =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"stdin": true, "stdinOnce": true, "tty": true}]}});
    mac.run("talking", script, talking).await?;
    mac.until_running("talking").await?;
    let mut attached = there.attached(&["attach", "-i", "talking"]).await?;
    let mut stdin = attached.stdin.take().context("stdin")?;
    stdin.write_all(b"hello\n").await?;
    let mut lines = BufReader::new(attached.stdout.take().context("stdout")?).lines();
    let mut heard = Vec::new();
    while let Some(line) = tokio::time::timeout(PATIENCE, lines.next_line()).await?? {
        heard.push(line.trim_end().to_owned());
    }
    ensure!(
        heard.iter().any(|line| line == "over: hello"),
        "{heard:?} {}",
        mac.host.log()
    );
    drop(stdin);
    let (_, ended) = mac.until_ended("talking").await?;
    ensure!(ended.exit_code == 3, "{ended:?}");
    Ok(())
}

/// All that a server answers, headers included.
async fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await??;
    Ok(answer)
}

pub(crate) async fn a_node_tells_what_it_is_and_what_its_pods_use() -> Result<()> {
    let flags = ["--node-ip=127.77.10.5", "--metrics-bind-address=127.77.10.5:29180"];
    let there = Reached::with("reach5", &flags).await?;
    let mac = &there.mac;
    mac.run("job", "while :; do :; done", json!({})).await?;
    mac.until_running("job").await?;
    let node = mac.host.nodes().get(&mac.host.node).await?;
    let status = node.status.context("a status")?;
    let addresses: Vec<_> = status
        .addresses
        .into_iter()
        .flatten()
        .map(|address| address.address)
        .collect();
    ensure!(addresses == ["127.77.10.5", mac.host.node.as_str()], "{addresses:?}");
    let port = status
        .daemon_endpoints
        .and_then(|endpoints| endpoints.kubelet_endpoint)
        .map(|endpoint| endpoint.port);
    ensure!(port == Some(10250), "{port:?}");
    let info = status.node_info.context("what it is")?;
    ensure!((info.operating_system.as_str(), info.architecture.as_str()) == ("darwin", "arm64"));
    ensure!(
        info.container_runtime_version.starts_with("tart"),
        "{}",
        info.container_runtime_version
    );
    let capacity = status.capacity.context("a capacity")?;
    for name in ["cpu", "memory", "pods", "ephemeral-storage"] {
        ensure!(capacity.contains_key(name), "{name} in {capacity:?}");
    }
    ensure!(capacity["pods"].0 == "3");

    // How its only Pod came to run.
    let metrics = get("127.77.10.5:29180", "/metrics").await?;
    for series in [
        r#"tart_kubelet_vm_boot_duration_seconds_count{pool="unknown"} "#,
        r#"tart_kubelet_pod_provision_delay_seconds_count{pool="unknown"} "#,
        r#"tart_kubelet_vm_provision_work_seconds_count{pool="unknown",path="cold"} "#,
    ] {
        let count = metrics.lines().find_map(|line| line.strip_prefix(series));
        let count: u64 = count.with_context(|| format!("{series}in {metrics}"))?.parse()?;
        ensure!(count >= 1, "{series}{count}");
    }

    // What the node says of its Pods. It is asked directly: API servers pass nothing on to a loopback address.
    let server = "--server=https://127.77.10.5:10250";
    let pods: serde_json::Value = serde_json::from_str(&there.says(&[server, "get", "--raw", "/pods"]).await?)?;
    ensure!(pods["items"][0]["metadata"]["name"] == "job", "{pods}");
    let config = there.says(&[server, "get", "--raw", "/configz"]).await?;
    let config: serde_json::Value = serde_json::from_str(&config)?;
    ensure!(
        config["kubeletconfig"]["nodeName"] == mac.host.node.as_str(),
        "{config}"
    );
    let see = async || {
        let text = there.says(&[server, "get", "--raw", "/stats/summary"]).await?;
        let summary: serde_json::Value = serde_json::from_str(&text)?;
        ensure!(
            summary["node"]["fs"]["capacityBytes"]
                .as_u64()
                .is_some_and(|size| size > 0),
            "{summary}"
        );
        Ok(summary["pods"][0]["containers"][0].clone())
    };
    let positive = |value: &serde_json::Value| value.as_u64().is_some_and(|used| used > 0);
    let seen = mac.host.until("a container that is seen to compute", see, |used| {
        positive(&used["cpu"]["usageCoreNanoSeconds"]) && positive(&used["memory"]["workingSetBytes"])
    });
    seen.await.map(drop)
}
