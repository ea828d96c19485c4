//! What Pods go through when nothing goes wrong but they themselves.

use crate::stage::{Mac, container, ended_before, is, phase, restarts, terminated, until, waits};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use russet_sim_tart::{Image, PullFault};
use serde_json::json;

/// Waits to be let go, and ends as it is told.
pub(crate) const WAITS: &str = "echo started >>/opt/work/runs; until [ -e /opt/work/go ]; do sleep 0.1; done; exit ";

pub(crate) async fn a_pod_becomes_a_vm_and_leaves_nothing_behind() -> Result<()> {
    let mac = Mac::new("lives1").await?;
    mac.control.create("packer", &Image::default())?;
    let _agent = mac.start()?;
    let pod = mac.run("job", &format!("echo hello; {WAITS} 0"), json!({})).await?;
    let running = mac.until_running("job").await?;
    let container = container(&running).cloned().context("a container")?;
    let status = running.status.context("a status")?;
    ensure!(status.pod_ip.is_some_and(|ip| ip.starts_with("127.64.")));
    ensure!(status.host_ip.as_deref() == Some("127.77.9.9"));
    ensure!(
        container
            .container_id
            .context("an id")?
            .starts_with("tart://rvm_pods-lives1_job_main_")
    );
    ensure!(container.image_id.contains("@sha256:"), "{}", container.image_id);
    ensure!(mac.control.running()?.len() == 1);
    mac.go(&pod)?;
    let (ended, exit) = mac.until_ended("job").await?;
    ensure!(phase(&ended) == "Succeeded", "{:?}", ended.status);
    ensure!((exit.exit_code, exit.reason.as_deref()) == (0, Some("Completed")));
    until("the VM is deleted", || Ok(mac.vms().is_empty())).await?;
    mac.delete_all(&["job"]).await?;
    ensure!(
        mac.control.home().join("vms/packer").exists(),
        "somebody else's VM is not ours to touch"
    );
    mac.stayed_within_its_rights()
}

pub(crate) async fn a_container_gets_its_environment_and_volumes_and_its_exit_code_is_true() -> Result<()> {
    let (mac, _agent) = Mac::started("lives2").await?;
    let map = json!({"metadata": {"name": "conf"}, "data": {"key": "value"}});
    mac.make::<ConfigMap>(map).await?;
    let secret = json!({"metadata": {"name": "hush"}, "stringData": {"word": "it's $HOME"}});
    mac.make::<Secret>(secret).await?;
    let script = r#"
        [ "$WORD" = "it's \$HOME" ] || exit 11
        [ "$NODE" = mac-lives2 ] || exit 12
        [ "$(cat /etc/conf/key)" = value ] || exit 13
        [ -s /var/run/secrets/kubernetes.io/serviceaccount/token ] || exit 14
        [ "$(cat /var/run/secrets/kubernetes.io/serviceaccount/namespace)" = pods-lives2 ] || exit 15
        [ "$KUBERNETES_SERVICE_PORT" = 443 ] || exit 16
        pwd | grep -q /opt/work || exit 17
        [ "$DISK" -gt 0 ] || exit 18
        echo "all was there" >/opt/last-words
        exit 42
    "#;
    let more = json!({"spec": {
        "containers": [{
            "env": [
                {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "hush", "key": "word"}}},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "DISK", "valueFrom": {"resourceFieldRef": {"resource": "limits.ephemeral-storage", "divisor": "1Gi"}}},
            ],
            "workingDir": "/opt/work",
            "terminationMessagePath": "/opt/last-words",
            "volumeMounts": [{}, {"name": "conf", "mountPath": "/etc/conf"}],
        }],
        "volumes": [{}, {"name": "conf", "configMap": {"name": "conf"}}],
    }});
    mac.run("job", script, more).await?;
    let (pod, exit) = mac.until_ended("job").await?;
    ensure!(phase(&pod) == "Failed");
    ensure!(exit.exit_code == 42, "{exit:?}");
    ensure!(exit.message.as_deref() == Some("all was there\n"), "{exit:?}");
    let log = std::fs::read_to_string(mac.host.path("log"))?;
    ensure!(!log.contains("it's $HOME"), "a secret is in the log");
    mac.delete("job").await?;
    mac.until_empty().await?;
    mac.stayed_within_its_rights()
}

pub(crate) async fn a_pod_that_is_deleted_has_its_grace_and_is_gone() -> Result<()> {
    let (mac, _agent) = Mac::started("lives3").await?;
    let script =
        "trap 'echo told >>/opt/work/told; exit 0' TERM; echo ready >/opt/work/up; while :; do sleep 0.1; done";
    let pod = mac
        .run(
            "job",
            script,
            json!({"metadata": {"finalizers": ["test.russet.dev/look"]}}),
        )
        .await?;
    mac.until_running("job").await?;
    mac.until_there(&pod, "up").await?;
    mac.delete("job").await?;
    // The finalizer keeps the object, so that its last status can be read.
    let (pod, exit) = mac.until_ended("job").await?;
    ensure!(exit.exit_code == 0, "it was told and ended by itself: {exit:?}");
    ensure!(phase(&pod) == "Succeeded");
    mac.let_go("job").await?;
    mac.until_gone("job").await?;
    mac.until_empty().await
}

pub(crate) async fn a_container_that_fails_is_started_again() -> Result<()> {
    let (mac, _agent) = Mac::started("lives4").await?;
    let script = "echo run >>/opt/work/runs; [ $(wc -l </opt/work/runs) -ge 2 ] || exit 9; until [ -e /opt/work/go ]; do sleep 0.1; done";
    let pod = mac
        .run("job", script, json!({"spec": {"restartPolicy": "OnFailure"}}))
        .await?;
    let restarted = |pod: &Pod| restarts(pod) == Some(1) && is(pod, "Ready");
    let again = mac.until("job", "a second start", restarted).await?;
    ensure!(ended_before(&again).context("an end before")?.exit_code == 9);
    // The restart was told of as well, although in the same words.
    for reason in ["Created", "Started"] {
        mac.until_told("job", reason, 2).await?;
    }
    mac.go(&pod)?;
    let (pod, _) = mac.until_ended("job").await?;
    ensure!(phase(&pod) == "Succeeded");
    Ok(())
}

/// Each job once asked for the Node, the Services and the certificate of the API server, and its status was written six times: at
/// twenty Pods a second that was most of what the API server of a thousand Macs did.
pub(crate) async fn a_job_after_another_asks_for_nothing_that_is_known_and_tells_only_what_matters() -> Result<()> {
    let (mac, _agent) = Mac::started("sparse").await?;
    for name in ["first", "second"] {
        mac.run(name, "true", json!({})).await?;
        mac.until_ended(name).await?;
        mac.end(name).await?;
    }
    let audit = mac.host.cluster.audit()?;
    let user = mac.host.node_user();
    let entries = audit.of_user(&user)?;
    let asked = |verb: &str, resource: &str, name: &str| {
        let of = |entry: &&russet_testkit::audit::Entry| entry.verb == verb && entry.object().resource == resource;
        let about = entries
            .iter()
            .filter(of)
            .filter(|entry| entry.request_uri.contains(name));
        about.filter(|entry| entry.code() == 200).count()
    };
    for (verb, resource, name) in [("list", "services", ""), ("list", "configmaps", "kube-root-ca.crt")] {
        let times = asked(verb, resource, name);
        ensure!(times == 1, "{times} times: {verb} {resource} {name}");
    }
    // Before it has joined an agent looks whether there is such a Node.
    let looks = asked("get", "nodes", "");
    ensure!(looks <= 1, "the Node was asked for {looks} times");
    let written = audit.writes_per_object(&user, "pods")?;
    for name in ["first", "second"] {
        let pod = format!("{}/{name}", mac.namespace);
        let times = written.get(&pod).copied().unwrap_or_default();
        // Seen, runs, ended; on a slow machine also that its volumes are there; and its deletion.
        ensure!((3..=5).contains(&times), "{times} writes about {pod}");
    }
    // As many events as a stock kubelet has, and not one more: each is a request.
    for (name, wanted) in [
        ("first", vec!["Created", "Pulled", "Pulling", "Started"]),
        ("second", vec!["Created", "Pulled", "Started"]),
    ] {
        mac.until_told(name, "Started", 1).await?;
        let told = mac.told(name).await?;
        ensure!(told == wanted, "{name}: {told:?}");
    }
    mac.stayed_within_its_rights()
}

/// macOS allows two. (incident third-vm)
pub(crate) async fn a_third_vm_is_refused_in_words() -> Result<()> {
    let (mac, _agent) = Mac::started("lives5").await?;
    let first = mac.run("one", &format!("{WAITS} 0"), json!({})).await?;
    mac.run("two", &format!("{WAITS} 0"), json!({})).await?;
    mac.until_running("one").await?;
    mac.until_running("two").await?;
    mac.run("three", "true", json!({})).await?;
    let refused = mac.until_failed("three").await?;
    ensure!(terminated(&refused).is_none());
    let status = refused.status.context("a status")?;
    ensure!(status.reason.as_deref() == Some("OutOfVMs"), "{status:?}");
    ensure!(
        status
            .message
            .is_some_and(|message| message.starts_with("Pod was rejected: "))
    );
    ensure!(mac.control.running()?.len() == 2);
    mac.go(&first)?;
    mac.until_ended("one").await?;
    mac.runs_on("four").await?;
    ensure!(mac.control.running()?.len() == 2);
    Ok(())
}

/// The Pod waits for this image, and says so.
pub(crate) fn lacks_image(pod: &Pod, image: &str) -> bool {
    let (reason, message) = waits(pod);
    ["ErrImagePull", "ImagePullBackOff"].contains(&reason.as_str()) && message.contains(image)
}

pub(crate) async fn an_image_that_is_not_there_is_said_in_words() -> Result<()> {
    let (mac, _agent) = Mac::started("lives6").await?;
    mac.run(
        "job",
        "true",
        json!({"spec": {"containers": [{"image": "ghcr.io/acme/none:v9"}]}}),
    )
    .await?;
    mac.until("job", "words about the image", |pod| {
        lacks_image(pod, "ghcr.io/acme/none:v9")
    })
    .await?;
    for reason in ["Pulling", "Failed", "BackOff"] {
        mac.until_told("job", reason, 1).await?;
    }
    mac.delete_all(&["job"]).await
}

/// One worker for all was held up for twenty minutes by each pull. (incident worker-blocked-by-pull)
pub(crate) async fn a_pull_that_hangs_holds_up_nobody_else() -> Result<()> {
    let (mac, _agent) = Mac::started("lives7").await?;
    let first = mac.runs_on("first").await?;
    mac.control.push("ghcr.io/acme/other:v1", &Image::default())?;
    mac.switch(|switches| switches.pull = Some(PullFault::Stall))?;
    let other = json!({"spec": {"containers": [{"image": "ghcr.io/acme/other:v1"}]}});
    mac.run("hangs", "true", other).await?;
    mac.until("hangs", "a Pod that waits", |pod| container(pod).is_some())
        .await?;
    mac.go(&first)?;
    let (ended, _) = mac.until_ended("first").await?;
    ensure!(phase(&ended) == "Succeeded");
    mac.runs_on("second").await?;
    mac.delete_all(&["hangs", "first", "second"]).await
}

pub(crate) async fn a_pod_is_ready_when_its_probe_says_so_and_restarted_when_it_is_dead() -> Result<()> {
    let (mac, _agent) = Mac::started("lives8").await?;
    let script = "echo run >>/opt/work/runs; while :; do sleep 0.1; done";
    let probe =
        |path: &str| json!({"exec": {"command": ["test", "-e", path]}, "periodSeconds": 1, "timeoutSeconds": 60});
    let mut liveness = probe("/opt/work/alive");
    liveness["failureThreshold"] = json!(1);
    let pod = mac
        .run(
            "job",
            script,
            json!({"spec": {
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 2,
                "containers": [{
                    "startupProbe": {"exec": {"command": ["test", "-e", "/opt/work/up"]}, "periodSeconds": 1, "timeoutSeconds": 60, "failureThreshold": 1000},
                    "readinessProbe": probe("/opt/work/ready"),
                    "livenessProbe": liveness,
                }],
            }}),
        )
        .await?;
    let touch = |name: &str| std::fs::write(mac.work(&pod).join(name), "");
    mac.until("job", "a container that runs", |pod| phase(pod) == "Running")
        .await?;
    touch("alive")?;
    touch("up")?;
    let started = |pod: &Pod| container(pod).is_some_and(|status| status.started == Some(true));
    let up = mac.until("job", "a container that is up", started).await?;
    ensure!(!is(&up, "Ready"), "nothing said that it is ready");
    touch("ready")?;
    mac.until("job", "a Pod that is ready", |pod| is(pod, "Ready")).await?;
    std::fs::remove_file(mac.work(&pod).join("alive"))?;
    mac.until("job", "a restart", |pod| restarts(pod) >= Some(1)).await?;
    touch("alive")?;
    mac.delete_all(&["job"]).await
}

/// A Pod that keeps its port for itself by a `hostPort`, as the processors of test results do, had two programs of its Node fight
/// for that port. When the wrong one won, everybody reached all of the guest's port.
pub(crate) async fn metrics_of_a_guest_are_read_at_the_node_and_nothing_else_of_it() -> Result<()> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (mac, _agent) = Mac::started("lives9").await?;
    let script = r#"exec python3 -c '
import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"guest_up 1\n")
http.server.HTTPServer((os.environ["GUEST_ADDRESS"], 29091), H).serve_forever()
'"#;
    let more = json!({
        "metadata": {"annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "29091"}},
        "spec": {"containers": [{"ports": [{"containerPort": 29091, "hostPort": 29091}]}]},
    });
    mac.run("job", script, more).await?;
    let at_node = |pod: &Pod| pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()) == Some("127.77.9.9");
    mac.until("job", "a Pod that is reached at its Node", at_node).await?;
    let asked = async |path: &str| -> Result<String> {
        let mut stream = tokio::net::TcpStream::connect("127.77.9.9:29091").await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    let metrics = async || asked("/metrics").await;
    mac.host
        .until("metrics", metrics, |answer| answer.contains("guest_up 1"))
        .await?;
    let other = asked("/other").await?;
    ensure!(other.starts_with("HTTP/1.1 404"), "{other}");
    mac.nobody_was_told("HostPortConflict").await?;

    // The port is the Pod's all the same.
    let port = json!({"spec": {"containers": [{"ports": [{"containerPort": 1, "hostPort": 29091}]}]}});
    mac.run("rival", "true", port).await?;
    let refused = mac.until_failed("rival").await?;
    ensure!(refused.status.and_then(|status| status.reason).as_deref() == Some("NodePorts"));
    Ok(())
}
