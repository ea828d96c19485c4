//! Rows of a table, alike for every kind of machine. Pure.

use super::count::Stage;
use super::writes::{Counts, Writer};
use crate::machine::{Machine, load};
use russet_parts::Manifest;
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
    /// Where the data was, if that matters.
    pub(crate) disk: Option<String>,
    /// Load average of the machine before and after.
    pub(crate) load: Option<(f64, f64)>,
    pub(crate) versions: Vec<(String, String)>,
}

impl Head {
    /// Of figures that were made until now, with our program and these tools.
    pub(crate) fn new(command: String, load_before: f64, ours: &str, tools: &[&str]) -> Self {
        let mut versions = vec![(ours.to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
        let manifest = Manifest::embedded();
        for (part, _) in tools.iter().filter_map(|tool| manifest.tool(tool).ok()) {
            versions.push((part.name.clone(), part.version.clone()));
        }
        versions.dedup();
        Self {
            date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            command,
            machine: Machine::this(),
            disk: None,
            load: Some((load_before, load())),
            versions,
        }
    }

    // Writing into a string cannot fail; the same holds for every `writeln!` below.
    pub(crate) fn write(&self, out: &mut String, title: &str) {
        let versions: Vec<String> = self.versions.iter().map(|(name, v)| format!("{name} {v}")).collect();
        let _ = writeln!(out, "### {title}\n");
        let disk = self.disk.iter().map(|disk| format!(", {disk}"));
        let load = self.load.iter();
        let load = load.map(|(before, after)| format!(" Load average {before:.1} before and {after:.1} after."));
        let (disk, load) = (disk.collect::<String>(), load.collect::<String>());
        let _ = writeln!(out, "{}, on {}{disk}.{load}", self.date, self.machine.sentence());
        let _ = writeln!(out, "Versions: {}.\n", versions.join(", "));
        let _ = writeln!(out, "```sh\n{}\n```\n", self.command);
    }
}

/// One line of the table: what, how much, and the target with whether it is met.
pub(crate) type Row = (String, String, Goal);

#[derive(Default)]
pub(crate) struct Goal(Option<(String, bool)>);

/// A figure without a target.
pub(crate) const FREE: Goal = Goal(None);

pub(crate) fn at_most(value: f64, most: f64, words: &str) -> Goal {
    Goal(Some((format!("≤ {words}"), value <= most)))
}

pub(crate) fn write(out: &mut String, rows: Vec<Row>) {
    let _ = writeln!(out, "| What | Measured | Target | Met |\n| --- | ---: | ---: | --- |");
    for (what, measured, Goal(target)) in rows {
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
    let written = |who, writer| {
        let what = format!("— API writes of {who} per Machine");
        (what, format!("{:.1}", per(stage.written_by(writer))), FREE)
    };
    let calls = |count| (format!("{:.2}", per(count)), at_most(per(count), CALLS, "12"));
    let ((calls_own, own_goal), (calls_all, all_goal)) = (calls(own), calls(own + shared));
    let per_machine = seconds * 1e3 / f64::from(machines.max(1));
    let cpu = format!("{seconds:.1} s ({per_machine:.1} ms per Machine)");
    let took = format!("{:.0} s", stage.wall.as_secs_f64());
    vec![
        (format!("{name}: {machines} Machines, {end}"), took, FREE),
        ("— Scaleway calls per Machine".into(), calls_own, own_goal),
        ("— the same with the shared poll".into(), calls_all, all_goal),
        ("— processor time of the provider".into(), cpu, FREE),
        written("the provider", Writer::Provider),
        written("Cluster API core", Writer::Core),
    ]
}

/// What so many Machines cost that only serve.
#[expect(clippy::cast_precision_loss, reason = "counts of one run are far below 2^52")]
pub(crate) fn at_rest(machines: u32, name: &str, stage: &Stage) -> Vec<Row> {
    let wall = stage.wall.as_secs_f64();
    let written = stage.written_by(Writer::Provider);
    let thousands = f64::from(machines.max(1)) / 1e3;
    let cpu = stage.cpu.as_secs_f64() * 60.0 / wall / thousands;
    let (a_minute, taken) = ("— processor time per minute and 1,000 Machines", format!("{cpu:.2} s"));
    let writes = format!("{name} for {wall:.0} s: API writes of the provider");
    let calls = match sum(&stage.calls.own) {
        0 => sum(&stage.calls.shared).to_string(),
        own => format!("{} and {own} others", sum(&stage.calls.shared)),
    };
    let idle = at_most(cpu, IDLE_CPU, "1 s");
    let memory = format!("{:.0} MiB", stage.memory as f64 / f64::from(1 << 20));
    vec![
        (writes, written.to_string(), at_most(written as f64, 0.0, "0")),
        (a_minute.into(), taken, idle),
        ("— Scaleway calls, all of them the shared poll's".into(), calls, FREE),
        ("— memory of the provider (RSS)".into(), memory, FREE),
    ]
}

/// The most memory the provider ever had, in KiB.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn peak(kib: Option<u64>) -> Row {
    let mib = kib.map(|kib| kib as f64 / 1024.0);
    let shown = mib.map_or_else(|| "?".to_owned(), |mib| format!("{mib:.0} MiB"));
    let goal = at_most(mib.unwrap_or(f64::INFINITY), MEMORY_MIB, "100 MiB");
    ("peak memory of the provider (RSS)".into(), shown, goal)
}

/// How many of each, the most first, per so many.
#[expect(clippy::cast_precision_loss, reason = "counts of one run are far below 2^52")]
pub(crate) fn list_per(counts: &Counts, per: f64, digits: usize, none: &str) -> String {
    let mut all: Vec<(&String, f64)> = counts.iter().map(|(what, count)| (what, *count as f64 / per)).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let all: Vec<String> = all
        .iter()
        .map(|(what, count)| format!("{count:.digits$} {what}"))
        .collect();
    if all.is_empty() {
        none.to_owned()
    } else {
        all.join(", ")
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
            disk: None,
            load: Some((0.5, 3.0)),
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
