//! The test run of the gate: all of it, several programs at once, and a second look at what failed beside everything else.
//!
//! `cargo test` runs one test program after the other. Most of our tests wait for a cluster, an emulator or a deadline, and the last test
//! of each program leaves the cores to nobody, so the programs are run here, [`PROGRAMS_AT_ONCE`] of them side by side.
//!
//! Some tests run whole clusters, and on a busy machine one of two thousand may run out of its patience. Such a test is run once more, by
//! itself. If it passes then, the gate passes and names it: a shaky test is a defect to repair, not one to hide. Two things are never
//! forgiven: more than [`FORGIVEN`] of them, and a test program that ended without saying what failed.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// So many tests may fail at first.
const FORGIVEN: usize = 3;

const PROGRAMS_AT_ONCE: usize = 2;

/// So many tests of one program run at once for each core.
const TESTS_PER_CORE: usize = 2;

/// The programs that take minutes, longest first: a long one that starts last would be waited for alone.
const LONG: &[(&str, &str)] = &[
    ("russet-scenarios", "it"),
    ("russet-conformance", "clients"),
    ("russet-capi-provider", "shell"),
    ("russet-tart-kubelet", "pods"),
    ("russet-capi-provider", "crash"),
    ("russet", "it"),
    ("russet-capi-provider", "linux"),
    ("russet-tart-kubelet", "beside"),
    ("russet-bootstrap", "it"),
    ("russet-bootstrap", "mac"),
    ("russet-capi-provider", "fleet"),
    ("russet-capi-provider", "parts"),
    ("russet-controller", "it"),
    ("russet-conformance", "it"),
    ("kura", "it"),
];

/// A test program, as cargo built it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    package: String,
    /// The target: `it`, or the name of a crate for its unit tests.
    target: String,
    file: PathBuf,
    /// The folder of its package, where cargo would run it.
    folder: PathBuf,
}

/// What one program printed and how it ended.
struct Ended {
    program: Program,
    status: ExitStatus,
    told: Told,
    took: Duration,
}

/// What is known from the lines of a test program.
#[derive(Debug, Default)]
struct Told {
    failed: Vec<String>,
    finished: bool,
}

impl Told {
    fn line(&mut self, line: &str) {
        if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            // Some programs write their tests in columns.
            self.failed.push(name.trim_end().to_owned());
        } else if line.starts_with("test result: ") {
            self.finished = true;
        }
    }
}

/// Runs every test. The names of those that passed only by themselves.
pub(crate) fn run(root: &Path) -> Result<Vec<String>> {
    let mut programs = built(root)?;
    programs.sort_by_key(|program| rank(&program.package, &program.target));
    let threads = std::env::var_os("RUST_TEST_THREADS").unwrap_or_else(|| {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (cores * TESTS_PER_CORE).to_string().into()
    });
    let waiting = Mutex::new(VecDeque::from(programs));
    let ended = Mutex::new(Vec::new());
    std::thread::scope(|scope| -> Result<()> {
        let lane = || -> Result<()> {
            loop {
                let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(program) = next else { return Ok(()) };
                let done = execute(program, &threads)?;
                ended.lock().unwrap_or_else(PoisonError::into_inner).push(done);
            }
        };
        let lanes: Vec<_> = (0..PROGRAMS_AT_ONCE).map(|_| scope.spawn(lane)).collect();
        for lane in lanes {
            lane.join().unwrap_or_else(|_| bail!("a lane of tests panicked"))?;
        }
        Ok(())
    })?;
    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    times(&ended);
    examples(root)?;
    let mut shaky = Vec::new();
    for (program, test) in failures(&ended)? {
        eprintln!("==> once more, by itself: {test} of {}", program.package);
        again(program, test)?;
        shaky.push(format!("{}: {test}", program.package));
    }
    Ok(shaky)
}

fn rank(package: &str, target: &str) -> usize {
    LONG.iter()
        .position(|long| *long == (package, target))
        .unwrap_or(LONG.len())
}

/// The test programs of the workspace; they were compiled before, so this only lists them.
fn built(root: &Path) -> Result<Vec<Program>> {
    let output = Command::new("cargo")
        .args(["test", "--workspace", "--no-run", "--quiet", "--message-format", "json"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("failed to start cargo")?;
    if !output.status.success() {
        bail!("cargo could not build the tests: {}", output.status);
    }
    let programs = programs(&String::from_utf8_lossy(&output.stdout));
    if programs.is_empty() {
        bail!("cargo lists no test program");
    }
    Ok(programs)
}

/// The test programs among the messages of cargo.
fn programs(messages: &str) -> Vec<Program> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter_map(|message| program(&message)).collect()
}

fn program(message: &Value) -> Option<Program> {
    let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
    if message.pointer("/profile/test") != Some(&Value::Bool(true)) {
        return None;
    }
    let folder = Path::new(text("/manifest_path")?).parent()?.to_owned();
    // `path+file:///folder#name@version`, or without the name where it is that of the folder.
    let (place, after) = text("/package_id")?.rsplit_once('#')?;
    let package = match after.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit_once('/')?.1,
    };
    Some(Program {
        package: package.to_owned(),
        target: text("/target/name")?.to_owned(),
        file: text("/executable")?.into(),
        folder,
    })
}

/// Runs one program to its end. Its verdicts are printed as they come, the rest when it failed.
fn execute(program: Program, threads: &OsStr) -> Result<Ended> {
    let Program { package, target, .. } = &program;
    say(&format!("==> {package}: {target}"));
    let start = Instant::now();
    let (reader, writer) = std::io::pipe().context("failed to make a pipe")?;
    let mut child = Command::new(&program.file)
        .env("RUST_TEST_THREADS", threads)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .current_dir(&program.folder)
        .stdin(Stdio::null())
        // One pipe for both: what is of which test is known only by the order.
        .stdout(writer.try_clone().context("failed to share the pipe")?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("failed to start {}", program.file.display()))?;
    let mut told = Told::default();
    let mut rest = Vec::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.context("failed to read what the tests print")?;
        let line = String::from_utf8_lossy(&line).into_owned();
        told.line(&line);
        if line.starts_with("test ") && !line.starts_with("test result: ") {
            say(&line);
        } else {
            rest.push(line);
        }
    }
    let status = child.wait().context("failed to wait for a test program")?;
    let took = start.elapsed();
    if !status.success() {
        say(&format!("---- {package}: {target} printed:"));
        say(&rest.join("\n"));
    }
    say(&format!(
        "==> {package}: {target} ended after {:.1} s: {status}",
        took.as_secs_f64()
    ));
    Ok(Ended {
        program,
        status,
        told,
        took,
    })
}

/// One write, so that the lines of two programs do not mix.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).ok();
}

/// The examples in the documentation of crates.
fn examples(root: &Path) -> Result<()> {
    let status = Command::new("cargo")
        .args(["test", "--workspace", "--doc", "--quiet"])
        .current_dir(root)
        .status()
        .context("failed to start cargo")?;
    if !status.success() {
        bail!("the examples of the documentation failed: {status}");
    }
    Ok(())
}

/// Where the time went, for whoever wants less of it.
fn times(ended: &[Ended]) {
    let mut by_time: Vec<_> = ended.iter().collect();
    by_time.sort_by_key(|one| std::cmp::Reverse(one.took));
    for one in by_time.iter().take(12) {
        let Program { package, target, .. } = &one.program;
        say(&format!("{:>7.1} s  {package}: {target}", one.took.as_secs_f64()));
    }
}

/// The tests that failed, or why they are not forgiven.
fn failures(ended: &[Ended]) -> Result<Vec<(&Program, &str)>> {
    let mut failures = Vec::new();
    for one in ended {
        let Program { package, target, .. } = &one.program;
        if one.status.success() && one.told.finished {
            continue;
        }
        if !one.told.finished || one.told.failed.is_empty() {
            bail!("{package}: {target} ended without saying what failed: {}", one.status);
        }
        failures.extend(one.told.failed.iter().map(|test| (&one.program, test.as_str())));
    }
    if failures.len() > FORGIVEN {
        bail!("{} tests failed", failures.len());
    }
    Ok(failures)
}

/// Runs one test by itself.
fn again(program: &Program, test: &str) -> Result<()> {
    let status = Command::new(&program.file)
        .args(["--exact", test, "--test-threads", "1"])
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .current_dir(&program.folder)
        .status()
        .with_context(|| format!("failed to start {}", program.file.display()))?;
    if !status.success() {
        bail!("{test} of {} fails by itself too: {status}", program.package);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    const RUN: &str = "\
running 2 tests
test story::one ... FAILED
test story::two ... ok
test result: FAILED. 1 passed; 1 failed; 0 ignored
";

    fn ended(text: &str, code: i32) -> [Ended; 1] {
        let mut told = Told::default();
        text.lines().for_each(|line| told.line(line));
        let program = Program {
            package: "russet".into(),
            target: "it".into(),
            file: "it-2".into(),
            folder: "/".into(),
        };
        [Ended {
            program,
            status: ExitStatus::from_raw(code << 8),
            told,
            took: Duration::ZERO,
        }]
    }

    fn failed(text: &str) -> Result<Vec<String>> {
        let ended = ended(text, 101);
        let failures = failures(&ended)?;
        Ok(failures.into_iter().map(|(_, test)| test.to_owned()).collect())
    }

    #[test]
    fn a_test_program_is_known_by_its_package_and_target() {
        let artifact = |profile: bool, id: &str| {
            serde_json::json!({
                "reason": "compiler-artifact", "package_id": id, "manifest_path": "/w/bin/russet/Cargo.toml",
                "target": {"name": "it"}, "profile": {"test": profile}, "executable": "/w/target/debug/deps/it-2",
            })
            .to_string()
        };
        let messages = [
            artifact(false, "path+file:///w/bin/russet#0.1.0"),
            artifact(true, "path+file:///w/bin/russet#0.1.0"),
            artifact(true, "path+file:///w/scenarios#russet-scenarios@0.1.0"),
            "not JSON".to_owned(),
        ];
        let found = programs(&messages.join("\n"));
        let packages: Vec<_> = found.iter().map(|program| program.package.as_str()).collect();
        assert_eq!(packages, ["russet", "russet-scenarios"]);
        assert_eq!(found.first().unwrap().folder, Path::new("/w/bin/russet"));
    }

    #[test]
    fn a_failure_is_known_by_its_name() {
        assert_eq!(failed(RUN).unwrap(), ["story::one"]);
    }

    /// A name with the blanks of its column fits no test, so nothing was run a second time and that was taken for a success.
    #[test]
    fn a_name_in_a_column_is_known_without_the_blanks_after_it() {
        let padded = RUN.replace("story::one ...", "story::one      ...");
        assert_eq!(failed(&padded).unwrap(), ["story::one"]);
    }

    #[test]
    fn a_program_that_died_is_not_forgiven() {
        let died = RUN.replace("test result: FAILED. 1 passed; 1 failed; 0 ignored\n", "");
        let said = failed(&died).unwrap_err().to_string();
        assert!(said.contains("without saying what failed"), "{said}");
    }

    /// A program that calls `exit(0)` in the middle ran less than all of its tests.
    #[test]
    fn a_program_that_ended_well_in_the_middle_is_not_forgiven_either() {
        assert!(failures(&ended("running 2 tests\ntest story::two ... ok\n", 0)).is_err());
    }

    #[test]
    fn many_failures_are_no_accident() {
        let run = RUN.replace(
            "test story::one ... FAILED\n",
            &"test story::one ... FAILED\n".repeat(FORGIVEN + 1),
        );
        assert_eq!(failed(&run).unwrap_err().to_string(), "4 tests failed");
    }
}
