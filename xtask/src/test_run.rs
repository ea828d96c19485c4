//! The test run of the gate: all test programs, several at once, and a second look at what failed beside everything else.
//!
//! `cargo test` runs one test program after the other; here they run side by side, as [`schedule`] decides from what they took before.
//!
//! Some tests run whole clusters, and on a busy machine one of three thousand may run out of its patience. Such a test is run once more,
//! by itself. If it passes then, the gate passes and names it: a shaky test is a defect to repair, not one to hide. Two things are never
//! forgiven: more than [`FORGIVEN`] of them, and a test program that ended without saying what failed.

mod program;
mod schedule;
mod verdicts;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

pub(crate) use program::{Program, built};
pub(crate) use schedule::Cost;
use verdicts::Verdicts;

use crate::times::Times;

/// So many tests may fail at first.
const FORGIVEN: usize = 3;

/// So many tests of one program run at once for each core.
const TESTS_PER_CORE: usize = 2;

/// Tests that took longer are named at the end.
const SLOW: f64 = 10.0;

/// What one program printed and how it ended.
pub(crate) struct Ended {
    pub(crate) program: Program,
    pub(crate) cost: Cost,
    status: ExitStatus,
    verdicts: Verdicts,
    slow: Vec<(String, f64)>,
}

/// What the run found.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) ended: Vec<Ended>,
    /// Tests that passed only by themselves.
    pub(crate) shaky: Vec<String>,
}

/// Runs these programs with these variables in their environment. An error means that the gate fails; what ran is in `outcome` even so.
pub(crate) fn run(
    programs: Vec<Program>,
    environment: &[(&'static str, String)],
    known: &Times,
    outcome: &mut Outcome,
) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = std::env::var_os("RUST_TEST_THREADS")
        .and_then(|threads| threads.to_str()?.parse().ok())
        .unwrap_or(cores * TESTS_PER_CORE);
    let cost = |program: &Program| known.of(&program.name()).unwrap_or(Cost::UNKNOWN);
    let mut waiting: Vec<(Program, Cost)> = programs
        .into_iter()
        .map(|program| {
            let cost = cost(&program);
            (program, cost)
        })
        .collect();
    let mut running: Vec<(String, Cost)> = Vec::new();
    #[expect(clippy::cast_precision_loss, reason = "a handful of processors")]
    let processors = cores as f64;
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| -> Result<()> {
        loop {
            let costs: Vec<Cost> = waiting.iter().map(|(_, cost)| *cost).collect();
            let busy: Vec<Cost> = running.iter().map(|(_, cost)| *cost).collect();
            if let Some(position) = schedule::next(&costs, &busy, processors) {
                let (program, cost) = waiting.swap_remove(position);
                running.push((program.name(), cost));
                let sender = sender.clone();
                scope.spawn(move || {
                    // The receiver is gone when another program could not be run at all.
                    sender.send(execute(program, threads, environment)).ok();
                });
            } else if running.is_empty() {
                return Ok(());
            } else {
                let ended = receiver.recv().context("a test program has no thread any more")??;
                running.retain(|(name, _)| *name != ended.program.name());
                outcome.ended.push(ended);
            }
        }
    })?;
    let Outcome { ended, shaky } = outcome;
    for (program, test) in failures(ended)? {
        eprintln!("==> once more, by itself: {test} of {}", program.package);
        again(program, test, environment)?;
        shaky.push(format!("{}: {test}", program.package));
    }
    Ok(())
}

/// Runs one program to its end. Its verdicts are printed as they come, the rest when it failed.
fn execute(program: Program, threads: usize, environment: &[(&'static str, String)]) -> Result<Ended> {
    let name = program.name();
    say(&format!("==> {name}"));
    let order = program.tests()?;
    let start = Instant::now();
    let (reader, writer) = std::io::pipe().context("failed to make a pipe")?;
    let mut child = program
        .command()
        .args(&program.only)
        .env("RUST_TEST_THREADS", threads.to_string())
        .envs(environment.iter().map(|(key, value)| (key, value)))
        // One pipe for both: what is of which test is known only by the order.
        .stdout(writer.try_clone().context("failed to share the pipe")?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("failed to start {}", program.file.display()))?;
    let mut verdicts = Verdicts::default();
    let mut rest = Vec::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.context("failed to read what the tests print")?;
        let line = String::from_utf8_lossy(&line).into_owned();
        if verdicts.line(&line, start.elapsed().as_secs_f64()) {
            say(&line);
        } else {
            rest.push(line);
        }
    }
    let processor = processor_time(&child).unwrap_or_default();
    let status = child.wait().context("failed to wait for a test program")?;
    let cost = Cost {
        wall: start.elapsed().as_secs_f64(),
        processor: processor.as_secs_f64(),
    };
    if !status.success() {
        say(&format!("---- {name} printed:"));
        say(&rest.join("\n"));
    }
    say(&format!(
        "==> {name} ended after {:.1} s, {:.1} s of processor: {status}",
        cost.wall, cost.processor
    ));
    let mut slow = schedule::durations(&order, threads, &verdicts.ended);
    slow.retain(|(_, took)| *took > SLOW);
    Ok(Ended {
        program,
        cost,
        status,
        verdicts,
        slow,
    })
}

/// The processor time of a child that ended, and of all that it waited for; Linux only.
fn processor_time(child: &Child) -> Option<Duration> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let pid = Pid::from_child(child);
    // The child stays a zombie, whose figures are the final ones.
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(4);
    let ticks: u64 = times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(
        ticks * 1000 / rustix::param::clock_ticks_per_second(),
    ))
}

/// One write, so that the lines of two programs do not mix.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).ok();
}

/// The examples in the documentation of crates.
pub(crate) fn examples(root: &Path) -> Result<()> {
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

impl Outcome {
    /// Where the time of the tests went, what was drawn, and what could not run here.
    pub(crate) fn print(&self) {
        let mut by_time: Vec<&Ended> = self.ended.iter().collect();
        by_time.sort_by(|left, right| right.cost.wall.total_cmp(&left.cost.wall));
        say("test programs: seconds, of which processor");
        for one in by_time.iter().take(16) {
            say(&format!(
                "{:>7.1} {:>7.1}  {}",
                one.cost.wall,
                one.cost.processor,
                one.program.name()
            ));
        }
        let mut slow: Vec<_> = self.ended.iter().flat_map(|one| &one.slow).collect();
        slow.sort_by(|left, right| right.1.total_cmp(&left.1));
        say(&format!("{} tests took over {SLOW} s:", slow.len()));
        for (test, took) in slow.iter().take(24) {
            say(&format!("{took:>7.1}  {test}"));
        }
        for drawn in self.ended.iter().flat_map(|one| &one.verdicts.drawn) {
            say(&format!("draw: {drawn}"));
        }
        let skipped = self.skipped();
        say(&format!("{} tests could not run here", skipped.len()));
        for (program, said) in &skipped {
            say(&format!("skipped: {program}: {said}"));
        }
        for test in &self.shaky {
            say(&format!("shaky: passed only by itself: {test}"));
        }
    }

    /// Tests that could not run here, by program.
    pub(crate) fn skipped(&self) -> Vec<(String, &str)> {
        let of = |one: &'_ Ended| one.program.name();
        let all = self.ended.iter();
        all.flat_map(|one| one.verdicts.skipped.iter().map(move |said| (of(one), said.as_str())))
            .collect()
    }
}

/// The tests that failed, or why they are not forgiven.
fn failures(ended: &[Ended]) -> Result<Vec<(&Program, &str)>> {
    let mut failures = Vec::new();
    for one in ended {
        if one.status.success() && one.verdicts.finished {
            continue;
        }
        if !one.verdicts.finished || one.verdicts.failed.is_empty() {
            bail!(
                "{} ended without saying what failed: {}",
                one.program.name(),
                one.status
            );
        }
        failures.extend(one.verdicts.failed.iter().map(|test| (&one.program, test.as_str())));
    }
    if failures.len() > FORGIVEN {
        bail!("{} tests failed", failures.len());
    }
    Ok(failures)
}

/// Runs one test by itself.
fn again(program: &Program, test: &str, environment: &[(&'static str, String)]) -> Result<()> {
    let status = program
        .command()
        .args(["--exact", test, "--test-threads", "1"])
        .envs(environment.iter().map(|(key, value)| (key, value)))
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
        let mut verdicts = Verdicts::default();
        for line in text.lines() {
            verdicts.line(line, 0.0);
        }
        [Ended {
            program: Program {
                package: "russet".into(),
                target: "it".into(),
                file: "it-2".into(),
                folder: "/".into(),
                only: Vec::new(),
            },
            cost: Cost::UNKNOWN,
            status: ExitStatus::from_raw(code << 8),
            verdicts,
            slow: Vec::new(),
        }]
    }

    fn failed(text: &str) -> Result<Vec<String>> {
        let ended = ended(text, 101);
        let failures = failures(&ended)?;
        Ok(failures.into_iter().map(|(_, test)| test.to_owned()).collect())
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
