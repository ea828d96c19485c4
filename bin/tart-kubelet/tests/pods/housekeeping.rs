//! The host kept in order: what the Node says of it, images that come and go, a disk that fills, logs that grow.

use crate::harness::script;
use crate::lives::WAITS;
use crate::reaching::Reached;
use crate::stage::{IMAGE, Mac, PATIENCE, names, phase, until, waits};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use russet_sim_tart::Image;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

const SECOND: &str = "ghcr.io/acme/mac:v2";
/// The host is asked every second instead of every half minute.
const OFTEN: &str = "--housekeeping-interval=1";

fn often() -> [&'static str; 3] {
    ["--node-ip=127.77.9.9", "--kubelet-bind-address=0", OFTEN]
}

fn second() -> Image {
    let label = "second".to_owned();
    Image {
        label,
        ..Image::default()
    }
}

/// A condition of the Node: its status and its message.
fn said(node: &Node, kind: &str) -> Option<(String, String)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status.clone(), found.message.clone().unwrap_or_default()))
}

async fn until_node(mac: &Mac, what: &str, is: impl Fn(&Node) -> bool) -> Result<Node> {
    let node = async || Ok(mac.host.nodes().get(&mac.host.node).await?);
    mac.host.until(what, node, is).await
}

pub(crate) async fn until_said(mac: &Mac, kind: &str, status: &str, words: &str) -> Result<Node> {
    let what = format!("a Node whose {kind} is {status} because of {words:?}");
    let fits = |node: &Node| said(node, kind).is_some_and(|(is, message)| is == status && message.contains(words));
    until_node(mac, &what, fits).await
}

/// The Node says this of a condition.
fn is(node: &Node, kind: &str, status: &str) -> bool {
    said(node, kind).is_some_and(|(is, _)| is == status)
}

/// Ready was always true: a Mac without a desktop session, without `tart` or off the tailnet took every Pod and ran none.
pub(crate) async fn a_node_says_what_keeps_it_from_running_pods_and_recovers() -> Result<()> {
    let mac = Mac::new("house1").await?;
    let (launchctl, tailscale) = (mac.host.path("bin/launchctl"), mac.host.path("bin/tailscale"));
    let aqua = "echo 'gui/501 = {'; echo '    session = Aqua'";
    let tailnet = "echo 127.77.9.9";
    script(&launchctl, aqua)?;
    script(&tailscale, tailnet)?;
    let launchctl_flag = format!("--launchctl-binary={}", launchctl.display());
    let tailscale_flag = format!("--tailscale-binary={}", tailscale.display());
    let flags = ["--node-ip-source=tailscale", "--kubelet-bind-address=0", OFTEN];
    let _agent = mac.start_with(&[&flags[..], &[&launchctl_flag, &tailscale_flag]].concat())?;
    let node = until_said(&mac, "Ready", "True", "running").await?;
    for (kind, status) in [
        ("MemoryPressure", "False"),
        ("DiskPressure", "False"),
        ("PIDPressure", "False"),
        ("NetworkUnavailable", "False"),
        ("TartReady", "True"),
        ("GUISession", "True"),
        ("Tailnet", "True"),
    ] {
        let (is, message) = said(&node, kind).with_context(|| format!("{kind} of {:?}", node.status))?;
        ensure!(is == status, "{kind} is {is}: {message}");
    }

    let (tart, away) = (mac.host.path("bin/tart"), mac.host.path("bin/tart.away"));
    std::fs::rename(&tart, &away)?;
    let node = until_said(&mac, "Ready", "False", "is it installed?").await?;
    ensure!(is(&node, "TartReady", "False"));
    ensure!(is(&node, "GUISession", "True"));
    std::fs::rename(&away, &tart)?;
    until_said(&mac, "Ready", "True", "running").await?;

    let nobody = "echo 'Could not find domain for user gui: 501' >&2; exit 113";
    script(&launchctl, nobody)?;
    let node = until_said(&mac, "Ready", "False", "nobody is logged in on the host's screen").await?;
    ensure!(is(&node, "TartReady", "True"));
    ensure!(is(&node, "GUISession", "False"));
    script(&launchctl, aqua)?;
    let left = "echo 'no current Tailscale IPs; state: NeedsLogin' >&2; exit 1";
    script(&tailscale, left)?;
    let node = until_said(&mac, "NetworkUnavailable", "True", "state: NeedsLogin").await?;
    ensure!(is(&node, "Tailnet", "False"));
    until_said(&mac, "Ready", "False", "not on the tailnet").await?;
    script(&tailscale, tailnet)?;
    until_said(&mac, "Ready", "True", "running").await?;
    mac.stayed_within_its_rights()
}

/// Only Macs have the programs that know, so no Node of a test ever had one of these.
pub(crate) async fn a_node_says_that_memory_or_processes_are_short_and_recovers() -> Result<()> {
    let mac = Mac::new("house8").await?;
    let (sysctl, ps) = (mac.host.path("bin/sysctl"), mac.host.path("bin/ps"));
    let level = |level: u32| {
        let level = format!("'-n kern.memorystatus_vm_pressure_level') echo {level};;");
        let answers = format!("case \"$*\" in '-n kern.maxproc') echo 10;; {level} *) exit 1;; esac");
        script(&sysctl, &answers)
    };
    let processes = |count: u32| script(&ps, &format!("[ \"$*\" = '-A -o pid=' ] && seq {count}"));
    level(1)?;
    processes(9)?;
    let sysctl_flag = format!("--sysctl-binary={}", sysctl.display());
    let ps_flag = format!("--ps-binary={}", ps.display());
    let _agent = mac.start_with(&[&often()[..], &[&sysctl_flag, &ps_flag]].concat())?;
    until_said(&mac, "MemoryPressure", "False", "there is memory").await?;
    until_said(&mac, "PIDPressure", "False", "there is room").await?;

    level(4)?;
    let node = until_said(&mac, "MemoryPressure", "True", "critical").await?;
    ensure!(is(&node, "PIDPressure", "False"));
    mac.run("job", "true", json!({})).await?;
    let (message, _) = until_evicted(&mac, "job").await?;
    ensure!(message == rejected("MemoryPressure"), "{message}");
    processes(10)?;
    until_said(&mac, "PIDPressure", "True", "nearly as many processes").await?;
    // Programs that do not answer change nothing, however often they are asked.
    let asked = mac.host.path("asked");
    script(&sysctl, &format!("echo >>{}; exit 1", asked.display()))?;
    script(&ps, "exit 1")?;
    until("a few questions", || {
        Ok(std::fs::read(&asked).is_ok_and(|lines| lines.len() > 4))
    })
    .await?;
    mac.run("again", "true", json!({})).await?;
    let (message, _) = until_evicted(&mac, "again").await?;
    ensure!(message == rejected("MemoryPressure PIDPressure"), "{message}");

    level(2)?;
    processes(9)?;
    until_said(&mac, "MemoryPressure", "False", "there is memory").await?;
    until_said(&mac, "PIDPressure", "False", "there is room").await?;
    mac.run("fine", "true", json!({})).await?;
    mac.until_ended("fine").await?;
    mac.stayed_within_its_rights()
}

fn rejected(conditions: &str) -> String {
    format!("Pod was rejected: The node had condition: [{conditions}]. ")
}

fn goldens(node: &Node) -> Vec<String> {
    let labels = node.metadata.labels.iter().flatten();
    let golden = labels.filter(|(key, value)| key.starts_with("tuist.dev/golden-") && *value == "true");
    golden.map(|(key, _)| key.clone()).collect()
}

fn has_image(node: &Node, name: &str) -> bool {
    let images = node.status.iter().flat_map(|status| status.images.iter().flatten());
    let mut ours = images.filter(|image| image.names.iter().flatten().any(|known| known == name));
    ours.any(|image| image.size_bytes.is_some_and(|bytes| bytes > 20_000_000_000))
}

fn golden_vms(mac: &Mac) -> Vec<String> {
    let entries = std::fs::read_dir(mac.control.home().join("vms"))
        .into_iter()
        .flatten()
        .flatten();
    names(entries)
        .filter(|name| name.starts_with("tuist-golden-"))
        .collect()
}

/// Makes the agent's memory of all images a few days older. The agent must not run.
fn age(mac: &Mac) -> Result<()> {
    remember(mac, |note| {
        note["used"] = json!("2020-01-01T00:00:00Z");
        note["idle"] = json!("2020-01-01T00:00:00Z");
    })
}

/// Changes what the agent remembers of each image. It must not run.
fn remember(mac: &Mac, change: impl Fn(&mut Value)) -> Result<()> {
    let path = mac.host.path("state/images.json");
    let mut memory: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    memory.as_object_mut().context("notes")?.values_mut().for_each(change);
    Ok(std::fs::write(&path, memory.to_string())?)
}

async fn run_to_the_end(mac: &Mac, name: &str, image: &str) -> Result<()> {
    let of = json!({"spec": {"containers": [{"image": image}]}});
    mac.run(name, "exit 0", of).await?;
    mac.until_ended(name).await?;
    mac.end(name).await
}

/// The day was counted in memory, so that a host whose agent was updated daily kept every image it ever had.
pub(crate) async fn an_image_that_nobody_needed_for_a_day_goes_and_nothing_else() -> Result<()> {
    let mac = Mac::new("house2").await?;
    mac.control.push(SECOND, &second())?;
    mac.control.create("packer", &Image::default())?;
    let agent = mac.start_with(&often())?;
    run_to_the_end(&mac, "short", SECOND).await?;
    let pod = mac.runs_on("job").await?;
    let node = until_node(&mac, "a Node with both images", |node| {
        has_image(node, IMAGE) && has_image(node, SECOND) && goldens(node).len() == 2
    })
    .await?;
    ensure!(golden_vms(&mac).len() == 2, "{:?}", golden_vms(&mac));
    agent.killed().await?;
    age(&mac)?;
    let _agent = mac.start_with(&often())?;
    let after = until_node(&mac, "a Node with one image", |node| {
        has_image(node, IMAGE) && !has_image(node, SECOND) && goldens(node).len() == 1
    })
    .await?;
    ensure!(goldens(&node).contains(&goldens(&after)[0]));
    ensure!(golden_vms(&mac).len() == 1, "{:?}", golden_vms(&mac));
    let theirs = mac.control.home().join("vms/packer");
    ensure!(theirs.exists(), "a VM of another program went");
    ensure!(phase(&mac.pods().get("job").await?) == "Running");
    mac.go(&pod)?;
    mac.until_ended("job").await?;
    mac.stayed_within_its_rights()
}

/// Why it had to go, and whether that was a disruption.
fn evicted(pod: &Pod) -> Option<(String, bool)> {
    let status = pod.status.as_ref()?;
    let target = status.conditions.iter().flatten().any(|condition| {
        condition.type_ == "DisruptionTarget"
            && condition.status == "True"
            && condition.reason.as_deref() == Some("TerminationByKubelet")
    });
    (status.reason.as_deref() == Some("Evicted")).then(|| (status.message.clone().unwrap_or_default(), target))
}

async fn until_evicted(mac: &Mac, name: &str) -> Result<(String, bool)> {
    let pod = mac.until_failed(name).await?;
    evicted(&pod).with_context(|| format!("an evicted Pod: {:?}", pod.status))
}

pub(crate) async fn a_full_disk_costs_images_first_then_pods() -> Result<()> {
    let mac = Mac::new("house3").await?;
    mac.control.push(SECOND, &second())?;
    // Somebody else's VM takes 25 GB, too, and nobody can do anything about that.
    mac.control.create("packer", &Image::default())?;
    let agent = mac.start_with(&often())?;
    run_to_the_end(&mac, "short", SECOND).await?;
    mac.runs_on("job").await?;
    // What was just asked for is about to be cloned and stays, so it has to be longer ago.
    agent.killed().await?;
    age(&mac)?;
    remember(&mac, |note| note["idle"] = Value::Null)?;
    let _agent = mac.start_with(&often())?;
    until_node(&mac, "a Node with both images", |node| goldens(node).len() == 2).await?;
    // Of two images of 25 GB one has to go, and the VM of the Pod was made of the other.
    mac.switch(|switches| switches.capacity_gb = Some(80))?;
    until_node(&mac, "a Node with one image", |node| goldens(node).len() == 1).await?;
    ensure!(phase(&mac.pods().get("job").await?) == "Running");
    ensure!(said(&mac.host.registered().await?, "DiskPressure").is_some_and(|(is, _)| is == "False"));
    // Nothing is left but the image in use, and less than a tenth will be free without it.
    mac.switch(|switches| switches.capacity_gb = Some(27))?;
    let (message, disrupted) = until_evicted(&mac, "job").await?;
    ensure!(disrupted, "what a node does to a Pod is a disruption");
    ensure!(
        message.starts_with("The node was low on resource: ephemeral-storage. Threshold quantity: ")
            && message.contains("Container main was using "),
        "{message}"
    );
    until_said(&mac, "DiskPressure", "True", "less than 10 %").await?;
    let tainted = |node: &Node| {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        taints
            .into_iter()
            .any(|taint| taint.key == "node.kubernetes.io/disk-pressure")
    };
    until_node(&mac, "a Node that takes no more Pods", tainted).await?;
    // Nor does one that comes all the same: whoever binds it may not have heard, and it tolerates everything.
    mac.run("late", "true", json!({})).await?;
    let (message, disrupted) = until_evicted(&mac, "late").await?;
    ensure!(message == rejected("DiskPressure"), "{message}");
    ensure!(!disrupted, "what never ran is not disrupted");
    ensure!(mac.vms().is_empty(), "{:?}", mac.vms());
    mac.switch(|switches| switches.capacity_gb = Some(1000))?;
    until_said(&mac, "DiskPressure", "False", "at least 10 %").await?;
    until_node(&mac, "a Node that takes Pods", |node| !tainted(node)).await?;
    mac.stayed_within_its_rights()
}

pub(crate) async fn an_image_that_does_not_fit_is_said_in_words_and_fits_when_there_is_room() -> Result<()> {
    let mac = Mac::new("house4").await?;
    mac.control.push(SECOND, &second())?;
    let _agent = mac.start_with(&often())?;
    mac.runs_on("job").await?;
    mac.switch(|switches| switches.capacity_gb = Some(40))?;
    let more = json!({"spec": {"containers": [{"image": SECOND}]}});
    mac.run("late", &format!("{WAITS} 0"), more).await?;
    mac.until("late", "a Pod whose image does not fit", |pod| {
        waits(pod).1.contains("disk is full")
    })
    .await?;
    ensure!(phase(&mac.pods().get("job").await?) == "Running");
    ensure!(golden_vms(&mac).len() == 1, "a pull that failed left something");
    mac.switch(|switches| switches.capacity_gb = Some(1000))?;
    mac.until_running("late").await?;
    mac.stayed_within_its_rights()
}

pub(crate) async fn an_image_is_there_before_a_pod_asks_for_it() -> Result<()> {
    let mac = Mac::new("house5").await?;
    let _agent = mac.start_with(&often())?;
    mac.host.registered().await?;
    let annotate = async |text: &str| -> Result<()> {
        let patch = json!({"metadata": {"annotations": {"tuist.dev/prepull": text}}});
        let (nodes, params) = (mac.host.nodes(), PatchParams::default());
        nodes.patch(&mac.host.node, &params, &Patch::Merge(patch)).await?;
        Ok(())
    };
    annotate(&format!("{IMAGE},{SECOND}")).await?;
    until_node(&mac, "a Node with the image", |node| {
        has_image(node, IMAGE) && goldens(node).len() == 1
    })
    .await?;
    // The other one comes as soon as somebody pushes it.
    mac.control.push(SECOND, &second())?;
    until_node(&mac, "a Node with both images", |node| {
        has_image(node, SECOND) && goldens(node).len() == 2
    })
    .await?;
    // Nobody can be asked any more, and nobody has to be.
    mac.switch(|switches| switches.pull = Some(russet_sim_tart::PullFault::Status(500)))?;
    run_to_the_end(&mac, "short", SECOND).await?;
    mac.stayed_within_its_rights()
}

pub(crate) async fn a_volume_that_outgrows_its_limit_ends_its_pod() -> Result<()> {
    let mac = Mac::new("house6").await?;
    let _agent = mac.start_with(&often())?;
    let more = json!({"spec": {
        "containers": [{"volumeMounts": [{}, {"name": "cache", "mountPath": "/opt/cache"}]}],
        "volumes": [{}, {"name": "cache", "emptyDir": {"sizeLimit": "1Mi"}}],
    }});
    let script = format!("head -c 3000000 /dev/zero >/opt/cache/large; {WAITS} 0");
    mac.run("job", &script, more).await?;
    let (message, disrupted) = until_evicted(&mac, "job").await?;
    ensure!(!disrupted, "what a Pod does to itself is none");
    let expected = "Usage of EmptyDir volume \"cache\" exceeds the limit \"1Mi\". ";
    ensure!(message == expected, "{message}");
    mac.delete_all(&["job"]).await
}

/// The numbers of lines such as `line 17`.
fn numbers(text: &str) -> Vec<u32> {
    let number = |line: &str| line.strip_prefix("line ")?.trim().parse().ok();
    text.lines().filter_map(number).collect()
}

fn follows(numbers: &[u32]) -> bool {
    numbers.is_sorted_by(|one, next| one + 1 == *next)
}

pub(crate) async fn a_log_is_cut_to_size_and_read_and_followed_across_its_files() -> Result<()> {
    let flags = [
        "--node-ip=127.77.10.7",
        "--container-log-max-size=8k",
        "--container-log-max-files=3",
    ];
    let there = Reached::with("house7", &flags).await?;
    let count = "i=$1; while [ $i -lt $2 ]; do echo line $i; i=$((i+1)); done";
    let script = format!(
        "count() {{ {count}; }}; count 0 3000; until [ -e /opt/work/go ]; do sleep 0.1; done; \
         n=3000; while [ $n -lt 4200 ]; do count $n $((n+60)); n=$((n+60)); sleep 0.3; done"
    );
    let pod = there.mac.run("job", &script, json!({})).await?;
    there.mac.until_running("job").await?;
    let all = async || Ok(numbers(&there.says(&["logs", "job"]).await?));
    let whole = there
        .mac
        .host
        .until("the whole log", all, |all| all.last() == Some(&2999));
    let all = whole.await?;
    ensure!(follows(&all), "lines are missing or doubled");
    let count = all.len();
    ensure!(count > 700 && count < 2999, "{count} lines of three files");
    let tail = numbers(&there.says(&["logs", "--tail=900", "job"]).await?);
    ensure!(tail == all[all.len() - 900..], "{:?}", tail.first());
    let mut kubectl = there.spawn(&["logs", "-f", "--tail=10", "job"])?;
    let mut lines = BufReader::new(kubectl.stdout.take().context("stdout")?).lines();
    let mut heard = Vec::new();
    let mut gone = false;
    let reading = async {
        while let Some(line) = lines.next_line().await? {
            heard.extend(numbers(&line));
            if !gone {
                there.mac.go(&pod)?;
                gone = true;
            }
        }
        Ok::<(), anyhow::Error>(())
    };
    let read = tokio::time::timeout(PATIENCE, reading).await;
    read.context("the log has no end")??;
    ensure!(heard.first() == Some(&2990), "{:?}", heard.first());
    ensure!(heard.last() == Some(&4199), "{:?}", heard.last());
    ensure!(follows(&heard), "lines are missing or doubled over a rotation");
    let uid = pod.metadata.uid.unwrap_or_default();
    let folder = there.mac.host.path("state/pods").join(uid);
    let files = std::fs::read_dir(folder.join("containers/main/0"))?.flatten();
    let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("log"));
    let sizes: Vec<u64> = logs
        .map(|file| file.metadata().map_or(0, |found| found.len()))
        .collect();
    ensure!(sizes.iter().all(|size| *size < 32_000), "{sizes:?}");
    Ok(())
}
