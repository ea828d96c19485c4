//! A Mac with the emulated `tart`, and the hands that reach into it.

use crate::harness::{Agent, Host};
use crate::lives::WAITS;
use anyhow::{Context, Result, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{
    ConfigMap, ContainerStateTerminated, ContainerStatus, Event, Namespace, Pod, Secret, ServiceAccount,
};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt as _};
use russet_sim_tart::{Control, Image, Switches};
use russet_testkit::overlay::merge;
use russet_testkit::wait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Guests are processes of a machine that does many other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);
pub(crate) const IMAGE: &str = "ghcr.io/acme/mac:v1";
/// A Secret that every Pod has in its environment; when all is over its value must be nowhere.
const CANARY: &str = "canary";

/// An object of a namespace.
pub(crate) trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Serialize + Debug
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Serialize + Debug
{
}

pub(crate) struct Mac {
    pub(crate) host: Host,
    pub(crate) control: Control,
    pub(crate) namespace: String,
}

impl Mac {
    /// A Mac whose image is in the registry. `name` has six letters and is nobody else's.
    pub(crate) async fn new(name: &str) -> Result<Self> {
        Self::on(Host::invited(name).await?, name).await
    }

    /// One of a host that is there already.
    pub(crate) async fn on(host: Host, name: &str) -> Result<Self> {
        let control = Control::new(host.path("tart-home"))?;
        Control::install(&std::env::current_exe()?, &host.path("bin/tart"))?;
        control.push(IMAGE, &Image::default())?;
        // Whatever the disk of this machine is like.
        control.switch(|switches| switches.capacity_gb = Some(1000))?;
        let namespace = format!("pods-{name}");
        let namespaces: Api<Namespace> = Api::all(host.client.clone());
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let params = PatchParams::apply("test").force();
        namespaces.patch(&namespace, &params, &Patch::Apply(object)).await?;
        let mac = Self {
            host,
            control,
            namespace,
        };
        mac.settle().await?;
        Ok(mac)
    }

    /// A new one whose agent runs.
    pub(crate) async fn started(name: &str) -> Result<(Self, Agent)> {
        let mac = Self::new(name).await?;
        let agent = mac.start()?;
        Ok((mac, agent))
    }

    pub(crate) fn start(&self) -> Result<Agent> {
        self.start_with(&["--node-ip=127.77.9.9", "--kubelet-bind-address=0"])
    }

    pub(crate) fn start_with(&self, more: &[&str]) -> Result<Agent> {
        let tart = format!("--tart-binary={}", self.host.path("bin/tart").display());
        let home = format!("--tart-home={}", self.control.home().display());
        let disk = format!("--disk-report={}", self.control.disk_report().display());
        let mut flags = vec!["--max-pods=3", "--log-filter=info,russet_tart_kubelet=debug"];
        flags.extend([tart.as_str(), home.as_str(), disk.as_str()]);
        // A flag is given once.
        if !more.iter().any(|flag| flag.starts_with("--metrics-bind-address")) {
            flags.push("--metrics-bind-address=0");
        }
        flags.extend(more);
        self.host.start_without_address(&flags)
    }

    pub(crate) fn switch(&self, change: impl FnOnce(&mut Switches)) -> Result<()> {
        Ok(self.control.switch(change)?)
    }

    /// Commands of this name take their time from now on.
    pub(crate) fn slow(&self, command: &str) -> Result<()> {
        self.switch(|switches| {
            switches.delay_ms.insert(command.to_owned(), 3000);
        })
    }

    pub(crate) fn quick(&self) -> Result<()> {
        self.switch(|switches| switches.delay_ms.clear())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        self.all()
    }

    /// Objects of the namespace that the Pods are in.
    pub(crate) fn all<K: Object>(&self) -> Api<K> {
        Api::namespaced(self.host.client.clone(), &self.namespace)
    }

    pub(crate) async fn make<K: Object>(&self, object: Value) -> Result<K> {
        let object = serde_json::from_value(object)?;
        Ok(self.all().create(&PostParams::default(), &object).await?)
    }

    pub(crate) async fn change<K: Object>(&self, name: &str, change: Value) -> Result<()> {
        let params = PatchParams::default();
        self.all::<K>().patch(name, &params, &Patch::Strategic(change)).await?;
        Ok(())
    }

    /// Waits until a new namespace has all that its Pods need, and gives it the Secret that they have in their environment.
    pub(crate) async fn settle(&self) -> Result<()> {
        let canary = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": CANARY}, "stringData": {"CANARY": self.canary()},
        });
        let params = PatchParams::apply("test").force();
        let secrets = self.all::<Secret>();
        secrets.patch(CANARY, &params, &Patch::Apply(canary)).await?;
        let (accounts, maps) = (self.all::<ServiceAccount>(), self.all::<ConfigMap>());
        wait::until_true("a ServiceAccount", PATIENCE, || async {
            Ok(accounts.get_opt("default").await?.is_some() && maps.get_opt("kube-root-ca.crt").await?.is_some())
        })
        .await
    }

    /// A Pod of one container that runs a script, bound to this Mac.
    pub(crate) async fn run(&self, name: &str, script: &str, more: Value) -> Result<Pod> {
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.host.node,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 20,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "main", "image": IMAGE, "command": ["/bin/sh", "-c", script],
                    "envFrom": [{"secretRef": {"name": CANARY}}],
                    "volumeMounts": [{"name": "work", "mountPath": "/opt/work"}],
                }],
                "volumes": [{"name": "work", "emptyDir": {}}],
            },
        });
        merge(&mut pod, more);
        let pod: Pod = serde_json::from_value(pod)?;
        Ok(self.pods().create(&PostParams::default(), &pod).await?)
    }

    /// Waits until it is so of a Pod.
    pub(crate) async fn until(&self, name: &str, what: &str, is: impl Fn(&Pod) -> bool) -> Result<Pod> {
        let pod = async || Ok(self.pods().get(name).await?);
        self.host.until(what, pod, is).await
    }

    pub(crate) async fn until_running(&self, name: &str) -> Result<Pod> {
        let runs = |pod: &Pod| phase(pod) == "Running" && is(pod, "Ready");
        self.until(name, "a running Pod", runs).await
    }

    pub(crate) async fn until_ended(&self, name: &str) -> Result<(Pod, ContainerStateTerminated)> {
        let over = |pod: &Pod| matches!(phase(pod).as_str(), "Succeeded" | "Failed");
        let pod = self.until(name, "the end of a Pod", over).await?;
        let ended = terminated(&pod).context("a container that ended")?;
        Ok((pod, ended))
    }

    /// Waits for the end of a Pod, which must be this one.
    pub(crate) async fn until_end(&self, name: &str, end: &str, code: i32) -> Result<Pod> {
        let (pod, exit) = self.until_ended(name).await?;
        ensure!(
            (phase(&pod).as_str(), exit.exit_code) == (end, code),
            "{name}: {exit:?}"
        );
        Ok(pod)
    }

    pub(crate) async fn until_code(&self, name: &str, code: i32) -> Result<()> {
        let (_, exit) = self.until_ended(name).await?;
        ensure!(exit.exit_code == code, "{name}: {exit:?}");
        Ok(())
    }

    /// Waits for a Pod that the node has refused or evicted.
    pub(crate) async fn until_failed(&self, name: &str) -> Result<Pod> {
        self.until(name, "a Pod that has failed", |pod| phase(pod) == "Failed")
            .await
    }

    /// Waits until the reason and the message of a container that waits are so.
    pub(crate) async fn until_waits(&self, name: &str, what: &str, are: impl Fn(&str, &str) -> bool) -> Result<Pod> {
        let so = |pod: &Pod| {
            let (reason, message) = waits(pod);
            are(&reason, &message)
        };
        self.until(name, what, so).await
    }

    /// A Pod that runs until it is let go.
    pub(crate) async fn runs_on(&self, name: &str) -> Result<Pod> {
        let pod = self.run(name, &format!("{WAITS} 0"), json!({})).await?;
        self.until_running(name).await?;
        Ok(pod)
    }

    /// Lets go of a script that waits for `/opt/work/go`.
    pub(crate) fn go(&self, pod: &Pod) -> Result<()> {
        Ok(std::fs::write(self.work(pod).join("go"), "")?)
    }

    pub(crate) fn work(&self, pod: &Pod) -> PathBuf {
        let uid = pod.uid().unwrap_or_default();
        self.host.path("state/pods").join(uid).join("volumes/work")
    }

    /// The folders that the starts of a Pod's container have, by their numbers.
    pub(crate) fn starts(&self, pod: &Pod) -> Vec<String> {
        let uid = pod.uid().unwrap_or_default();
        let folder = self.host.path("state/pods").join(uid).join("containers/main");
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        names(entries).collect()
    }

    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        self.pods().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Deletes a Pod, and waits until it is gone.
    pub(crate) async fn end(&self, name: &str) -> Result<()> {
        self.delete(name).await?;
        self.until_gone(name).await
    }

    pub(crate) async fn until_gone(&self, name: &str) -> Result<()> {
        let pod = async || Ok(self.pods().get_opt(name).await?);
        let gone = self.host.until(format!("{name} is gone"), pod, Option::is_none);
        gone.await.map(drop)
    }

    /// Deletes Pods, and waits until nothing of any is left.
    pub(crate) async fn delete_all(&self, names: &[&str]) -> Result<()> {
        for name in names {
            self.delete(name).await?;
        }
        for name in names {
            self.until_gone(name).await?;
        }
        self.until_empty().await
    }

    /// The stage that the ledger has of the VM of the only Pod.
    pub(crate) fn stages(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.host.path("state/vms"));
        let mut found: Vec<String> = files
            .into_iter()
            .flatten()
            .flatten()
            .filter(|file| file.file_name().to_string_lossy().ends_with(".json"))
            .filter_map(|file| std::fs::read(file.path()).ok())
            .filter_map(|bytes| serde_json::from_slice::<Value>(&bytes).ok())
            .filter_map(|entry| Some(entry["stage"]["is"].as_str()?.to_owned()))
            .collect();
        found.sort();
        found
    }

    /// Waits for a stage, or for one after it: on a busy machine it may be over before it is seen.
    pub(crate) async fn until_stage(&self, stage: &str) -> Result<()> {
        let order = ["planned", "cloned", "running", "stopped", "deleted"];
        let rank = |stage: &str| order.iter().position(|known| *known == stage);
        let come = |stages: &Vec<String>| stages.iter().any(|found| rank(found) >= rank(stage));
        let what = format!("a VM that is {stage}");
        self.host.until(what, async || Ok(self.stages()), come).await.map(drop)
    }

    /// Names of the VMs of Pods on the disk.
    pub(crate) fn vms(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.control.home().join("vms"))
            .into_iter()
            .flatten()
            .flatten();
        names(entries).filter(|name| name.starts_with("rvm_")).collect()
    }

    /// A word that must be told to nobody but to containers.
    pub(crate) fn canary(&self) -> String {
        format!("canary-{}-7d1f0c", self.namespace)
    }

    /// Where on the host a secret word is: in files, and in the arguments of processes.
    pub(crate) fn leaks(&self, word: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.host.dir.path().to_owned()];
        // Disks of VMs are of the size that they claim, and nothing of ours is in them.
        let small = |path: &Path| std::fs::metadata(path).is_ok_and(|known| known.len() < 8 << 20);
        let word = word.as_bytes();
        let holds = |path: &Path| small(path) && std::fs::read(path).is_ok_and(|bytes| contains(&bytes, word));
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                // Links lead out of here, and sockets and pipes hold nothing.
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                    Ok(kind) if kind.is_file() && holds(&entry.path()) => found.push(entry.path()),
                    _ => {}
                }
            }
        }
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let lines = processes.map(|entry| entry.path().join("cmdline"));
        found.extend(lines.filter(|path| holds(path)));
        found
    }

    /// Nobody was told a secret word in an event.
    pub(crate) async fn no_event_tells(&self, word: &str) -> Result<()> {
        for event in self.all::<Event>().list(&ListParams::default()).await?.items {
            ensure!(!json!(event).to_string().contains(word), "{event:?}");
        }
        Ok(())
    }

    /// What was told of a Pod: the reasons of its events, in the order of the alphabet.
    pub(crate) async fn told(&self, name: &str) -> Result<Vec<String>> {
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let all = self.all::<Event>().list(&about).await?.items;
        let mut reasons: Vec<String> = all.into_iter().filter_map(|event| event.reason).collect();
        reasons.sort();
        Ok(reasons)
    }

    /// Waits until something was told of a Pod so many times.
    pub(crate) async fn until_told(&self, name: &str, reason: &str, times: usize) -> Result<()> {
        let what = format!("{reason} of {name}, {times} times");
        let enough = |told: &Vec<String>| told.iter().filter(|told| *told == reason).count() >= times;
        self.host
            .until(&what, async || self.told(name).await, enough)
            .await
            .map(drop)
    }

    /// No event has this reason.
    pub(crate) async fn nobody_was_told(&self, reason: &str) -> Result<()> {
        for event in self.all::<Event>().list(&ListParams::default()).await?.items {
            ensure!(event.reason.as_deref() != Some(reason), "{event:?}");
        }
        Ok(())
    }

    /// Waits until a file of the Pod's work folder says what is wanted.
    pub(crate) async fn until_work(&self, pod: &Pod, file: &str, is: impl Fn(&str) -> bool) -> Result<()> {
        let path = self.work(pod).join(file);
        let see = async || Ok(std::fs::read_to_string(&path).ok());
        let fits = |said: &Option<String>| said.as_deref().is_some_and(&is);
        self.host.until(format!("{file} of a Pod"), see, fits).await.map(drop)
    }

    /// Waits until a file of the Pod's work folder is there.
    pub(crate) async fn until_there(&self, pod: &Pod, file: &str) -> Result<()> {
        self.until_work(pod, file, |_| true).await
    }

    /// How often the container of a Pod began.
    pub(crate) fn runs(&self, pod: &Pod) -> usize {
        let text = std::fs::read_to_string(self.work(pod).join("runs")).unwrap_or_default();
        text.lines().count()
    }

    /// Takes the finalizer away that keeps a Pod for its last status to be read.
    pub(crate) async fn let_go(&self, name: &str) -> Result<()> {
        let none = json!({"metadata": {"finalizers": null}});
        self.change::<Pod>(name, none).await
    }

    /// Nothing of any Pod is left on the host, and no secret anywhere.
    pub(crate) async fn until_empty(&self) -> Result<()> {
        self.until_nothing_is_left().await?;
        let leaks = self.leaks(&self.canary());
        ensure!(leaks.is_empty(), "a secret was left in {leaks:?}");
        self.no_event_tells(&self.canary()).await
    }

    async fn until_nothing_is_left(&self) -> Result<()> {
        let count = |folder: &str| std::fs::read_dir(self.host.path(folder)).map_or(0, Iterator::count);
        let see = async || {
            let folders = count("state/pods") + count("state/trash");
            Ok((self.vms(), self.stages(), folders, self.control.running()?))
        };
        let empty = self
            .host
            .until("an empty host", see, |(vms, stages, folders, running)| {
                vms.is_empty() && stages.is_empty() && *folders == 0 && running.is_empty()
            });
        empty.await.map(drop)
    }

    /// The node did nothing that it may not do.
    pub(crate) fn stayed_within_its_rights(&self) -> Result<()> {
        let overreach = self.host.cluster.audit()?.overreach(&self.host.node_user())?;
        ensure!(overreach.is_empty(), "{overreach:#?}");
        Ok(())
    }
}

/// Waits until something on this machine is so.
pub(crate) async fn until(what: &str, is: impl Fn() -> Result<bool>) -> Result<()> {
    wait::until_true(what, PATIENCE, || async { is() }).await
}

impl Drop for Mac {
    fn drop(&mut self) {
        let _ = self.control.reboot();
    }
}

pub(crate) fn names(entries: impl Iterator<Item = DirEntry>) -> impl Iterator<Item = String> {
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

pub(crate) fn phase(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    status.and_then(|status| status.phase.clone()).unwrap_or_default()
}

pub(crate) fn is(pod: &Pod, condition: &str) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut all = conditions.into_iter().flatten();
    all.any(|found| found.type_ == condition && found.status == "True")
}

/// What is told of the first container.
pub(crate) fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

pub(crate) fn terminated(pod: &Pod) -> Option<ContainerStateTerminated> {
    container(pod)?.state.as_ref()?.terminated.clone()
}

/// How the first container ended the time before.
pub(crate) fn ended_before(pod: &Pod) -> Option<ContainerStateTerminated> {
    container(pod)?.last_state.as_ref()?.terminated.clone()
}

pub(crate) fn restarts(pod: &Pod) -> Option<i32> {
    Some(container(pod)?.restart_count)
}

/// Why the first container waits: the word and the sentence.
pub(crate) fn waits(pod: &Pod) -> (String, String) {
    let waiting = container(pod).and_then(|container| container.state.as_ref()?.waiting.clone());
    let waiting = waiting.unwrap_or_default();
    (waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default())
}
