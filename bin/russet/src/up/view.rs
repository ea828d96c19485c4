//! What `up` shows while it works: one line per part with a spinner in a terminal, plain lines elsewhere.
//!
//! The view is a function of [`Run`]: the foreground feeds it from the supervisor, `--detach` from `status.json`.

use super::news::{self, News};
use crate::config::Stream;
use crate::state::run::{Part, PartState, Run, Step};
use crate::table::{Colour, Tone};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

/// How a line of the progress view stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    Working,
    Done,
    Broken,
}

/// One line of the progress view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) mark: Mark,
    pub(super) text: String,
}

fn step_line(step: &Step) -> Line {
    let (mark, text) = match step.seconds {
        Some(seconds) => (
            Mark::Done,
            format!("{} {seconds:.1} s", step.outcome.as_deref().unwrap_or("done")),
        ),
        None => (Mark::Working, String::new()),
    };
    Line {
        name: step.name.clone(),
        mark,
        text,
    }
}

fn part_line(part: &Part) -> Line {
    let again = if part.restarts > 0 {
        format!(" (restart {})", part.restarts)
    } else {
        String::new()
    };
    let (mark, text) = match part.state {
        PartState::Running => {
            let seconds = part
                .ready_after_seconds
                .map(|s| format!(" {s:.1} s"))
                .unwrap_or_default();
            (Mark::Done, format!("ready{seconds}{again}"))
        }
        PartState::Starting => (Mark::Working, format!("starting{again}")),
        PartState::BackingOff => (Mark::Working, format!("ended, waiting to start it again{again}")),
        PartState::Stopped => (Mark::Done, "stopped".to_owned()),
        PartState::Failed => (Mark::Broken, "failed".to_owned()),
    };
    Line {
        name: part.name.clone(),
        mark,
        text,
    }
}

/// The lines in the order in which the work began.
pub(super) fn lines(run: &Run) -> Vec<Line> {
    run.parts
        .iter()
        .map(part_line)
        .chain(run.steps.iter().map(step_line))
        .collect()
}

/// Where news go.
#[derive(Debug)]
pub(super) struct View {
    stream: Stream,
    before: Option<Run>,
    bars: Option<Bars>,
}

#[derive(Debug)]
struct Bars {
    multi: MultiProgress,
    rows: HashMap<String, (ProgressBar, Line)>,
}

impl View {
    /// On standard error, as the stream allows.
    pub(super) fn new(stream: Stream) -> Self {
        let bars = stream.terminal.then(|| Bars {
            multi: MultiProgress::new(),
            rows: HashMap::new(),
        });
        Self {
            stream,
            before: None,
            bars,
        }
    }

    /// Shows what is new in `run`.
    pub(super) fn update(&mut self, run: &Run) {
        match &mut self.bars {
            Some(bars) => lines(run)
                .into_iter()
                .for_each(|line| bars.show(line, self.stream.colour)),
            None => {
                for news in news::between(self.before.as_ref(), run) {
                    self.tell(&news);
                }
            }
        }
        self.before = Some(run.clone());
    }

    /// A remark that belongs to no part.
    pub(super) fn note(&self, text: &str) {
        self.line(&self.stream.colour.paint(Tone::Warn, text));
    }

    /// Ends the progress view: from now on news are lines, above which nothing moves.
    pub(super) fn settle(&mut self) {
        if let Some(bars) = self.bars.take() {
            for (bar, _) in bars.rows.values() {
                bar.abandon();
            }
            // The cursor is still behind the last line.
            let _ = writeln!(std::io::stderr());
        }
    }

    fn tell(&self, news: &News) {
        self.line(&format!(
            "{:<26} {}",
            news.name,
            self.stream.colour.paint(news.tone, &news.text)
        ));
    }

    fn line(&self, text: &str) {
        // Standard error that is gone cannot be told so.
        let _ = match &self.bars {
            Some(bars) => bars.multi.println(text),
            None => writeln!(std::io::stderr(), "{text}"),
        };
    }
}

impl Bars {
    fn show(&mut self, line: Line, colour: Colour) {
        match self.rows.get_mut(&line.name) {
            Some((_, old)) if *old == line => {}
            Some((bar, old)) => {
                if old.mark != Mark::Working && line.mark == Mark::Working {
                    bar.reset();
                }
                draw(bar, &line, colour);
                *old = line;
            }
            None => {
                let bar = self.multi.add(ProgressBar::new_spinner());
                bar.set_prefix(line.name.clone());
                draw(&bar, &line, colour);
                self.rows.insert(line.name.clone(), (bar, line));
            }
        }
    }
}

fn draw(bar: &ProgressBar, line: &Line, colour: Colour) {
    let (template, message) = match line.mark {
        Mark::Working => ("  {spinner} {prefix:<26} {msg} {elapsed}", line.text.clone()),
        Mark::Done => ("  {msg}", finished(colour, Tone::Good, "✓", line)),
        Mark::Broken => ("  {msg}", finished(colour, Tone::Bad, "✗", line)),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    if line.mark == Mark::Working {
        bar.set_message(message);
        bar.enable_steady_tick(Duration::from_millis(100));
    } else {
        bar.finish_with_message(message);
    }
}

fn finished(colour: Colour, tone: Tone, sign: &str, line: &Line) -> String {
    format!("{} {:<26} {}", colour.paint(tone, sign), line.name, line.text)
}
