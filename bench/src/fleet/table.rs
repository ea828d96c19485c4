//! Rows of a table, alike for every kind of machine. Pure.

use super::count::Stage;
use super::writes::{Counts, Writer};
use crate::machine::Machine;
use std::fmt::Write as _;

/// What issues and pages promise.
const CALLS: f64 = 12.0;
const MEMORY_MIB: f64 = 100.0;
const IDLE_CPU: f64 = 1.0;

/// When, how and on what the figures were made.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) date: String,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    /// Load average of the machine before and after.
    pub(crate) load: (f64, f64),
    pub(crate) versions: Vec<(String, String)>,
}

impl Head {
    // Writing into a string cannot fail; the same holds for every `writeln!` below.
    pub(crate) fn write(&self, out: &mut String, title: &str) {
        let versions: Vec<String> = self.versions.iter().map(|(name, v)| format!("{name} {v}")).collect();
        let _ = writeln!(out, "### {title}\n");
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
    }
}

/// One line of the table.
pub(crate) struct Row {
    what: String,
    measured: String,
    target: Option<(String, bool)>,
}

pub(crate) fn row(what: impl Into<String>, measured: impl Into<String>) -> Row {
    Row {
        what: what.into(),
        measured: measured.into(),
        target: None,
    }
}

impl Row {
    pub(crate) fn at_most(self, value: f64, most: f64, words: &str) -> Self {
        Self {
            target: Some((format!("≤ {words}"), value <= most)),
            ..self
        }
    }
}

pub(crate) fn write(out: &mut String, rows: Vec<Row>) {
    let _ = writeln!(out, "| What | Measured | Target | Met |\n| --- | ---: | ---: | --- |");
    for Row { what, measured, target } in rows {
        let (target, met) = match target {
            Some((target, true)) => (target, "yes"),
            Some((target, false)) => (target, "**no**"),
            None => (String::new(), ""),
        };
        let _ = writeln!(out, "| {what} | {measured} | {target} | {met} |");
    }
    let _ = writeln!(out);
}

/// Which calls and writes a stage was made of.
pub(crate) fn note(out: &mut String, name: &str, stage: &Stage) {
    let _ = writeln!(
        out,
        "- {name}: calls for a Machine {}; shared {}; writes of the provider {}.",
        list(&stage.calls.own),
        list(&stage.calls.shared),
        list(stage.writes.get(&Writer::Provider).unwrap_or(&Counts::new())),
    );
}

/// What it took to bring so many Machines from one state into another.
#[expect(clippy::cast_precision_loss, reason = "counts of one run are far below 2^52")]
pub(crate) fn work(machines: u32, name: &str, end: &str, stage: &Stage) -> Vec<Row> {
    let per = |count: usize| count as f64 / f64::from(machines.max(1));
    let (own, shared) = (sum(&stage.calls.own), sum(&stage.calls.shared));
    let seconds = stage.cpu.as_secs_f64();
    let written = |writer| format!("{:.1}", per(stage.written_by(writer)));
    let calls = |what: &str, count| row(what, format!("{:.2}", per(count))).at_most(per(count), CALLS, "12");
    vec![
        row(
            format!("{name}: {machines} Machines, {end}"),
            format!("{:.0} s", stage.wall.as_secs_f64()),
        ),
        calls("— Scaleway calls per Machine", own),
        calls("— the same with the shared poll", own + shared),
        row(
            "— processor time of the provider",
            format!(
                "{seconds:.1} s ({:.1} ms per Machine)",
                seconds * 1e3 / f64::from(machines.max(1))
            ),
        ),
        row("— API writes of the provider per Machine", written(Writer::Provider)),
        row("— API writes of Cluster API core per Machine", written(Writer::Core)),
    ]
}

/// What so many Machines cost that only serve.
#[expect(clippy::cast_precision_loss, reason = "counts of one run are far below 2^52")]
pub(crate) fn at_rest(machines: u32, name: &str, stage: &Stage) -> Vec<Row> {
    let wall = stage.wall.as_secs_f64();
    let written = stage.written_by(Writer::Provider);
    let thousands = f64::from(machines.max(1)) / 1e3;
    let cpu = stage.cpu.as_secs_f64() * 60.0 / wall / thousands;
    vec![
        row(
            format!("{name} for {wall:.0} s: API writes of the provider"),
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

/// The most memory the provider ever had, in KiB.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn peak(kib: Option<u64>) -> Row {
    let mib = kib.map(|kib| kib as f64 / 1024.0);
    let shown = mib.map_or_else(|| "?".to_owned(), |mib| format!("{mib:.0} MiB"));
    let row = row("peak memory of the provider (RSS)", shown);
    row.at_most(mib.unwrap_or(f64::INFINITY), MEMORY_MIB, "100 MiB")
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
pub(crate) mod examples {
    use super::*;
    use crate::fleet::count::Calls;
    use std::collections::BTreeMap;
    use std::time::Duration;

    pub(crate) fn head(command: &str) -> Head {
        Head {
            date: "2026-03-01".into(),
            command: command.into(),
            machine: Machine {
                cores: 2,
                processor: "Fast CPU".into(),
                memory_mib: Some(24_000),
                system: "Linux 6.1 x86_64".into(),
            },
            load: (0.5, 3.0),
            versions: vec![("kubernetes".into(), "v1.35.4".into())],
        }
    }

    pub(crate) fn stage(seconds: u64, cpu: u64, own: usize, written: usize) -> Stage {
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
}
