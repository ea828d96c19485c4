//! The figures of Macs with Pods as Markdown. Pure.

use super::churn::Waits;
use crate::fleet::audit::is_write;
use crate::fleet::table::{self, FREE, Head, Row, at_most};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// What a stock kubelet writes at rest, each minute: a Lease every 10 s and a status every 5 min.
const STOCK_WRITES: f64 = 6.2;
const BEYOND_MS: f64 = 200.0;

/// What was counted over some time, of all Macs together.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) wall: Duration,
    pub(super) requests: BTreeMap<String, usize>,
    /// Processor time of all agents, and of those who make and watch the Pods.
    pub(super) agents: Duration,
    /// Processor time of the API server.
    pub(super) server: Duration,
    /// Memory of the process they are all in.
    pub(super) memory: u64,
}

/// Everything that was measured.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) head: Head,
    pub(super) macs: u32,
    pub(super) joined: Duration,
    pub(super) rest: Span,
    pub(super) busy: Span,
    /// Pods that were made while it was counted.
    pub(super) made: u32,
    pub(super) waits: Waits,
}

impl Report {
    pub(super) fn markdown(&self) -> String {
        let mut out = String::new();
        self.head.write(&mut out, &format!("Pods on {} Macs", self.macs));
        table::write(&mut out, self.rows());
        // Writing into a string cannot fail.
        for (name, span) in [("at rest", &self.rest), ("with Pods", &self.busy)] {
            let counts = list(&span.requests, self.node_minutes(span));
            let _ = writeln!(out, "- {name}, per node and minute: {counts}.");
        }
        let of_pods = list(&self.for_pods(), f64::from(self.made.max(1)));
        let _ = writeln!(out, "- per Pod: {of_pods}.");
        out
    }

    fn node_minutes(&self, span: &Span) -> f64 {
        f64::from(self.macs.max(1)) * span.wall.as_secs_f64() / 60.0
    }

    /// What was asked because of Pods: more than the same time at rest.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts of one run are far below 2^52, and none is below zero"
    )]
    fn for_pods(&self) -> BTreeMap<String, usize> {
        let share = self.busy.wall.as_secs_f64() / self.rest.wall.as_secs_f64().max(1.0);
        let more = self.busy.requests.iter().map(|(what, count)| {
            let idle = self.rest.requests.get(what).copied().unwrap_or_default();
            let idle = (idle as f64 * share).round() as usize;
            (what.clone(), count.saturating_sub(idle))
        });
        more.filter(|(_, count)| *count > 0).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of one run are far below 2^52")]
    fn rows(&self) -> Vec<Row> {
        let per = |span: &Span, count: usize| count as f64 / self.node_minutes(span);
        let (rest_writes, rest_reads) = split(&self.rest.requests);
        let (busy_writes, busy_reads) = split(&self.busy.requests);
        let (pod_writes, pod_reads) = split(&self.for_pods());
        let pods = f64::from(self.made.max(1));
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let beyond = |share: f64| milliseconds(percentile(&self.waits.beyond, share));
        let first = |share: f64| milliseconds(percentile(&self.waits.first, share));
        let shown = |share: f64| format!("{:.0} ms", beyond(share));
        let rest = per(&self.rest, rest_writes);
        let (rested, worked) = (self.rest.wall.as_secs_f64(), self.busy.wall.as_secs_f64());
        let (joined, failed) = (self.joined.as_secs_f64(), self.waits.failures.len());
        let macs = f64::from(self.macs.max(1));
        let at_rest = format!("at rest for {rested:.0} s: writes per node and minute");
        let churned = format!("{} Pods made and gone in {worked:.0} s", self.made);
        let (reads_at_rest, reads) = (per(&self.rest, rest_reads), per(&self.busy, busy_reads));
        let writes = per(&self.busy, busy_writes);
        let stock = at_most(rest, STOCK_WRITES * 1.01, "6.2, a stock kubelet's");
        let server_at_rest = percent(self.rest.server, &self.rest);
        let server = percent(self.busy.server, &self.busy);
        let firsts = format!("{:.0} ms, {:.0} ms", first(0.5), first(0.99));
        let memory = format!("{:.0} KiB", self.busy.memory as f64 / 1024.0 / macs);
        let looked = "— reads and watches per node and minute";
        let per_pod = |count| format!("{:.1}", count as f64 / pods);
        let of_firsts = "the same for the first Pod of each Mac: median, 99 %";
        let none = at_most(failed as f64, 0.0, "0");
        let late = "from the Pod to Running, beyond what the runtime takes: median";
        vec![
            (format!("{} Macs, to Ready", self.macs), format!("{joined:.0} s"), FREE),
            (at_rest, format!("{rest:.2}"), stock),
            (looked.into(), format!("{reads_at_rest:.2}"), FREE),
            ("— processor time per node".into(), self.share(&self.rest), FREE),
            ("— processor time of the API server".into(), server_at_rest, FREE),
            (churned, format!("{:.1} a second", pods / worked), FREE),
            ("— writes per node and minute".into(), format!("{writes:.2}"), FREE),
            (looked.into(), format!("{reads:.2}"), FREE),
            ("— writes per Pod".into(), per_pod(pod_writes), FREE),
            ("— reads and watches per Pod".into(), per_pod(pod_reads), FREE),
            ("— processor time per node".into(), self.share(&self.busy), FREE),
            ("— processor time of the API server".into(), server, FREE),
            (late.into(), shown(0.5), FREE),
            ("— 90 %".into(), shown(0.9), FREE),
            ("— 99 %".into(), shown(0.99), at_most(beyond(0.99), BEYOND_MS, "200 ms")),
            ("— the longest".into(), shown(1.0), FREE),
            (of_firsts.into(), firsts, FREE),
            ("Pods that failed".into(), failed.to_string(), none),
            ("memory per node, all in one process".into(), memory, FREE),
        ]
    }

    fn share(&self, span: &Span) -> String {
        let share = span.agents.as_secs_f64() / span.wall.as_secs_f64() / f64::from(self.macs.max(1));
        format!("{:.3} % of a core", share * 100.0)
    }
}

fn percent(used: Duration, span: &Span) -> String {
    let share = used.as_secs_f64() * 100.0 / span.wall.as_secs_f64();
    format!("{share:.0} % of a core")
}

/// Writes, and the rest.
fn split(requests: &BTreeMap<String, usize>) -> (usize, usize) {
    let (writes, reads): (Vec<_>, Vec<_>) = requests.iter().partition(|(what, _)| is_write(what));
    let sum = |counts: Vec<(&String, &usize)>| counts.into_iter().map(|(_, count)| count).sum();
    (sum(writes), sum(reads))
}

/// The value that this share of them does not exceed. They are sorted.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a small count"
)]
fn percentile(sorted: &[Duration], share: f64) -> Duration {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
}

fn list(counts: &BTreeMap<String, usize>, per: f64) -> String {
    table::list_per(counts, per, 2, "nothing")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::table::examples::head;

    fn span(requests: &[(&str, usize)]) -> Span {
        Span {
            wall: Duration::from_mins(2),
            requests: requests
                .iter()
                .map(|(what, count)| ((*what).to_owned(), *count))
                .collect(),
            agents: Duration::from_secs(24),
            server: Duration::from_mins(1),
            memory: 400 << 20,
        }
    }

    #[test]
    fn the_table_says_what_a_node_and_a_pod_cost() {
        let beyond = (1..=200).map(Duration::from_millis).collect();
        let report = Report {
            head: head("russet-bench pods --macs 1000"),
            macs: 1000,
            joined: Duration::from_secs(30),
            rest: span(&[
                ("patch leases", 12_000),
                ("patch nodes/status", 400),
                ("watch pods", 400),
            ]),
            busy: span(&[
                ("patch leases", 12_000),
                ("patch pods/status", 9_600),
                ("create events", 7_200),
                ("get nodes", 2_400),
            ]),
            made: 2400,
            waits: Waits {
                beyond,
                first: (101..=300).map(Duration::from_millis).collect(),
                failures: Vec::new(),
            },
        };
        insta::assert_snapshot!(report.markdown());
    }

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let sorted: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&sorted, 0.99), Duration::from_millis(99));
        assert_eq!(percentile(&sorted, 1.0), Duration::from_millis(100));
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }
}
