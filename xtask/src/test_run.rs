//! The test run of the gate: all of it, and a second look at what failed beside everything else.
//!
//! Some tests run whole clusters, and on a busy machine one of two thousand may run out of its patience. Such a test is run once more, by
//! itself. If it passes then, the gate passes and names it: a shaky test is a defect to repair, not one to hide. Two things are never
//! forgiven: more than [`FORGIVEN`] of them, and a test program that ended without saying what failed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// So many tests may fail at first.
const FORGIVEN: usize = 3;

/// Most tests wait for a cluster, an emulator or a deadline and leave the cores idle, so more of them run at once than there are cores.
const TESTS_PER_CORE: usize = 2;

/// A test program some tests of which failed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Failed {
    program: String,
    tests: Vec<String>,
}

/// What the output of `cargo test --no-fail-fast` told.
#[derive(Debug, Default)]
struct Told {
    running: Option<Failed>,
    failed: Vec<Failed>,
    /// The packages cargo lists at the end, in the order of their programs.
    packages: Vec<String>,
    lists_packages: bool,
}

/// The program cargo starts, if this is how it says so. Tests print what they like, so it has to look like nothing else.
fn started(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("     Running ")?;
    let (_, program) = rest.split_once(".rs (")?;
    program
        .strip_suffix(')')
        .filter(|program| program.starts_with("target/"))
}

impl Told {
    fn line(&mut self, line: &str) {
        if let Some(program) = started(line) {
            self.running = Some(Failed {
                program: program.to_owned(),
                tests: Vec::new(),
            });
        } else if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
            // Some programs write their tests in columns.
            .map(str::trim_end)
        {
            if let Some(running) = &mut self.running {
                running.tests.push(name.to_owned());
            }
        } else if line.starts_with("test result: FAILED") {
            self.failed.extend(self.running.take());
        } else if line.starts_with("error: ") && line.trim_end().ends_with("failed:") {
            self.lists_packages = true;
        } else if self.lists_packages {
            let package = line
                .trim()
                .strip_prefix("`-p ")
                .and_then(|rest| rest.split([' ', '`']).next());
            self.packages.extend(package.map(str::to_owned));
        }
    }

    /// What failed, with the package it belongs to; or why that cannot be told.
    fn failures(self) -> Result<Vec<(String, Failed)>> {
        if self.failed.is_empty() || self.failed.len() != self.packages.len() {
            bail!(
                "a test program ended without saying what failed ({} said so, cargo lists {})",
                self.failed.len(),
                self.packages.len()
            );
        }
        let count: usize = self.failed.iter().map(|failed| failed.tests.len()).sum();
        if count > FORGIVEN || self.failed.iter().any(|failed| failed.tests.is_empty()) {
            bail!("{count} tests failed");
        }
        Ok(self.packages.into_iter().zip(self.failed).collect())
    }
}

/// Runs every test. The names of those that passed only by themselves.
pub(crate) fn run(root: &Path) -> Result<Vec<String>> {
    let (reader, writer) = std::io::pipe().context("failed to make a pipe")?;
    let mut cargo = Command::new("cargo");
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        cargo.env("RUST_TEST_THREADS", (cores * TESTS_PER_CORE).to_string());
    }
    let mut cargo = cargo
        .args(["test", "--workspace", "--no-fail-fast"])
        .current_dir(root)
        // One pipe for both: which program a line is of is known only by the order.
        .stdout(writer.try_clone().context("failed to share the pipe")?)
        .stderr(writer)
        .stdin(Stdio::null())
        .spawn()
        .context("failed to start cargo")?;
    let mut told = Told::default();
    let mut out = std::io::stdout().lock();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.context("failed to read what the tests print")?;
        out.write_all(&line).and_then(|()| out.write_all(b"\n")).ok();
        told.line(&String::from_utf8_lossy(&line));
    }
    drop(out);
    if cargo.wait().context("failed to wait for cargo")?.success() {
        return Ok(Vec::new());
    }
    let mut shaky = Vec::new();
    for (package, failed) in told.failures()? {
        for test in &failed.tests {
            eprintln!("==> once more, by itself: {test} of {package}");
            again(root, &package, &failed.program, test)?;
            shaky.push(format!("{package}: {test}"));
        }
    }
    Ok(shaky)
}

/// Runs one test by itself, where cargo would run it.
fn again(root: &Path, package: &str, program: &str, test: &str) -> Result<()> {
    let folder = folder(root, package)?;
    let status = Command::new(root.join(program))
        .args(["--exact", test, "--test-threads", "1"])
        .env("CARGO_MANIFEST_DIR", &folder)
        .current_dir(&folder)
        .status()
        .with_context(|| format!("failed to start {program}"))?;
    if !status.success() {
        bail!("{test} of {package} fails by itself too: {status}");
    }
    Ok(())
}

fn folder(root: &Path, package: &str) -> Result<PathBuf> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("failed to ask cargo about the packages")?;
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).context("cargo's metadata is not JSON")?;
    let packages = all.get("packages").and_then(serde_json::Value::as_array);
    let manifest = packages
        .into_iter()
        .flatten()
        .find(|one| one.get("name").and_then(serde_json::Value::as_str) == Some(package))
        .and_then(|one| one.get("manifest_path")?.as_str());
    let folder = manifest.and_then(|manifest| Path::new(manifest).parent());
    Ok(folder
        .with_context(|| format!("no package {package} in the workspace"))?
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "\
     Running unittests src/lib.rs (target/debug/deps/a-1)
test fine ... ok
test result: ok. 1 passed; 0 failed; 0 ignored
     Running tests/it/main.rs (target/debug/deps/it-2)
test story::one ... FAILED
test story::two ... ok
test result: FAILED. 1 passed; 1 failed; 0 ignored
error: test failed, to rerun pass `-p russet --test it`
   Doc-tests a
test result: ok. 0 passed; 0 failed; 0 ignored
error: 1 target failed:
    `-p russet --test it`
";

    fn told(text: &str) -> Told {
        let mut told = Told::default();
        text.lines().for_each(|line| told.line(line));
        told
    }

    #[test]
    fn a_failure_is_known_by_its_program_and_package() {
        let failures = told(RUN).failures().unwrap();
        let failed = Failed {
            program: "target/debug/deps/it-2".into(),
            tests: vec!["story::one".into()],
        };
        assert_eq!(failures, [("russet".to_owned(), failed)]);
    }

    /// A name with the blanks of its column fits no test, so nothing was run a second time and that was taken for a success.
    #[test]
    fn a_name_in_a_column_is_known_without_the_blanks_after_it() {
        let padded = RUN.replace("story::one ...", "story::one      ...");
        let failures = told(&padded).failures().unwrap();
        assert_eq!(failures.first().unwrap().1.tests, ["story::one"]);
    }

    #[test]
    fn a_program_that_died_is_not_forgiven() {
        let died = RUN.replace("test result: FAILED. 1 passed; 1 failed; 0 ignored\n", "");
        let said = told(&died).failures().unwrap_err().to_string();
        assert!(said.contains("without saying what failed"), "{said}");
    }

    #[test]
    fn what_fails_beside_another_that_died_is_not_forgiven_either() {
        let two = RUN.replace("1 target failed:\n", "2 targets failed:\n    `-p kura --lib`\n");
        assert!(told(&two).failures().is_err());
    }

    #[test]
    fn many_failures_are_no_accident() {
        let run = RUN.replace(
            "test story::one ... FAILED\n",
            &"test story::one ... FAILED\n".repeat(FORGIVEN + 1),
        );
        assert_eq!(told(&run).failures().unwrap_err().to_string(), "4 tests failed");
    }
}
