//! What a test says that cannot run on this machine: one line, `skipped: <test>: <reason>`.
//!
//! The standard harness knows no test that is skipped at run time, so such a test returns early and counts as passed. The gate sums these lines up
//! by name at its end. They are written to the standard output itself, since the harness keeps what a test that passes prints with `println!`.

use std::fmt::Display;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// The name of the test that this is written in, as its harness prints it.
#[macro_export]
macro_rules! test_name {
    () => {{
        fn here() {}
        $crate::name_of(std::any::type_name_of_val(&here))
    }};
}

/// From `program::module::test::{{closure}}::here`.
#[doc(hidden)]
#[must_use]
pub fn name_of(path: &'static str) -> &'static str {
    let test = path.trim_end_matches("::here").trim_end_matches("::{{closure}}");
    test.split_once("::").map_or(test, |(_program, test)| test)
}

/// Says that this test does nothing here, and why.
pub fn skipped(test: &str, reason: &str) {
    // One write of a whole line: other tests print too.
    let line = format!("skipped: {test}: {}\n", reason.replace('\n', " "));
    std::io::stdout().write_all(line.as_bytes()).ok();
}

/// Whether the test can run; a reason why not is said.
pub fn can_run<E: Display>(test: &str, possible: Result<(), E>) -> bool {
    possible.map_err(|reason| skipped(test, &reason.to_string())).is_ok()
}

/// Whether this is root; a test without it is skipped.
pub fn needs_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    can_run(test, if root { Ok(()) } else { Err("it needs root") })
}

/// A command that runs `program` without the rights of root: as `nobody` where the test runs as root, and as the user of the test elsewhere.
/// None, and a line about it, where `nobody` cannot run the program.
pub fn without_root(test: &str, program: &Path) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        return Some(Command::new(program));
    }
    let nobody = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]);
        command.arg(program);
        command
    };
    let able = nobody().arg("--list").output();
    if !able.is_ok_and(|output| output.status.success()) {
        skipped(test, &format!("another user cannot run {}", program.display()));
        return None;
    }
    Some(nobody())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_knows_its_name_also_in_futures_and_closures() {
        let name = "tests::a_test_knows_its_name_also_in_futures_and_closures";
        assert_eq!(test_name!(), name);
        let named = |inner: &dyn Fn() -> &'static str| inner();
        assert_eq!(named(&|| test_name!()), name);
        let mut future = Box::pin(async { test_name!() });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert_eq!(future.as_mut().poll(&mut context), std::task::Poll::Ready(name));
    }

    /// Run by itself, so that its output is what the harness lets through without `--nocapture`.
    #[test]
    fn what_is_skipped_is_said_past_the_harness() {
        const CHILD: &str = "tests::child_that_cannot_run";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", CHILD, "--include-ignored"])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            said.contains(&format!("skipped: {CHILD}: no such disk here\n")),
            "{said}"
        );
    }

    #[test]
    #[ignore = "the body of another test, since it is skipped always"]
    fn child_that_cannot_run() {
        assert!(!can_run(test_name!(), Err("no such\ndisk here")));
    }
}
