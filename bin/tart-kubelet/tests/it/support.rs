//! docs/pod-support.md says what is shown by tests. This one holds it to that.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of the table: what it is about, the answer, and the tests.
fn rows(text: &str) -> Vec<(String, String, Vec<String>)> {
    let lines = text.lines().filter(|line| line.starts_with("| ")).skip(2);
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, about, answer, tests, _, _] = cells.as_slice() else {
            return None;
        };
        let tests = tests.split('`').skip(1).step_by(2).map(str::to_owned);
        (!about.starts_with("**")).then(|| ((*about).to_owned(), (*answer).to_owned(), tests.collect()))
    };
    lines.filter_map(row).collect()
}

/// Files that a test of this name may be in.
fn files(test: &str) -> Vec<PathBuf> {
    let parts: Vec<&str> = test.split("::").collect();
    let (package, mut modules) = match parts.as_slice() {
        [package, modules @ .., _] => (*package, modules.to_vec()),
        _ => return Vec::new(),
    };
    let mut at = root();
    match package {
        "tart-kubelet" if modules.first().is_some_and(|first| ["it", "pods"].contains(first)) => {
            at.push("bin/tart-kubelet/tests");
        }
        "tart-kubelet" => at.push("bin/tart-kubelet/src"),
        _ => at.push(format!("crates/{package}/src")),
    }
    let last = modules.pop().unwrap_or_default();
    at.extend(modules);
    vec![at.join(format!("{last}.rs")), at.join(last).join("mod.rs")]
}

#[test]
fn every_yes_about_pods_has_a_test() -> Result<()> {
    let text = std::fs::read_to_string(root().join("docs/pod-support.md"))?;
    let rows = rows(&text);
    ensure!(rows.len() == 29, "{} rows", rows.len());
    let (yes, no): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, answer, _)| answer.starts_with("yes"));
    ensure!(no.iter().all(|(_, answer, _)| answer == "no"), "{no:?}");
    ensure!(yes.len() >= 26, "{} rows are yes", yes.len());
    let trials = std::fs::read_to_string(root().join("bin/tart-kubelet/tests/pods/main.rs"))?;
    for (row, _, tests) in yes {
        ensure!(!tests.is_empty(), "{row} has no test");
        for test in tests {
            let (_, name) = test.rsplit_once("::").context("a name")?;
            let found = files(&test)
                .into_iter()
                .filter_map(|path| std::fs::read_to_string(path).ok());
            let there = found.into_iter().any(|text| text.contains(&format!("fn {name}(")));
            ensure!(there, "{row}: there is no test {test}");
            if let Some(trial) = test.strip_prefix("tart-kubelet::pods::") {
                ensure!(trials.contains(&format!("{trial},")), "{row}: {test} is not run");
            }
        }
    }
    Ok(())
}
