//! The share of an enumerating suite (crash points, schedules, kill positions) that one run plays.
//!
//! `make test` sets `DRAW` to the hash of the commit. The names of a suite's cases fall into ten lots, and the hash draws one of
//! them: each commit plays about a tenth, and the same hash always plays the same. `DEPTH=full` plays all cases, as does
//! a run without `DRAW`: `cargo test` by hand. Names that a suite lists in its `always.txt` are played every time.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

const LOTS: u64 = 10;

/// What one run plays of one suite.
#[derive(Debug)]
pub struct Draw {
    suite: String,
    /// `None`: everything.
    seed: Option<String>,
    always: BTreeSet<String>,
    offered: AtomicUsize,
    taken: AtomicUsize,
}

impl Draw {
    /// The draw of this run, as `DEPTH` and `DRAW` say. `always` has one name per line; lines that begin with `#` are comments.
    #[expect(
        clippy::disallowed_methods,
        reason = "the depth of a test run is given by its environment alone"
    )]
    pub fn of(suite: &str, always: &str) -> Self {
        let full = std::env::var("DEPTH").is_ok_and(|depth| depth == "full");
        let seed = std::env::var("DRAW").ok().filter(|hash| !full && !hash.is_empty());
        Self::new(suite, always, seed)
    }

    fn new(suite: &str, always: &str, seed: Option<String>) -> Self {
        let names = always.lines().map(str::trim);
        let names = names.filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self {
            suite: suite.to_owned(),
            seed,
            always: names.map(ToOwned::to_owned).collect(),
            offered: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    /// The cases of a suite that this run plays, by the names that `Debug` gives them. Prints how many these are.
    pub fn cases<T: fmt::Debug>(suite: &str, always: &str, cases: impl IntoIterator<Item = T>) -> Vec<T> {
        let draw = Self::of(suite, always);
        let drawn = cases
            .into_iter()
            .filter(|case| draw.takes(&format!("{case:?}")))
            .collect();
        draw.report();
        drawn
    }

    /// Whether this run plays the case. Counts, so each case is asked for once.
    pub fn takes(&self, case: &str) -> bool {
        let drawn = |seed: &String| lot(seed, &self.suite) == lot(&self.suite, case);
        let takes = self.seed.as_ref().is_none_or(drawn) || self.always.contains(case);
        self.offered.fetch_add(1, Ordering::Relaxed);
        self.taken.fetch_add(usize::from(takes), Ordering::Relaxed);
        takes
    }

    /// Prints what was drawn past the test harness, which keeps the output of tests that pass to itself.
    pub fn report(&self) {
        // A closed standard output is no fault of the suite.
        drop(writeln!(std::io::stdout(), "{self}"));
    }
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (taken, offered) = (self.taken.load(Ordering::Relaxed), self.offered.load(Ordering::Relaxed));
        match &self.seed {
            None => write!(f, "draw: all {offered} {}", self.suite),
            Some(seed) => write!(f, "draw: {taken} of {offered} {}, seed {seed:.12}", self.suite),
        }
    }
}

/// FNV-1a of both words, which no release of Rust changes.
fn lot(first: &str, second: &str) -> u64 {
    let bytes = first.bytes().chain([0]).chain(second.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The lowest bits of FNV depend on little of what went in.
    (hash ^ (hash >> 32)) % LOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "c6526f747d617525ee1c5c1abd91f4e129293e70";

    fn cases() -> impl Iterator<Item = String> {
        (0..200).map(|number| format!("Cloud POST reinstall {number} DieWhile"))
    }

    fn drawn(always: &str, seed: Option<&str>) -> Vec<String> {
        let draw = Draw::new("macs", always, seed.map(ToOwned::to_owned));
        cases().filter(|case| draw.takes(case)).collect()
    }

    #[test]
    fn the_same_hash_draws_the_same_cases() {
        assert_eq!(drawn("", Some(COMMIT)), drawn("", Some(COMMIT)));
        assert_ne!(drawn("", Some(COMMIT)), drawn("", Some("21abaee")));
    }

    #[test]
    fn ten_lots_partition_the_cases() {
        let mut sizes = [0; 10];
        for case in cases() {
            sizes[usize::try_from(lot("macs", &case)).unwrap()] += 1;
        }
        assert_eq!(sizes.iter().sum::<i32>(), 200);
        assert!(sizes.iter().all(|size| (5..=40).contains(size)), "{sizes:?}");
    }

    #[test]
    fn sixty_four_commits_draw_every_case() {
        let commits = (0..64_u64).map(|number| format!("{:040x}", (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let all: BTreeSet<String> = commits.flat_map(|commit| drawn("", Some(&commit))).collect();
        assert_eq!(all.len(), 200);
    }

    #[test]
    fn a_listed_point_is_always_drawn() {
        let listed = cases().find(|case| !drawn("", Some(COMMIT)).contains(case)).unwrap();
        let always = format!("# a point that ever failed goes in here\n\n{listed}\n");
        assert!(drawn(&always, Some(COMMIT)).contains(&listed));
    }

    #[test]
    fn without_a_hash_or_at_full_depth_everything_is_drawn_and_the_report_says_so() {
        assert_eq!(drawn("", None), cases().collect::<Vec<_>>());
        let draw = Draw::new("macs", "", None);
        assert!(draw.takes("one") && draw.takes("two"));
        assert_eq!(draw.to_string(), "draw: all 2 macs");
        let draw = Draw::new("macs", "one", Some(COMMIT.to_owned()));
        assert!(draw.takes("one"));
        assert_eq!(draw.to_string(), "draw: 1 of 1 macs, seed c6526f747d61");
    }
}
