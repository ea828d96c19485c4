//! What the Node and its VMs use. What a VM uses is asked in its guest: on a Mac its memory belongs to a process of macOS that
//! nobody can tell apart from others.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use russet_kubelet_api::Refusal;
use russet_kubelet_api::stats::{Container, Cpu, Memory, Node, Pod, PodReference, Summary};
use russet_vm::{ExecRequest, VmName, collect};

use crate::host::ask;
use crate::pods::directory::{Handle, Instance};
use crate::pods::machine::Life;

/// A measurement is good for this long: scrapers come every 15 s.
const GOOD_FOR: Duration = Duration::from_secs(10);
/// How long a guest may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
const MOST: u64 = 1024 * 1024;

/// What was measured, and when.
#[derive(Debug, Default)]
pub(super) struct Measured {
    last: tokio::sync::Mutex<Option<(tokio::time::Instant, Summary)>>,
    counters: Mutex<BTreeMap<String, Counter>>,
}

/// CPU time of processes that come and go. A process that ends takes its time out of what `ps` shows, so what each has used since it was
/// last seen is added up instead. What began and ended between two looks is not seen.
#[derive(Debug, Default)]
struct Counter {
    centiseconds: u64,
    processes: BTreeMap<u32, u64>,
}

impl Counter {
    fn add(&mut self, processes: BTreeMap<u32, u64>) -> u64 {
        for (pid, time) in &processes {
            // Less than before is another process under the same number.
            let before = self.processes.get(pid).filter(|before| *before <= time);
            let more = time.saturating_sub(before.copied().unwrap_or(0));
            self.centiseconds = self.centiseconds.saturating_add(more);
        }
        self.processes = processes;
        self.centiseconds
    }
}

/// What `ps` is asked.
const COLUMNS: &str = "pid=,rss=,time=";

impl Measured {
    pub(super) async fn summary(&self, handle: &Handle) -> Result<Summary, Refusal> {
        let mut last = self.last.lock().await;
        if let Some((at, summary)) = &*last
            && at.elapsed() < GOOD_FOR
        {
            return Ok(summary.clone());
        }
        let summary = self.measure(handle).await?;
        *last = Some((tokio::time::Instant::now(), summary.clone()));
        Ok(summary)
    }

    async fn measure(&self, handle: &Handle) -> Result<Summary, Refusal> {
        let now = Timestamp::now();
        let words = ["-axo", COLUMNS];
        let text = ask::ask(Path::new("/bin/ps"), &words, ANSWER)
            .await
            .map_err(super::failed)?;
        let (cpu, memory) = self.used("node", &text, now);
        let mut pods = Vec::new();
        for shown in handle.directory.list() {
            let mut containers = Vec::new();
            for (name, instance) in &shown.instances {
                let Life::Running { since, .. } = *instance.life.borrow() else {
                    continue;
                };
                let Some(text) = inside(handle, instance).await else {
                    continue;
                };
                let (cpu, memory) = self.used(&instance.vm.to_string(), &text, now);
                containers.push(Container {
                    name: name.clone(),
                    start_time: since,
                    cpu: Some(cpu),
                    memory: Some(memory),
                    rootfs: None,
                    logs: None,
                });
            }
            if containers.is_empty() {
                continue;
            }
            let start = containers.iter().map(|container| container.start_time).min();
            let status = shown.pod.status.as_ref();
            pods.push(Pod {
                pod_ref: PodReference {
                    name: shown.pod.name_any(),
                    namespace: shown.pod.namespace().unwrap_or_default(),
                    uid: shown.pod.uid().unwrap_or_default(),
                },
                start_time: status
                    .and_then(|status| status.start_time.as_ref())
                    .map(|time| time.0)
                    .or(start)
                    .unwrap_or(now),
                cpu: Some(total_cpu(&containers, now)),
                memory: Some(total_memory(&containers, now)),
                containers,
                network: None,
                ephemeral_storage: None,
            });
        }
        Ok(Summary {
            node: Node {
                node_name: handle.node.clone(),
                start_time: now,
                cpu: Some(cpu),
                memory: Some(memory),
                network: None,
                fs: None,
            },
            pods,
        })
    }

    fn used(&self, whose: &str, text: &str, now: Timestamp) -> (Cpu, Memory) {
        let (kilobytes, processes) = read(text);
        let mut counters = self.counters.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let used = counters.entry(whose.to_owned()).or_default().add(processes);
        (
            cpu(used.saturating_mul(10_000_000), now),
            memory(kilobytes.saturating_mul(1024), now),
        )
    }
}

fn cpu(nanoseconds: u64, time: Timestamp) -> Cpu {
    Cpu {
        time,
        usage_nano_cores: None,
        usage_core_nano_seconds: Some(nanoseconds),
    }
}

fn memory(bytes: u64, time: Timestamp) -> Memory {
    Memory {
        time,
        available_bytes: None,
        usage_bytes: Some(bytes),
        working_set_bytes: Some(bytes),
        rss_bytes: Some(bytes),
        page_faults: None,
        major_page_faults: None,
    }
}

fn total_cpu(containers: &[Container], now: Timestamp) -> Cpu {
    let parts = containers
        .iter()
        .filter_map(|container| container.cpu.as_ref()?.usage_core_nano_seconds);
    cpu(parts.sum(), now)
}

fn total_memory(containers: &[Container], now: Timestamp) -> Memory {
    let parts = containers
        .iter()
        .filter_map(|container| container.memory.as_ref()?.working_set_bytes);
    memory(parts.sum(), now)
}

/// What `ps` says in a guest.
async fn inside(handle: &Handle, instance: &Instance) -> Option<String> {
    let request = ExecRequest {
        words: ["/bin/ps", "-axo", COLUMNS].map(str::to_owned).to_vec(),
        ..ExecRequest::default()
    };
    let name = VmName::from(instance.vm.clone());
    let asked = async { collect(handle.runtime.exec(&name, request).await?, b"", MOST).await };
    let outcome = tokio::time::timeout(ANSWER, asked).await.ok()?.ok()?;
    (outcome.code == 0).then(|| String::from_utf8_lossy(&outcome.stdout).into_owned())
}

/// What `ps` printed: the sum of kilobytes, and each process with its hundredths of a second.
fn read(text: &str) -> (u64, BTreeMap<u32, u64>) {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (pid, kilobytes) = (words.next()?.parse::<u32>().ok()?, words.next()?.parse::<u64>().ok()?);
        Some((pid, kilobytes, centiseconds(words.next()?)?))
    };
    let mut memory: u64 = 0;
    let mut processes = BTreeMap::new();
    for (pid, kilobytes, time) in text.lines().filter_map(line) {
        memory = memory.saturating_add(kilobytes);
        processes.insert(pid, time);
    }
    (memory, processes)
}

/// `[[days-]hours:]minutes:seconds[.hundredths]`, as both kinds of `ps` print it.
fn centiseconds(text: &str) -> Option<u64> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (days.parse::<u64>().ok()?, rest),
        None => (0, text),
    };
    let (whole, part) = rest.split_once('.').unwrap_or((rest, "0"));
    let mut seconds = days.checked_mul(24)?;
    let parts: Vec<u64> = whole.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let (last, before) = parts.split_last()?;
    let (minutes, hours) = before.split_last()?;
    seconds = seconds
        .checked_add(hours.first().copied().unwrap_or(0))?
        .checked_mul(60)?;
    seconds = seconds.checked_add(*minutes)?.checked_mul(60)?.checked_add(*last)?;
    seconds.checked_mul(100)?.checked_add(part.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_ps_are_understood() {
        assert_eq!(
            read(" 1  1024   0:01.50\n 7 2048  10:00.00\n"),
            (3072, [(1, 150), (7, 60_000)].into())
        );
        assert_eq!(
            read(" 1 100 00:00:02\n 2 50 1-00:00:01\n"),
            (150, [(1, 200), (2, 8_640_100)].into())
        );
        assert_eq!(read("nonsense\n 5\n 5 6\n"), (0, BTreeMap::new()));
    }

    /// The counter stood at the most that was ever shown at once: after a long build had ended, a VM used nothing, as far as
    /// `kubectl top` could tell, until the next had used as much.
    #[test]
    fn what_a_process_used_stays_counted_when_it_ended_and_those_after_it_count() {
        let measured = Measured::default();
        let seconds = |text: &str| {
            let cpu = measured.used("vm", text, Timestamp::UNIX_EPOCH).0;
            cpu.usage_core_nano_seconds.unwrap() / 1_000_000_000
        };
        assert_eq!(seconds("1 1 0:02.00\n8 1 10:00.00"), 602);
        assert_eq!(seconds("1 1 0:03.00"), 603, "it ended");
        assert_eq!(seconds("1 1 0:03.00\n9 1 0:05.00"), 608, "another began");
        assert_eq!(seconds("1 1 0:03.00\n9 1 0:01.00"), 609, "and another under its number");
        assert_eq!(seconds(""), 609, "a counter never goes back");
    }
}
