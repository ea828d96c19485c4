//! What a test program tells on its standard output: verdicts, draws and skips.

/// What is known from the lines of a test program.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    pub(crate) failed: Vec<String>,
    /// The program printed its last line.
    pub(crate) finished: bool,
    /// Each test that ended, and how many seconds after the start of the program.
    pub(crate) ended: Vec<(String, f64)>,
    /// `<test>: <reason>` of tests that could not run here.
    pub(crate) skipped: Vec<String>,
    /// `17 of 165 <suite>, seed <hash>` of suites that enumerate.
    pub(crate) drawn: Vec<String>,
}

impl Verdicts {
    /// Takes in one line; true if it is a verdict.
    pub(crate) fn line(&mut self, line: &str, after: f64) -> bool {
        // A harness that runs one test at a time leaves its name on the line before the test prints.
        for (mark, list) in [("skipped: ", &mut self.skipped), ("draw: ", &mut self.drawn)] {
            let said = line
                .strip_prefix(mark)
                .or_else(|| Some(line.split_once(&format!(" ... {mark}"))?.1));
            list.extend(said.map(str::to_owned));
        }
        if line.starts_with("test result: ") {
            self.finished = true;
            return false;
        }
        let Some((name, verdict)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) else {
            return false;
        };
        // Some programs write their tests in columns.
        let name = name.trim_end().to_owned();
        if verdict == "FAILED" {
            self.failed.push(name.clone());
        }
        self.ended.push((name, after));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(text: &str) -> Verdicts {
        let mut verdicts = Verdicts::default();
        for line in text.lines() {
            verdicts.line(line, 1.0);
        }
        verdicts
    }

    #[test]
    fn a_failure_is_known_by_its_name() {
        let read = verdicts("test story::one ... FAILED\ntest story::two ... ok\n");
        assert_eq!(read.failed, ["story::one"]);
        assert!(!read.finished);
    }

    /// A name with the blanks of its column fits no test, so nothing was run a second time and that was taken for a success.
    #[test]
    fn a_name_in_a_column_is_known_without_the_blanks_after_it() {
        assert_eq!(verdicts("test story::one      ... FAILED\n").failed, ["story::one"]);
    }

    #[test]
    fn what_was_skipped_and_what_was_drawn_is_kept() {
        let read = verdicts("skipped: full::disk: needs root\ntest a ... draw: 17 of 165 cuts, seed abc\nok\n");
        assert_eq!(read.skipped, ["full::disk: needs root"]);
        assert_eq!(read.drawn, ["17 of 165 cuts, seed abc"]);
    }
}
