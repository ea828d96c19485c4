//! What the Node and its VMs use. What a VM uses is asked in its guest: on a Mac its memory belongs to a process of macOS that
//! nobody can tell apart from others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use kube::ResourceExt as _;
use russet_kubelet_api::Refusal;
use russet_kubelet_api::stats::{Container, Cpu, Fs, Memory, Node, Pod, PodReference, Summary};
use russet_vm::{ExecRequest, Runtime, VmName, collect};

use crate::host::{Gauge, ask};
use crate::pods::directory::{Handle, Instance, Shown};
use crate::pods::machine::Life;

/// A measurement is good for this long: scrapers come every 15 s.
const GOOD_FOR: Duration = Duration::from_secs(10);
/// How long a guest, or the host, may take to answer. Scrapers wait for 10 s, and all are asked at once.
const ANSWER: Duration = Duration::from_secs(3);
const MOST: u64 = 1024 * 1024;
/// Whose counter the host's is.
const NODE: &str = "node";

/// What was measured, and when.
#[derive(Debug)]
pub(super) struct Measured {
    /// Since when there is somebody who measures: counters begin then.
    since: Timestamp,
    disk: Gauge,
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
    pub(super) fn new(since: Timestamp, disk: Gauge) -> Self {
        Self {
            since,
            disk,
            last: tokio::sync::Mutex::default(),
            counters: Mutex::default(),
        }
    }

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
        let all = handle.directory.list();
        let (text, said) = tokio::join!(
            ask::ask(Path::new("/bin/ps"), &words, ANSWER),
            guests(handle.runtime.as_ref(), &all)
        );
        self.keep(&all);
        let (cpu, memory) = self.used(NODE, &text.map_err(super::failed)?, now);
        let pods = all.iter().filter_map(|shown| self.pod(shown, &said, now)).collect();
        Ok(Summary {
            node: Node {
                node_name: handle.node.clone(),
                start_time: self.since,
                cpu: Some(cpu),
                memory: Some(memory),
                network: None,
                fs: self.fs(now),
            },
            pods,
        })
    }

    /// What a Pod uses, as far as its guests have said so.
    fn pod(&self, shown: &Shown, said: &BTreeMap<String, Said>, now: Timestamp) -> Option<Pod> {
        let mut containers = Vec::new();
        for (name, instance) in &shown.instances {
            let whose = instance.vm.to_string();
            let Some(Said { since, text }) = said.get(&whose) else {
                continue;
            };
            let (cpu, memory) = self.used(&whose, text, now);
            containers.push(Container {
                name: name.clone(),
                start_time: *since,
                cpu: Some(cpu),
                memory: Some(memory),
                rootfs: None,
                logs: None,
            });
        }
        let first = containers.iter().map(|container| container.start_time).min()?;
        let started = shown.pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        Some(Pod {
            pod_ref: PodReference {
                name: shown.pod.name_any(),
                namespace: shown.pod.namespace().unwrap_or_default(),
                uid: shown.pod.uid().unwrap_or_default(),
            },
            start_time: started.map_or(first, |time| time.0),
            cpu: Some(total_cpu(&containers, now)),
            memory: Some(total_memory(&containers, now)),
            containers,
            network: None,
            ephemeral_storage: None,
        })
    }

    /// The disk of virtual machines.
    fn fs(&self, time: Timestamp) -> Option<Fs> {
        let disk = self.disk.look()?;
        Some(Fs {
            time,
            available_bytes: Some(disk.free),
            capacity_bytes: Some(disk.total),
            used_bytes: Some(disk.total.saturating_sub(disk.free)),
            inodes_free: None,
            inodes: None,
            inodes_used: None,
        })
    }

    fn counters(&self) -> MutexGuard<'_, BTreeMap<String, Counter>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the VMs that are gone. One that is there and gave no answer keeps its count: a counter never goes back.
    fn keep(&self, all: &[Shown]) {
        let there: BTreeSet<String> = all
            .iter()
            .flat_map(|shown| shown.instances.values())
            .map(|instance| instance.vm.to_string())
            .collect();
        self.counters()
            .retain(|whose, _| whose == NODE || there.contains(whose));
    }

    fn used(&self, whose: &str, text: &str, now: Timestamp) -> (Cpu, Memory) {
        let (kilobytes, processes) = read(text);
        let used = self.counters().entry(whose.to_owned()).or_default().add(processes);
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

/// What a guest said of itself.
struct Said {
    /// Since when its container runs.
    since: Timestamp,
    text: String,
}

/// What the guests that run say, by their VM; all are asked at once.
async fn guests(runtime: &dyn Runtime, all: &[Shown]) -> BTreeMap<String, Said> {
    let mut asked = Vec::new();
    for instance in all.iter().flat_map(|shown| shown.instances.values()) {
        if let Life::Running { since, .. } = *instance.life.borrow() {
            asked.push(inside(runtime, instance, since));
        }
    }
    join_all(asked).await.into_iter().flatten().collect()
}

/// What `ps` says in a guest.
async fn inside(runtime: &dyn Runtime, instance: &Instance, since: Timestamp) -> Option<(String, Said)> {
    let request = ExecRequest {
        words: ["/bin/ps", "-axo", COLUMNS].map(str::to_owned).to_vec(),
        ..ExecRequest::default()
    };
    let name = VmName::from(instance.vm.clone());
    let asked = async { collect(runtime.exec(&name, request).await?, b"", MOST).await };
    let outcome = tokio::time::timeout(ANSWER, asked).await.ok()?.ok()?;
    let text = (outcome.code == 0).then(|| String::from_utf8_lossy(&outcome.stdout).into_owned())?;
    Some((name.to_string(), Said { since, text }))
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
    use crate::ledger::Ledger;
    use crate::pods::directory::Directory;
    use crate::pods::folder::Folders;
    use crate::pods::lock::Lock;
    use russet_vm::{ImageRef, Launch, PodVm, Pull, Source, Synthetic, synthetic};
    use std::sync::Arc;
    use tokio::sync::watch;

    fn measured() -> Measured {
        Measured::new(Timestamp::UNIX_EPOCH, Gauge::new(Path::new("/"), None))
    }

    fn vm(attempt: u32) -> PodVm {
        PodVm::new("ci", "job", "main", "0b5d7f3c", attempt).unwrap()
    }

    /// A Pod whose container runs in this VM.
    fn running(vm: PodVm) -> Shown {
        let life = Life::Running {
            since: Timestamp::UNIX_EPOCH,
            address: None,
        };
        let instance = Instance {
            vm,
            life: watch::channel(life).1,
        };
        Shown {
            pod: Arc::default(),
            instances: [("main".to_owned(), instance)].into(),
        }
    }

    #[test]
    fn both_kinds_of_ps_are_understood() {
        let found = read(" 1  1024   0:01.50\n 7 2048  10:00.00\n");
        assert_eq!(found, (3072, [(1, 150), (7, 60_000)].into()));
        let found = read(" 1 100 00:00:02\n 2 50 1-00:00:01\n");
        assert_eq!(found, (150, [(1, 200), (2, 8_640_100)].into()));
        assert_eq!(read("nonsense\n 5\n 5 6\n"), (0, BTreeMap::new()));
    }

    /// The counter stood at the most that was ever shown at once: after a long build had ended, a VM used nothing, as far as
    /// `kubectl top` could tell, until the next had used as much.
    #[test]
    fn what_a_process_used_stays_counted_when_it_ended_and_those_after_it_count() {
        let measured = measured();
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

    /// An agent that runs for months sees tens of thousands of VMs.
    #[test]
    fn counters_of_vms_that_are_gone_go_too() {
        let measured = measured();
        let (old, new) = (vm(0).to_string(), vm(1).to_string());
        for whose in [NODE, old.as_str(), new.as_str()] {
            measured.used(whose, "1 1 0:02.00", Timestamp::UNIX_EPOCH);
        }
        measured.keep(&[running(vm(1))]);
        let left: Vec<String> = measured.counters().keys().cloned().collect();
        assert_eq!(left, [NODE.to_owned(), new]);
    }

    /// Each scrape said that the Node had come up just then, and that nothing was known of its disk.
    #[tokio::test]
    async fn a_node_has_been_there_since_its_agent_has() {
        let dir = tempfile::tempdir().unwrap();
        let handle = Handle {
            node: "mac".to_owned(),
            directory: Directory::default(),
            ledger: Ledger::open(dir.path().join("vms")).unwrap(),
            folders: Folders::new(dir.path()),
            runtime: Arc::new(Synthetic::new(synthetic::Host::new(synthetic::Settings::default()))),
            _lock: Arc::new(Lock::take(dir.path(), Duration::ZERO).unwrap()),
        };
        let node = measured().summary(&handle).await.unwrap().node;
        assert_eq!(node.start_time, Timestamp::UNIX_EPOCH);
        let fs = node.fs.unwrap();
        assert!(fs.capacity_bytes >= fs.available_bytes, "{fs:?}");
        assert!(fs.used_bytes.is_some_and(|used| used > 0), "{fs:?}");
    }

    /// Guests were asked one after the other: three that hung took longer together than any scraper waits, and nothing was told of
    /// the others either.
    #[tokio::test(start_paused = true)]
    async fn guests_that_give_no_answer_hold_up_nobody_for_longer_than_one_of_them_does() {
        let host = synthetic::Host::new(synthetic::Settings {
            vm_limit: 4,
            script: Arc::new(synthetic::Plain {
                other: ANSWER * 100,
                ..synthetic::Plain::default()
            }),
            ..synthetic::Settings::default()
        });
        let runtime = Synthetic::new(host.clone());
        let image = ImageRef::parse("ghcr.io/acme/mac:v1").unwrap();
        host.publish(&image, "a Mac").unwrap();
        let digest = runtime.pull(&image, Pull::default()).await.unwrap();
        let mut all = Vec::new();
        for attempt in 0..4 {
            let name = VmName::from(vm(attempt));
            let source = Source::Image(image.at(digest.clone()));
            runtime.clone_vm(&source, &name).await.unwrap();
            runtime.start(&name, &Launch::default()).await.unwrap();
            all.push(running(vm(attempt)));
        }
        let begun = tokio::time::Instant::now();
        assert!(guests(&runtime, &all).await.is_empty());
        assert!(begun.elapsed() >= ANSWER, "they were asked");
        assert!(begun.elapsed() < ANSWER * 2, "{:?}", begun.elapsed());
    }
}
