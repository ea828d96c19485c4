//! The figures as Markdown, and what must hold whatever the machine. Pure.

use super::drift::Drift;
use super::round::Round;
use crate::fleet::table::{self, FREE, Head, Row, at_most};
use anyhow::{Context as _, Result, ensure};
use std::time::Duration;

/// Round trips to a host that is as it should be.
const ROUND_TRIPS: u32 = 3;

/// Everything that was measured.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) head: Head,
    /// Hosts that were set up at the same time.
    pub(super) at_once: u16,
    /// Files that hosts are set up with.
    pub(super) files: u64,
    /// Files that were read again though none had changed.
    pub(super) read_again: u64,
    pub(super) first: Round,
    pub(super) again: Round,
    pub(super) roll: Round,
    /// Size of the other agent.
    pub(super) agent: u64,
    pub(super) downtime: Downtime,
    pub(super) drift: Drift,
}

/// For how long hosts were without an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Downtime {
    median: Duration,
    longest: Duration,
}

impl Downtime {
    pub(super) fn of(mut all: Vec<Duration>) -> Result<Self> {
        all.sort();
        let median = all.get(all.len() / 2).copied();
        let longest = all.last().copied();
        let (median, longest) = median.zip(longest).context("there is no Mac")?;
        Ok(Self { median, longest })
    }
}

impl Round {
    fn uploaded(&self) -> u64 {
        self.efforts.iter().map(|effort| effort.uploaded).sum()
    }

    /// The most that a host took.
    fn commands(&self) -> u32 {
        self.efforts.iter().map(|effort| effort.commands).max().unwrap_or(0)
    }

    #[expect(clippy::cast_precision_loss, reason = "so many Macs are far below 2^52")]
    fn macs(&self) -> f64 {
        self.efforts.len().max(1) as f64
    }
}

impl Report {
    /// What holds on any machine.
    pub(super) fn check(&self) -> Result<()> {
        let uploaded = self.again.uploaded();
        ensure!(uploaded == 0, "hosts that are as they should be got {uploaded} bytes");
        let commands = self.again.commands();
        let few = commands <= ROUND_TRIPS;
        ensure!(
            few,
            "a host that is as it should be took {commands} round trips, more than {ROUND_TRIPS}"
        );
        let agent = self.agent;
        for sent in self.roll.efforts.iter().map(|effort| effort.uploaded) {
            ensure!(sent == agent, "another agent of {agent} bytes made an upload of {sent}");
        }
        ensure!(self.read_again == 0, "{} files were hashed again", self.read_again);
        let hashed = self.drift.hashed;
        ensure!(
            hashed == 0,
            "a check for drift hashed {hashed} files that had not changed"
        );
        Ok(())
    }

    pub(super) fn markdown(&self) -> String {
        let mut out = String::new();
        let title = format!("Setting up {} Macs over SSH", self.first.efforts.len());
        self.head.write(&mut out, &title);
        table::write(&mut out, self.rows());
        out
    }

    #[expect(clippy::cast_precision_loss, reason = "figures of one run are far below 2^52")]
    fn rows(&self) -> Vec<Row> {
        let macs = self.first.efforts.len();
        let (first, again, roll, drift) = (&self.first, &self.again, &self.roll, &self.drift);
        let hosts = f64::from(drift.hosts.max(1));
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let to_each = |round: &Round| round.uploaded() as f64 / round.macs();
        let uploads = to_each(roll) / self.agent.max(1) as f64;
        let most = |round: &Round, goal| {
            (
                "— round trips, the most for a Mac".into(),
                round.commands().to_string(),
                goal,
            )
        };
        let bytes = again.uploaded();
        let (median, longest) = (self.downtime.median.as_millis(), self.downtime.longest.as_millis());
        let micros = |time: Duration| format!("{:.1} µs", time.as_secs_f64() * 1e6 / hosts);
        let trips = at_most(f64::from(again.commands()), f64::from(ROUND_TRIPS), "3");
        let hashed = at_most(drift.hashed as f64, 0.0, "0");
        let agent = mib(self.agent as f64);
        let bare = format!("from bare to set up: {macs} Macs, {} at a time", self.at_once);
        let mut rows = Vec::from(took(bare, first));
        rows.push((
            "— uploaded to each Mac".into(),
            format!("{:.1} MiB", mib(to_each(first))),
            FREE,
        ));
        rows.push(most(first, FREE));
        rows.extend(took("once more, with nothing to do".into(), again));
        let nothing = at_most(bytes as f64, 0.0, "0 bytes");
        rows.push(("— uploaded to all Macs".into(), format!("{bytes} bytes"), nothing));
        rows.push(most(again, trips));
        rows.extend(took(format!("another agent of {agent:.1} MiB"), roll));
        let once = at_most(uploads, 1.0, "1");
        rows.push(("— uploads of it to each Mac".into(), format!("{uploads:.2}"), once));
        rows.push(most(roll, FREE));
        let away = format!("{median} ms ({longest} ms)");
        rows.push(("— a Mac without an agent, median (longest)".into(), away, FREE));
        let what = format!("drift of {} hosts: files hashed", drift.hosts);
        rows.push((what, drift.hashed.to_string(), hashed));
        rows.push(("— per host".into(), micros(drift.check), FREE));
        rows.push((
            "— per host, with the plan of the rollout".into(),
            micros(drift.plan),
            FREE,
        ));
        rows.push(("— files hashed once, at the start".into(), self.files.to_string(), FREE));
        rows
    }
}

fn took(name: String, round: &Round) -> [Row; 2] {
    let cpu = round.cpu.as_secs_f64();
    let used = format!("{cpu:.2} s ({:.1} ms per Mac)", cpu * 1e3 / round.macs());
    let wall = format!("{:.1} s", round.wall.as_secs_f64());
    [
        (name, wall, FREE),
        ("— processor time of the provider".into(), used, FREE),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::table::examples::head;
    use russet_capi_provider::bootstrap::Effort;

    /// What is done to good figures, and what is said about it then.
    type Harm = (fn(&mut Report), &'static str);

    fn round(seconds: u64, commands: u32, uploaded: u64) -> Round {
        Round {
            wall: Duration::from_secs(seconds),
            cpu: Duration::from_millis(seconds * 30),
            efforts: vec![Effort { commands, uploaded }; 10],
        }
    }

    fn report() -> Report {
        let agent = 8 << 20;
        Report {
            head: head("russet-bench macs --macs 10"),
            at_once: 16,
            files: 4,
            read_again: 0,
            first: round(60, 30, agent + 4_096),
            again: round(2, 1, 0),
            roll: round(9, 4, agent),
            agent,
            downtime: Downtime::of([40, 20, 90].map(Duration::from_millis).to_vec()).unwrap(),
            drift: Drift {
                hosts: 1_000,
                hashed: 0,
                check: Duration::from_micros(2_500),
                plan: Duration::from_micros(4_100),
            },
        }
    }

    #[test]
    fn the_table_says_what_each_round_took() {
        report().check().unwrap();
        insta::assert_snapshot!(report().markdown());
    }

    /// A figure that depends on no machine is no figure but a promise.
    #[test]
    fn a_run_that_breaks_a_promise_is_an_error() {
        let cases: [Harm; 6] = [
            (|report| report.again.efforts[3].uploaded = 1, "got 1 bytes"),
            (|report| report.again.efforts[3].commands = 4, "4 round trips"),
            (|report| report.roll.efforts[9].uploaded *= 2, "made an upload of"),
            (|report| report.roll.efforts[0].uploaded = 0, "made an upload of 0"),
            (|report| report.read_again = 1, "hashed again"),
            (|report| report.drift.hashed = 2, "hashed 2 files"),
        ];
        for (harm, says) in cases {
            let mut report = report();
            harm(&mut report);
            let text = report.check().unwrap_err().to_string();
            assert!(text.contains(says), "{text}");
        }
        assert!(Downtime::of(Vec::new()).is_err());
    }
}
