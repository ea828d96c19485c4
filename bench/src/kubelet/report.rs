//! The figures of both as Markdown. Pure.

use super::turns::{Pair, Turns};
use crate::fleet::audit::is_write;
use crate::fleet::table::{self, FREE, Head, Row, at_most};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

const MIB: f64 = 1_048_576.0;
const MEMORY_MIB: f64 = 25.0;
const CPU_PERCENT: f64 = 0.5;
const BINARY_MIB: f64 = 20.0;

/// Whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Ours,
    Stock,
}

/// One process that was left alone.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) memory: u64,
    pub(super) cpu_percent: f64,
    pub(super) requests: BTreeMap<String, usize>,
}

/// Both that were left alone.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) wall: Duration,
    pub(super) ours: Rest,
    pub(super) stock: Rest,
}

/// Everything that was measured.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) head: Head,
    /// The size of the program without symbols.
    pub(super) binary: u64,
    pub(super) empty: Idle,
    pub(super) busy: Idle,
    pub(super) pods: u32,
    /// By side, the requests of short Pods and how long all of them took.
    pub(super) per_pod: BTreeMap<&'static str, (BTreeMap<String, usize>, Duration)>,
    pub(super) mib: u32,
    pub(super) turns: Turns,
}

impl Report {
    pub(super) fn markdown(&self) -> String {
        let mut out = String::new();
        self.head.write(&mut out, "One agent beside a stock kubelet");
        table::write(&mut out, self.rows());
        let _ = writeln!(
            out,
            "`kubectl exec` and `cp` are times of the whole command, of which `kubectl` itself takes {} for the smallest question. \
             Medians; both sides took turns.\n",
            milliseconds(median(&self.turns.kubectl)),
        );
        for (name, (requests, _)) in &self.per_pod {
            let counts = list(requests, f64::from(self.pods.max(1)));
            let _ = writeln!(out, "- {name}, requests per Pod: {counts}.");
        }
        for (name, rest) in [("ours", &self.busy.ours), ("stock", &self.busy.stock)] {
            let counts = list(&rest.requests, self.busy.wall.as_secs_f64() / 60.0);
            let _ = writeln!(out, "- {name}, requests a minute at rest with two Pods: {counts}.");
        }
        out
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = vec![size(self.binary)];
        for (name, idle) in [("no Pods", &self.empty), ("two Pods", &self.busy)] {
            rows.extend(at_rest(name, idle));
        }
        let count = f64::from(self.pods.max(1));
        let sides = (self.per_pod.get("ours"), self.per_pod.get("stock"));
        if let (Some((ours, ours_took)), Some((stock, stock_took))) = sides {
            let (ours, stock) = (total(ours) / count, total(stock) / count);
            let what = "requests per short Pod, stock kubelet's in brackets";
            let goal = at_most(ours, stock, "the stock kubelet's");
            rows.push((what.into(), format!("{ours:.1} ({stock:.1})"), goal));
            let (ours, stock) = (ours_took.as_secs_f64() / count, stock_took.as_secs_f64() / count);
            rows.push((
                "— time from made to gone".into(),
                format!("{ours:.1} s ({stock:.1} s)"),
                FREE,
            ));
        }
        rows.push(compared("`kubectl exec`, round trip", &self.turns.exec, milliseconds));
        let rate = |took: Duration| format!("{:.0} MiB/s", f64::from(self.mib) / took.as_secs_f64());
        let cp = format!("`kubectl cp` of {} MiB", self.mib);
        rows.push(compared(&format!("{cp} into it"), &self.turns.up, rate));
        rows.push(compared(&format!("{cp} out of it"), &self.turns.down, rate));
        rows
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn size(bytes: u64) -> Row {
    let mib = bytes as f64 / MIB;
    let goal = at_most(mib, BINARY_MIB, "20 MiB");
    ("the program, stripped".into(), format!("{mib:.1} MiB"), goal)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn at_rest(name: &str, idle: &Idle) -> Vec<Row> {
    let (ours, stock) = (&idle.ours, &idle.stock);
    let memory = |rest: &Rest| rest.memory as f64 / MIB;
    let minutes = idle.wall.as_secs_f64() / 60.0;
    let asked = |rest: &Rest| total(&rest.requests) / minutes;
    let written = |rest: &Rest| {
        let writes = rest.requests.iter().filter(|(what, _)| is_write(what));
        writes.map(|(_, count)| *count as f64).sum::<f64>() / minutes
    };
    let like_stock = |what: &str, ours: f64, stock: f64| {
        let goal = at_most(ours, stock + 0.5, "the stock kubelet's");
        (format!("— {what} a minute"), format!("{ours:.1} ({stock:.1})"), goal)
    };
    let what = format!("at rest, {name}: memory (RSS), stock kubelet's in brackets");
    let both = format!("{:.1} MiB ({:.0} MiB)", memory(ours), memory(stock));
    let cpu = format!("{:.2} % ({:.2} %)", ours.cpu_percent, stock.cpu_percent);
    let little = at_most(ours.cpu_percent, CPU_PERCENT, "0.5 %");
    vec![
        (what, both, at_most(memory(ours), MEMORY_MIB, "25 MiB")),
        ("— processor time".into(), cpu, little),
        like_stock("writes", written(ours), written(stock)),
        like_stock("requests", asked(ours), asked(stock)),
    ]
}

/// Both sides and how they compare: below 1 is faster.
fn compared(what: &str, pair: &Pair, show: impl Fn(Duration) -> String) -> Row {
    let (ours, stock) = (median(&pair.ours), median(&pair.stock));
    let ratio = ours.as_secs_f64() / stock.as_secs_f64().max(f64::MIN_POSITIVE);
    let both = format!("{} ({}), ratio of times {ratio:.2}", show(ours), show(stock));
    let goal = at_most(ratio, 1.05, "1, give or take 5 %");
    (format!("{what}, stock kubelet's in brackets"), both, goal)
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn milliseconds(took: Duration) -> String {
    format!("{:.0} ms", took.as_secs_f64() * 1e3)
}

#[expect(clippy::cast_precision_loss, reason = "counts of one run are far below 2^52")]
fn total(requests: &BTreeMap<String, usize>) -> f64 {
    requests.values().sum::<usize>() as f64
}

fn list(counts: &BTreeMap<String, usize>, per: f64) -> String {
    table::list_per(counts, per, 1, "none")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::table::examples::head;

    fn idle(memory: u64) -> Idle {
        let rest = |memory: u64, writes: usize| Rest {
            memory: memory << 20,
            cpu_percent: 0.2,
            requests: [("update leases".to_owned(), writes), ("watch pods".to_owned(), 1)].into(),
        };
        Idle {
            wall: Duration::from_mins(2),
            ours: rest(memory, 12),
            stock: rest(90, 13),
        }
    }

    #[test]
    fn both_sides_are_in_one_table() {
        let counts = |events: usize| BTreeMap::from([("create events".to_owned(), events)]);
        let pair = |ours: u64, stock: u64| Pair {
            ours: vec![Duration::from_millis(ours)],
            stock: vec![Duration::from_millis(stock)],
        };
        let report = Report {
            head: head("russet-bench kubelet"),
            binary: 15 << 20,
            empty: idle(20),
            busy: idle(26),
            pods: 10,
            per_pod: BTreeMap::from([
                ("ours", (counts(40), Duration::from_secs(20))),
                ("stock", (counts(50), Duration::from_secs(15))),
            ]),
            mib: 64,
            turns: Turns {
                exec: pair(110, 120),
                up: pair(1000, 800),
                down: pair(500, 500),
                kubectl: vec![Duration::from_millis(80)],
            },
        };
        insta::assert_snapshot!(report.markdown());
    }
}
