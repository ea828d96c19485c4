//! How obtaining is shown. The store reports facts; a [`Progress`] decides how they look.

use std::{
    collections::HashMap,
    io::{IsTerminal, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};

use crate::Origin;

/// What is being done for a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    /// Another process (or task, if the pid is ours) is obtaining it.
    Waiting { pid: Option<u32> },
    /// `total` bytes of this URL.
    Downloading { url: String, total: Option<u64> },
    /// Go fetches the modules it needs.
    Resolving,
    /// `total` Go packages are to be compiled; those in Go's cache are not counted.
    Compiling { total: u64 },
    /// Packages are fetched and unpacked.
    Unpacking { packages: Vec<String> },
}

impl Activity {
    fn total(&self) -> Option<u64> {
        match self {
            Self::Downloading { total, .. } => *total,
            Self::Compiling { total } => Some(*total),
            Self::Waiting { .. } | Self::Resolving | Self::Unpacking { .. } => None,
        }
    }

    fn sentence(&self) -> String {
        match self {
            Self::Waiting { pid: Some(pid) } if *pid == std::process::id() => {
                "waiting for another task of this process to finish building it".to_owned()
            }
            Self::Waiting { pid: Some(pid) } => format!("waiting for another russet (pid {pid}) to finish building it"),
            Self::Waiting { pid: None } => "waiting for another russet to finish building it".to_owned(),
            Self::Downloading {
                url,
                total: Some(total),
            } => format!("downloading {url} ({})", HumanBytes(*total)),
            Self::Downloading { url, total: None } => format!("downloading {url}"),
            Self::Resolving => "fetching Go modules".to_owned(),
            Self::Compiling { total: 0 } => "linking (everything is compiled already)".to_owned(),
            Self::Compiling { total } => format!("compiling {total} Go packages"),
            Self::Unpacking { packages } => format!("unpacking {}", packages.join(", ")),
        }
    }
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Ready { origin: Origin, tools: Vec<String> },
    Failed,
}

/// A watcher of [`Store::ensure`](crate::Store::ensure). Parts are reported by name; tools that are already there are not reported.
pub trait Progress: Send + Sync {
    /// A part begins an activity, or goes on to the next one.
    fn start(&self, part: &str, activity: &Activity);
    /// `done` of the activity's total, and the thing at hand (a package, a module).
    fn advance(&self, part: &str, done: u64, detail: &str);
    /// Something worth telling that stops nothing: a source that failed, a version that differs.
    fn note(&self, part: &str, message: &str);
    /// The last report of a part.
    fn finish(&self, part: &str, outcome: &Outcome);
}

/// Shows nothing. Notes still reach the log.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn start(&self, _part: &str, _activity: &Activity) {}
    fn advance(&self, _part: &str, _done: u64, _detail: &str) {}
    fn note(&self, part: &str, message: &str) {
        tracing::warn!(part, "{message}");
    }
    fn finish(&self, _part: &str, _outcome: &Outcome) {}
}

/// Bars in a terminal; elsewhere (a pipe, CI) one plain line per step and one every 15 s, so that nobody takes it for stuck.
#[derive(Debug)]
pub struct Bars {
    multi: Option<MultiProgress>,
    rows: Mutex<HashMap<String, Row>>,
}

#[derive(Debug)]
struct Row {
    bar: Option<ProgressBar>,
    activity: Activity,
    began: Instant,
    printed: Instant,
}

const LINE_EVERY: Duration = Duration::from_secs(15);

impl Bars {
    /// On stderr, as bars if that is a terminal.
    pub fn stderr() -> Self {
        Self {
            multi: std::io::stderr().is_terminal().then(MultiProgress::new),
            rows: Mutex::default(),
        }
    }

    /// Bars among others the caller shows.
    pub fn within(multi: MultiProgress) -> Self {
        Self {
            multi: Some(multi),
            rows: Mutex::default(),
        }
    }

    /// Plain lines on stderr.
    pub fn lines() -> Self {
        Self {
            multi: None,
            rows: Mutex::default(),
        }
    }

    fn line(&self, part: &str, text: &str) {
        match &self.multi {
            Some(multi) => {
                // Printing above the bars fails only when the terminal is gone, and then nobody reads it.
                let _ = multi.println(format!("{part}: {text}"));
            }
            None => {
                let _ = writeln!(std::io::stderr(), "{part}: {text}");
            }
        }
    }

    fn style(activity: &Activity) -> ProgressStyle {
        let template = match activity {
            Activity::Downloading { total: Some(_), .. } => {
                "{prefix:>16} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} eta {eta} {wide_msg}"
            }
            Activity::Compiling { total } if *total > 0 => {
                "{prefix:>16} [{bar:30}] {pos}/{len} packages {elapsed} {wide_msg}"
            }
            _ => "{prefix:>16} {spinner} {elapsed} {wide_msg}",
        };
        ProgressStyle::with_template(template)
            .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "))
    }
}

impl Progress for Bars {
    fn start(&self, part: &str, activity: &Activity) {
        let now = Instant::now();
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let row = rows.entry(part.to_owned()).or_insert_with(|| Row {
            bar: self.multi.as_ref().map(|multi| {
                let bar = multi.add(ProgressBar::no_length());
                bar.set_prefix(part.to_owned());
                bar.enable_steady_tick(Duration::from_millis(120));
                bar
            }),
            activity: activity.clone(),
            began: now,
            printed: now,
        });
        row.activity = activity.clone();
        row.printed = now;
        match &row.bar {
            Some(bar) => {
                bar.set_style(Self::style(activity));
                match activity.total() {
                    Some(total) => bar.set_length(total),
                    None => bar.unset_length(),
                }
                bar.set_position(0);
                bar.set_message(activity.sentence());
            }
            None => self.line(part, &activity.sentence()),
        }
    }

    fn advance(&self, part: &str, done: u64, detail: &str) {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(row) = rows.get_mut(part) else { return };
        if let Some(bar) = &row.bar {
            bar.set_position(done);
            if !detail.is_empty() {
                bar.set_message(detail.to_owned());
            }
        } else if row.printed.elapsed() >= LINE_EVERY {
            row.printed = Instant::now();
            let seconds = row.began.elapsed().as_secs();
            let text = match (&row.activity, row.activity.total()) {
                (Activity::Downloading { .. }, Some(total)) => {
                    format!("{} of {} after {seconds} s", HumanBytes(done), HumanBytes(total))
                }
                (Activity::Downloading { .. }, None) => format!("{} after {seconds} s", HumanBytes(done)),
                (_, Some(total)) if total > 0 => format!("{done} of {total} after {seconds} s; {detail}"),
                _ => format!("{seconds} s; {detail}"),
            };
            drop(rows);
            self.line(part, &text);
        }
    }

    fn note(&self, part: &str, message: &str) {
        self.line(part, message);
    }

    fn finish(&self, part: &str, outcome: &Outcome) {
        let row = self.rows.lock().unwrap_or_else(PoisonError::into_inner).remove(part);
        let seconds = row.as_ref().map_or(0, |row| row.began.elapsed().as_secs());
        if let Some(bar) = row.and_then(|row| row.bar) {
            bar.finish_and_clear();
        }
        match outcome {
            Outcome::Ready { origin, tools } => {
                self.line(
                    part,
                    &format!("ready after {seconds} s ({origin}: {})", tools.join(", ")),
                );
            }
            Outcome::Failed => self.line(part, &format!("failed after {seconds} s")),
        }
    }
}
