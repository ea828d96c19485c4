//! What test programs and packages cost: the table that is checked in, `xtask/times.tsv`, and what runs on this machine took since.
//!
//! The table says what the whole gate took when it was last measured with nothing beside it; CONTRIBUTING quotes it. A run compares itself
//! with it by processor time, which depends little on what else the machine does, and is scheduled by it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::runs::Run;
use crate::test_run::Cost;

const FILE: &str = "xtask/times.tsv";
const HEAD: &str = "# kind\tname\tseconds\tprocessor seconds; written by `cargo run -p xtask -- times`\n";

/// A package grew if it takes this many seconds of processor more, and a fifth more.
const GREW: f64 = 5.0;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Times {
    /// Test programs, as `package:target`.
    programs: BTreeMap<String, Cost>,
    /// Packages: seconds that their units took to compile and link.
    compiled: BTreeMap<String, f64>,
}

impl Times {
    /// The table that is checked in; empty where there is none.
    pub(crate) fn checked_in(root: &Path) -> Result<Self> {
        match std::fs::read_to_string(root.join(FILE)) {
            Ok(text) => text.parse(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("failed to read {FILE}")),
        }
    }

    /// What a run took, as a table.
    pub(crate) fn of_run(run: &Run) -> Self {
        Self {
            programs: run
                .programs
                .iter()
                .map(|(name, cost)| (name.clone(), (*cost).into()))
                .collect(),
            compiled: run.compiled.clone(),
        }
    }

    /// Puts what programs took in runs on this machine over what the table says: the shortest of the last few, since what stood beside a
    /// program in one run need not do so in the next.
    pub(crate) fn with_runs(mut self, runs: &[Run]) -> Self {
        let mut kept: BTreeMap<&str, Cost> = BTreeMap::new();
        for (name, cost) in runs.iter().rev().take(3).flat_map(|run| &run.programs) {
            let cost = Cost::from(*cost);
            let best = kept.entry(name).or_insert(cost);
            if cost.wall < best.wall {
                *best = cost;
            }
        }
        self.programs
            .extend(kept.into_iter().map(|(name, cost)| (name.to_owned(), cost)));
        self
    }

    pub(crate) fn of(&self, program: &str) -> Option<Cost> {
        self.programs.get(program).copied()
    }

    /// Writes the table.
    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        std::fs::write(root.join(FILE), self.to_string()).with_context(|| format!("failed to write {FILE}"))
    }

    /// Which packages take more than this table says, worst first: name, seconds of processor then and now.
    pub(crate) fn grown(&self, now: &Self) -> Vec<(String, f64, f64)> {
        let (before, now) = (self.by_package(), now.by_package());
        let mut grown: Vec<_> = now
            .into_iter()
            .map(|(package, now)| {
                let before = before.get(&package).copied().unwrap_or_default();
                (package, before, now)
            })
            .filter(|(_, before, now)| now - before > GREW && *now > before * 1.2)
            .collect();
        grown.sort_by(|left, right| (right.2 - right.1).total_cmp(&(left.2 - left.1)));
        grown
    }

    /// Seconds that a package takes to compile and of processor to test.
    fn by_package(&self) -> BTreeMap<String, f64> {
        let mut packages = self.compiled.clone();
        for (name, cost) in &self.programs {
            let package = name.split(':').next().unwrap_or(name);
            *packages.entry(package.to_owned()).or_default() += cost.processor;
        }
        packages
    }
}

/// Seconds that the units of each package took in the last build with `cargo --timings`; all packages of other projects are one.
pub(crate) fn compiled() -> BTreeMap<String, f64> {
    let here = std::env::current_exe().unwrap_or_default();
    let report = here
        .ancestors()
        .nth(2)
        .map(|target| target.join("cargo-timings/cargo-timing.html"));
    let html = report
        .and_then(|file| std::fs::read_to_string(file).ok())
        .unwrap_or_default();
    of_report(&html).unwrap_or_default()
}

/// Cargo draws its report from a list in the page, which is all that it offers to programs.
fn of_report(html: &str) -> Option<BTreeMap<String, f64>> {
    let (_, rest) = html.split_once("const UNIT_DATA = ")?;
    let (list, _) = rest.split_once(";\n")?;
    let units: Vec<Value> = serde_json::from_str(list).ok()?;
    let mut packages = BTreeMap::new();
    for unit in units {
        let name = unit.get("name")?.as_str()?;
        let ours = ["russet", "kura", "xtask"].iter().any(|ours| name.starts_with(ours));
        let name = if ours { name } else { "third-party" };
        *packages.entry(name.to_owned()).or_default() += unit.get("duration")?.as_f64()?;
    }
    Some(packages)
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = HEAD.to_owned();
        for (name, seconds) in &self.compiled {
            writeln!(text, "compile\t{name}\t{seconds:.1}\t{seconds:.1}")?;
        }
        for (name, cost) in &self.programs {
            writeln!(text, "test\t{name}\t{:.1}\t{:.1}", cost.wall, cost.processor)?;
        }
        f.write_str(&text)
    }
}

impl std::str::FromStr for Times {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut times = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [kind, name, wall, processor] = fields.as_slice() else {
                bail!("{FILE} has a line without four columns: {line}");
            };
            let cost = Cost {
                wall: wall.parse()?,
                processor: processor.parse()?,
            };
            match *kind {
                "compile" => drop(times.compiled.insert((*name).to_owned(), cost.wall)),
                "test" => drop(times.programs.insert((*name).to_owned(), cost)),
                other => bail!("{FILE} has a line of an unknown kind, {other}"),
            }
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "compile\tkura\t20.0\t20.0\ntest\tkura:it\t60.0\t30.0\ntest\trusset:it\t90.0\t9.0\n";

    fn times(text: &str) -> Times {
        text.parse().unwrap()
    }

    #[test]
    fn a_table_that_was_written_is_read_back() {
        assert_eq!(times(&times(TABLE).to_string()), times(TABLE));
    }

    #[test]
    fn a_package_grew_when_it_takes_more_processor_and_not_when_it_waits_longer() {
        let slower = TABLE
            .replace("60.0\t30.0", "60.0\t45.0")
            .replace("90.0\t9.0", "300.0\t9.0");
        let grown = times(TABLE).grown(&times(&slower));
        assert_eq!(grown, [("kura".to_owned(), 50.0, 65.0)]);
    }

    #[test]
    fn the_report_of_cargo_is_summed_by_package() {
        let page = "<script>\nconst UNIT_DATA = [{\"name\":\"kura\",\"duration\":2.5},{\"name\":\"kura\",\"duration\":1.0},\
                    {\"name\":\"serde\",\"duration\":4.0}];\nconst CPU_USAGE = [];\n";
        let packages = of_report(page).unwrap();
        assert_eq!(
            packages.into_iter().collect::<Vec<_>>(),
            [("kura".to_owned(), 3.5), ("third-party".to_owned(), 4.0)]
        );
    }

    #[test]
    fn a_line_of_another_form_is_refused_with_its_text() {
        let error = "test\tkura:it\t60.0\n".parse::<Times>().unwrap_err().to_string();
        assert!(error.contains("kura:it"), "{error}");
    }
}
