//! The figures of a fleet as Markdown. Pure, so that the table is tested without a cluster.

use super::count::Stage;
use super::writes::{Counts, Writer};
use crate::machine::Machine;
use std::fmt::Write as _;

/// What issue and page promise.
const CALLS: f64 = 12.0;
const MEMORY_MIB: f64 = 100.0;
const IDLE_CPU: f64 = 1.0;

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) date: String,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    /// Load average of the machine before and after.
    pub(crate) load: (f64, f64),
    pub(crate) versions: Vec<(String, String)>,
    pub(crate) machines: u32,
    /// Minis that nobody wanted.
    pub(crate) spare: u32,
    pub(crate) up: Stage,
    pub(crate) rest: Stage,
    pub(crate) down: Option<Stage>,
    /// The most memory the provider ever had, in KiB.
    pub(crate) peak_kib: Option<u64>,
}

struct Row {
    what: String,
    measured: String,
    target: Option<(String, bool)>,
}

fn row(what: impl Into<String>, measured: impl Into<String>) -> Row {
    Row {
        what: what.into(),
        measured: measured.into(),
        target: None,
    }
}

impl Row {
    fn at_most(self, value: f64, most: f64, words: &str) -> Self {
        Self {
            target: Some((format!("≤ {words}"), value <= most)),
            ..self
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of one run are far below 2^52")]
impl Report {
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        let versions: Vec<String> = self.versions.iter().map(|(name, v)| format!("{name} {v}")).collect();
        // Writing into a string cannot fail; the same holds for every `writeln!` below.
        let spare = match self.spare {
            0 => String::new(),
            spare => format!(", {spare} more minis in the pool"),
        };
        let _ = writeln!(out, "### A fleet of {} Macs{spare}\n", self.machines);
        let _ = writeln!(
            out,
            "{}, on {}. Load average {:.1} before and {:.1} after.",
            self.date,
            self.machine.sentence(),
            self.load.0,
            self.load.1
        );
        let _ = writeln!(out, "Versions: {}.\n", versions.join(", "));
        let _ = writeln!(out, "```sh\n{}\n```\n", self.command);
        let _ = writeln!(out, "| What | Measured | Target | Met |\n| --- | ---: | ---: | --- |");
        for Row { what, measured, target } in self.rows() {
            let (target, met) = match target {
                Some((target, true)) => (target, "yes"),
                Some((target, false)) => (target, "**no**"),
                None => (String::new(), ""),
            };
            let _ = writeln!(out, "| {what} | {measured} | {target} | {met} |");
        }
        let _ = writeln!(out);
        for (name, stage) in self.stages() {
            let _ = writeln!(
                out,
                "- {name}: calls for a Machine {}; shared {}; writes of the provider {}.",
                list(&stage.calls.own),
                list(&stage.calls.shared),
                list(stage.writes.get(&Writer::Provider).unwrap_or(&Counts::new())),
            );
        }
        out
    }

    fn stages(&self) -> impl Iterator<Item = (&'static str, &Stage)> {
        let down = self.down.as_ref().map(|down| ("drain, wipe, pool", down));
        [("adopt and join", &self.up), ("at rest", &self.rest)]
            .into_iter()
            .chain(down)
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = self.work("adopt and join", "to available", &self.up);
        rows.extend(self.at_rest());
        if let Some(down) = &self.down {
            rows.extend(self.work("drain, wipe, pool", "to the last mini in the pool", down));
        }
        let peak = self.peak_kib.map(|kib| kib as f64 / 1024.0);
        let shown = peak.map_or_else(|| "?".to_owned(), |mib| format!("{mib:.0} MiB"));
        rows.push(row("peak memory of the provider (RSS)", shown).at_most(
            peak.unwrap_or(f64::INFINITY),
            MEMORY_MIB,
            "100 MiB",
        ));
        rows
    }

    fn work(&self, name: &str, end: &str, stage: &Stage) -> Vec<Row> {
        let per = |count: usize| count as f64 / f64::from(self.machines.max(1));
        let (own, shared) = (sum(&stage.calls.own), sum(&stage.calls.shared));
        let seconds = stage.cpu.as_secs_f64();
        let written = |writer| format!("{:.1}", per(stage.written_by(writer)));
        vec![
            row(
                format!("{name}: {} Machines, {end}", self.machines),
                format!("{:.0} s", stage.wall.as_secs_f64()),
            ),
            row("— Scaleway calls per Machine", format!("{:.2}", per(own))).at_most(per(own), CALLS, "12"),
            row("— the same with the shared poll", format!("{:.2}", per(own + shared))).at_most(
                per(own + shared),
                CALLS,
                "12",
            ),
            row(
                "— processor time of the provider",
                format!(
                    "{seconds:.1} s ({:.1} ms per Machine)",
                    seconds * 1e3 / f64::from(self.machines.max(1))
                ),
            ),
            row("— API writes of the provider per Machine", written(Writer::Provider)),
            row("— API writes of Cluster API core per Machine", written(Writer::Core)),
        ]
    }

    fn at_rest(&self) -> Vec<Row> {
        let stage = &self.rest;
        let wall = stage.wall.as_secs_f64();
        let written = stage.written_by(Writer::Provider);
        let thousands = f64::from(self.machines.max(1)) / 1e3;
        let cpu = stage.cpu.as_secs_f64() * 60.0 / wall / thousands;
        vec![
            row(
                format!("at rest for {wall:.0} s: API writes of the provider"),
                written.to_string(),
            )
            .at_most(written as f64, 0.0, "0"),
            row("— processor time per minute and 1,000 Machines", format!("{cpu:.2} s")).at_most(cpu, IDLE_CPU, "1 s"),
            row(
                "— Scaleway calls, all of them the shared poll's",
                match sum(&stage.calls.own) {
                    0 => sum(&stage.calls.shared).to_string(),
                    own => format!("{} and {own} others", sum(&stage.calls.shared)),
                },
            ),
            row(
                "— memory of the provider (RSS)",
                format!("{:.0} MiB", stage.memory as f64 / f64::from(1 << 20)),
            ),
        ]
    }
}

fn sum(counts: &Counts) -> usize {
    counts.values().sum()
}

fn list(counts: &Counts) -> String {
    let all: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    if all.is_empty() {
        "none".to_owned()
    } else {
        all.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::count::Calls;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn stage(seconds: u64, cpu: u64, own: usize, written: usize) -> Stage {
        let counts = |name: &str, count: usize| Counts::from_iter((count > 0).then(|| (name.to_owned(), count)));
        Stage {
            wall: Duration::from_secs(seconds),
            cpu: Duration::from_millis(cpu),
            memory: 40 << 20,
            writes: BTreeMap::from([(Writer::Provider, counts("patch things", written))]),
            calls: Calls {
                own: counts("GET servers/{id}", own),
                shared: counts("GET servers", 30),
            },
        }
    }

    #[test]
    fn the_table_says_what_is_met_and_what_is_not() {
        let report = Report {
            date: "2026-03-01".into(),
            command: "russet-bench fleet --machines 1000".into(),
            machine: Machine {
                cores: 2,
                processor: "Fast CPU".into(),
                memory_mib: Some(24_000),
                system: "Linux 6.1 x86_64".into(),
            },
            load: (0.5, 3.0),
            versions: vec![("kubernetes".into(), "v1.35.4".into())],
            machines: 1000,
            spare: 0,
            up: stage(300, 20_000, 7_000, 20_000),
            rest: stage(60, 1_500, 0, 0),
            down: Some(stage(200, 9_000, 13_000, 9_000)),
            peak_kib: Some(60 << 10),
        };
        insta::assert_snapshot!(report.markdown());
    }
}
