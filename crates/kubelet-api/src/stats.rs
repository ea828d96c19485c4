//! What the node and its Pods use: one measurement, rendered as `/stats/summary` and as `/metrics/resource`.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Serialize;

/// A measurement of CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    /// When.
    pub time: Timestamp,
    /// Use right now, in billionths of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_nano_cores: Option<u64>,
    /// Use since the start, in nanoseconds of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_core_nano_seconds: Option<u64>,
}

impl Cpu {
    /// Nanoseconds, if any were used.
    fn used(&self) -> Option<u64> {
        self.usage_core_nano_seconds.filter(|used| *used > 0)
    }
}

/// A measurement of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// When.
    pub time: Timestamp,
    /// Left to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// Used, caches included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_bytes: Option<u64>,
    /// Used and not easily given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_set_bytes: Option<u64>,
    /// Anonymous memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// Minor faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_faults: Option<u64>,
    /// Major faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major_page_faults: Option<u64>,
}

impl Memory {
    /// Bytes, if any are used.
    fn used(&self) -> Option<u64> {
        self.working_set_bytes.filter(|used| *used > 0)
    }
}

/// A measurement of a file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fs {
    /// When.
    pub time: Timestamp,
    /// Left to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// Its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Inodes left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_free: Option<u64>,
    /// Inodes there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// Inodes used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_used: Option<u64>,
}

/// A measurement of the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// When.
    pub time: Timestamp,
    /// The main interface.
    pub name: String,
    /// Received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_bytes: Option<u64>,
    /// Errors in receiving.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_errors: Option<u64>,
    /// Sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_bytes: Option<u64>,
    /// Errors in sending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_errors: Option<u64>,
}

/// Of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name.
    pub node_name: String,
    /// When it booted.
    pub start_time: Timestamp,
    /// CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs: Option<Fs>,
}

/// Of one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Its name.
    pub name: String,
    /// When it started.
    pub start_time: Timestamp,
    /// CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Its root file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<Fs>,
    /// Its logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs: Option<Fs>,
}

impl Container {
    fn is_measured(&self) -> bool {
        self.cpu.as_ref().and_then(Cpu::used).is_some() && self.memory.as_ref().and_then(Memory::used).is_some()
    }
}

/// Which Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodReference {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
}

/// Of one Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Which.
    pub pod_ref: PodReference,
    /// When it started.
    pub start_time: Timestamp,
    /// Its containers.
    pub containers: Vec<Container>,
    /// CPU of all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory of all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Disk.
    #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
    pub ephemeral_storage: Option<Fs>,
}

/// The whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The node.
    pub node: Node,
    /// Its Pods.
    pub pods: Vec<Pod>,
}

impl Summary {
    /// `?only_cpu_and_memory=true`.
    pub(crate) fn only_cpu_and_memory(mut self) -> Self {
        (self.node.network, self.node.fs) = (None, None);
        for pod in &mut self.pods {
            (pod.network, pod.ephemeral_storage) = (None, None);
            for container in &mut pod.containers {
                (container.rootfs, container.logs) = (None, None);
            }
        }
        self
    }

    /// The Prometheus text that metrics-server reads for `kubectl top`. It looks for `container="` and the like, so labels are
    /// written without spaces; sample times are milliseconds. It drops a whole Pod for one container of which it finds something but
    /// no CPU or no memory, and a zero is nothing to it: such a container is left out altogether.
    pub(crate) fn resource_metrics(&self) -> String {
        let mut page = Page::default();
        let pods: Vec<(String, &Pod)> = self.pods.iter().map(|pod| (labels(&pod.pod_ref, None), pod)).collect();
        let containers: Vec<(String, &Container)> = self
            .pods
            .iter()
            .flat_map(|pod| {
                let of = move |container: &Container| labels(&pod.pod_ref, Some(&container.name));
                let measured = pod.containers.iter().filter(|container| container.is_measured());
                measured.map(move |container| (of(container), container))
            })
            .collect();
        page.used("node", [("", self.node.cpu.as_ref(), self.node.memory.as_ref())]);
        page.used(
            "pod",
            pods.iter()
                .map(|(labels, pod)| (labels.as_str(), pod.cpu.as_ref(), pod.memory.as_ref())),
        );
        page.used(
            "container",
            containers
                .iter()
                .map(|(labels, of)| (labels.as_str(), of.cpu.as_ref(), of.memory.as_ref())),
        );
        page.family(
            "container_start_time_seconds",
            "gauge",
            "Start time of the container since unix epoch in seconds",
        );
        for (labels, container) in &containers {
            let start = seconds(container.start_time.as_nanosecond());
            page.line("container_start_time_seconds", labels, &start, None);
        }
        page.family(
            "resource_scrape_error",
            "gauge",
            "1 if there was an error while getting container metrics, 0 otherwise",
        );
        page.line("resource_scrape_error", "", "0", None);
        page.0
    }
}

fn labels(pod: &PodReference, container: Option<&str>) -> String {
    let (namespace, name) = (&pod.namespace, &pod.name);
    match container {
        Some(container) => format!("{{container=\"{container}\",namespace=\"{namespace}\",pod=\"{name}\"}}"),
        None => format!("{{namespace=\"{namespace}\",pod=\"{name}\"}}"),
    }
}

/// Exact, where a float would round.
fn seconds(nanoseconds: i128) -> String {
    const SECOND: i128 = 1_000_000_000;
    format!("{}.{:09}", nanoseconds / SECOND, nanoseconds % SECOND)
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: &str, at: Option<Timestamp>) {
        let _ = write!(self.0, "{name}{labels} {value}");
        if let Some(at) = at {
            let _ = write!(self.0, " {}", at.as_millisecond());
        }
        self.0.push('\n');
    }

    /// What each of a kind uses. What was not measured is left out, and so is a zero, which nothing that runs uses.
    fn used<'a>(
        &mut self,
        kind: &str,
        each: impl IntoIterator<Item = (&'a str, Option<&'a Cpu>, Option<&'a Memory>)> + Clone,
    ) {
        let name = format!("{kind}_cpu_usage_seconds_total");
        let help = format!("Cumulative cpu time consumed by the {kind} in core-seconds");
        self.family(&name, "counter", &help);
        for (labels, cpu, _) in each.clone() {
            if let Some((cpu, used)) = cpu.and_then(|cpu| Some((cpu, cpu.used()?))) {
                self.line(&name, labels, &seconds(used.into()), Some(cpu.time));
            }
        }
        let name = format!("{kind}_memory_working_set_bytes");
        self.family(&name, "gauge", &format!("Current working set of the {kind} in bytes"));
        for (labels, _, memory) in each {
            if let Some((memory, used)) = memory.and_then(|memory| Some((memory, memory.used()?))) {
                self.line(&name, labels, &used.to_string(), Some(memory.time));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        let time = Timestamp::from_millisecond(1_794_733_941_625).unwrap();
        let cpu = |used| {
            Some(Cpu {
                time,
                usage_nano_cores: Some(5),
                usage_core_nano_seconds: Some(used),
            })
        };
        let memory = |used| {
            Some(Memory {
                time,
                available_bytes: None,
                usage_bytes: None,
                working_set_bytes: Some(used),
                rss_bytes: None,
                page_faults: None,
                major_page_faults: None,
            })
        };
        let fs = Fs {
            time,
            available_bytes: Some(1),
            capacity_bytes: Some(2),
            used_bytes: Some(1),
            inodes_free: None,
            inodes: None,
            inodes_used: None,
        };
        Summary {
            node: Node {
                node_name: "mac1".to_owned(),
                start_time: time,
                cpu: cpu(7_274_180_000_001),
                memory: memory(3_600_000_000),
                network: None,
                fs: Some(fs.clone()),
            },
            pods: vec![Pod {
                pod_ref: PodReference {
                    name: "p1".to_owned(),
                    namespace: "default".to_owned(),
                    uid: "u".to_owned(),
                },
                start_time: time,
                containers: vec![Container {
                    name: "c".to_owned(),
                    start_time: time,
                    cpu: cpu(160_000_000),
                    memory: memory(1_070_000),
                    rootfs: Some(fs.clone()),
                    logs: None,
                }],
                cpu: cpu(160_000_000),
                memory: None,
                network: None,
                ephemeral_storage: Some(fs),
            }],
        }
    }

    #[test]
    fn metrics_server_finds_the_lines_it_looks_for() {
        let page = summary().resource_metrics();
        let lines: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "node_cpu_usage_seconds_total 7274.180000001 1794733941625",
                "node_memory_working_set_bytes 3600000000 1794733941625",
                "pod_cpu_usage_seconds_total{namespace=\"default\",pod=\"p1\"} 0.160000000 1794733941625",
                "container_cpu_usage_seconds_total{container=\"c\",namespace=\"default\",pod=\"p1\"} 0.160000000 1794733941625",
                "container_memory_working_set_bytes{container=\"c\",namespace=\"default\",pod=\"p1\"} 1070000 1794733941625",
                "container_start_time_seconds{container=\"c\",namespace=\"default\",pod=\"p1\"} 1794733941.625000000",
                "resource_scrape_error 0",
            ]
        );
    }

    /// A VM that has just started has used no CPU that `ps` would show. Its zero was printed all the same, and metrics-server dropped
    /// the Pod with everything else that runs in it.
    #[test]
    fn a_container_that_has_used_nothing_does_not_hide_its_pod() {
        let mut summary = summary();
        let [pod] = &mut summary.pods[..] else {
            panic!("one Pod")
        };
        let mut newborn = pod.containers[0].clone();
        newborn.name = "newborn".to_owned();
        newborn.cpu.as_mut().unwrap().usage_core_nano_seconds = Some(0);
        let mut unmeasured = pod.containers[0].clone();
        unmeasured.name = "unmeasured".to_owned();
        unmeasured.memory = None;
        pod.containers.extend([newborn, unmeasured]);
        pod.memory = pod.containers[0].memory.clone();
        pod.memory.as_mut().unwrap().working_set_bytes = Some(0);
        let page = summary.resource_metrics();
        assert!(!page.contains("newborn") && !page.contains("unmeasured"), "{page}");
        assert!(!page.contains("\npod_memory_working_set_bytes{"), "{page}");
        for name in [
            "container_cpu_usage_seconds_total",
            "container_memory_working_set_bytes",
            "container_start_time_seconds",
        ] {
            assert!(page.contains(&format!("\n{name}{{container=\"c\",")), "{page}");
        }
    }

    #[test]
    fn the_summary_has_the_keys_of_a_stock_kubelet() {
        let whole = serde_json::to_value(summary()).unwrap();
        assert_eq!(whole["node"]["nodeName"], "mac1");
        assert_eq!(whole["node"]["cpu"]["usageCoreNanoSeconds"], 7_274_180_000_001_u64);
        assert_eq!(whole["pods"][0]["podRef"]["uid"], "u");
        assert_eq!(whole["pods"][0]["ephemeral-storage"]["usedBytes"], 1);
        let lean = serde_json::to_value(summary().only_cpu_and_memory()).unwrap();
        assert!(lean["node"].get("fs").is_none());
        assert!(lean["pods"][0].get("ephemeral-storage").is_none());
        assert!(lean["pods"][0]["containers"][0].get("rootfs").is_none());
    }
}
