//! The figures as Markdown. Pure, so that the tables are tested without a server.

use super::meter::Cpu;
use super::row::Target;
use super::stats::median;
use crate::fleet::table::Head;
use std::fmt::Write as _;

/// One measured slot: one row, one system, one round.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu: Cpu,
    /// Milliseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Where writes were mixed with reads: theirs.
    pub(crate) write_p99: Option<f64>,
    /// Percent of the machine that neither the server nor the loader used.
    pub(crate) others: f64,
}

#[expect(clippy::cast_precision_loss, reason = "counts of one run are far below 2^52")]
impl Slot {
    fn micros(&self) -> f64 {
        self.cpu.total().as_secs_f64() * 1e6 / self.requests.max(1) as f64
    }

    fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    fn megabytes(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }
}

/// One row of one system.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) system: String,
    pub(crate) slots: Vec<Slot>,
}

impl Series {
    fn middle(&self, of: impl Fn(&Slot) -> f64) -> Option<f64> {
        median(self.slots.iter().map(of).collect())
    }
}

#[derive(Debug)]
pub(crate) struct RowResult {
    pub(crate) title: String,
    pub(crate) target: Target,
    /// What nginx was asked, if not the same.
    pub(crate) unit: Option<&'static str>,
    pub(crate) series: Vec<Series>,
}

/// A figure that is not per request.
#[derive(Debug)]
pub(crate) struct Fact {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) values: Vec<f64>,
    pub(crate) limit: Limit,
}

/// What every value of a fact must keep to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    None,
    Most(f64),
    Least(f64),
}

impl Limit {
    /// In words, and whether it is kept.
    fn verdict(self, values: &[f64], unit: &str) -> (String, &'static str) {
        let (sign, limit, kept) = match self {
            Self::None => return Default::default(),
            Self::Most(most) => ("≤", most, values.iter().all(|value| *value <= most)),
            Self::Least(least) => ("≥", least, values.iter().all(|value| *value >= least)),
        };
        let words = format!("{sign} {} {unit}", figure(limit));
        (words.trim_end().to_owned(), yes_no(kept))
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) head: Head,
    pub(crate) rounds: u32,
    pub(crate) rows: Vec<RowResult>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) notes: Vec<String>,
}

/// Above this share of foreign work a row is called noisy.
const NOISY_PERCENT: f64 = 15.0;

impl Report {
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        self.head.write(&mut out, "Build cache");
        // Each table brings its own empty line.
        out.pop();
        if !self.rows.is_empty() {
            self.table(&mut out);
        }
        if !self.facts.is_empty() {
            self.facts_table(&mut out);
        }
        for note in &self.notes {
            let _ = writeln!(out, "\n{note}");
        }
        out
    }

    fn table(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "\nThe server on one core, the loader on another; median of {} rounds, the systems taking turns. CPU is processor time \
             of the server per request, with the lowest and highest round; \"others\" is the part of the machine that other \
             processes used meanwhile, at its worst.\n",
            self.rounds
        );
        if self.rows.iter().any(|row| row.unit.is_some()) {
            let _ = writeln!(
                out,
                "nginx speaks no gRPC: beside those calls it is asked what its line names, in the same rounds, and that is the unit.\n"
            );
        }
        let _ = writeln!(
            out,
            "| Request | System | CPU µs | user + system | of nginx | target | met | requests/s | MB/s | p50 ms | p99 ms | others |\n\
             | --- | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |"
        );
        for row in &self.rows {
            let yardstick = row.series.iter().find(|series| series.system == "nginx");
            let yardstick = yardstick.and_then(|series| series.middle(Slot::micros));
            for (position, series) in row.series.iter().enumerate() {
                let title = if position == 0 { row.title.as_str() } else { "" };
                let unit = row.unit.filter(|_| series.system == "nginx");
                let unit = unit.map(|unit| format!(", {unit}")).unwrap_or_default();
                let (system, cells) = (&series.system, cells(row, series, yardstick));
                let _ = writeln!(out, "| {title} | {system}{unit} |{cells} |");
            }
        }
    }

    fn facts_table(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "\nOne number per run; all of them must meet the target.\n\n| What | Measured | Target | Met |\n| --- | ---: | ---: | --- |"
        );
        for fact in &self.facts {
            let values: Vec<String> = fact.values.iter().map(|value| figure(*value)).collect();
            let (target, met) = fact.limit.verdict(&fact.values, fact.unit);
            let (what, values, unit) = (&fact.what, values.join(", "), fact.unit);
            let _ = writeln!(out, "| {what} | {values} {unit} | {target} | {met} |");
        }
    }
}

fn cells(row: &RowResult, series: &Series, yardstick: Option<f64>) -> String {
    let middle = |of: fn(&Slot) -> f64| series.middle(of).unwrap_or(0.0);
    let micros = middle(Slot::micros);
    let lowest = series.slots.iter().map(Slot::micros).fold(f64::INFINITY, f64::min);
    let highest = series.slots.iter().map(Slot::micros).fold(0.0, f64::max);
    #[expect(clippy::cast_precision_loss, reason = "counts of one run are far below 2^52")]
    let share = |time: std::time::Duration, slot: &Slot| time.as_secs_f64() * 1e6 / slot.requests.max(1) as f64;
    let user = series.middle(|slot| share(slot.cpu.user, slot)).unwrap_or(0.0);
    let system = series.middle(|slot| share(slot.cpu.system, slot)).unwrap_or(0.0);
    let ratio = yardstick.filter(|base| *base > 0.0).map(|base| micros / base);
    let judged = series.system == "kura";
    let (target, met) = if judged {
        verdict(row.target, ratio, middle(Slot::rate))
    } else {
        Default::default()
    };
    let late = series
        .middle(|slot| slot.write_p99.unwrap_or(-1.0))
        .filter(|ms| *ms >= 0.0);
    let late = late.map(|ms| format!(" (PUT {ms:.2})")).unwrap_or_default();
    let others = series.slots.iter().map(|slot| slot.others).fold(0.0, f64::max);
    let noisy = if others > NOISY_PERCENT { " noisy" } else { "" };
    format!(
        " {} ({} to {}) | {} + {} | {} | {target} | {met} | {:.0} | {:.0} | {:.2} | {:.2}{late} | {others:.0} %{noisy}",
        figure(micros),
        figure(lowest),
        figure(highest),
        figure(user),
        figure(system),
        ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
        middle(Slot::rate),
        middle(Slot::megabytes),
        middle(|slot| slot.p50),
        middle(|slot| slot.p99),
    )
}

/// The target in words, and whether it is met.
fn verdict(target: Target, ratio: Option<f64>, rate: f64) -> (String, &'static str) {
    let mut words = Vec::new();
    let mut met = true;
    if let (Some(most), Some(ratio)) = (target.ratio, ratio) {
        words.push(format!("≤ {most}"));
        // What is printed is what is compared.
        met &= (ratio * 100.0).round() / 100.0 <= most;
    }
    if let Some(least) = target.rate {
        words.push(format!("≥ {least}/s"));
        met &= rate >= least;
    }
    if words.is_empty() {
        return Default::default();
    }
    (words.join(", "), yes_no(met))
}

fn yes_no(met: bool) -> &'static str {
    if met { "yes" } else { "**no**" }
}

/// Three digits are all a benchmark can vouch for.
fn figure(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::table::examples::head;
    use std::time::Duration;

    fn slot(micros: u64, others: f64) -> Slot {
        Slot {
            requests: 1000,
            bytes: 4_096_000,
            seconds: 0.05,
            cpu: Cpu {
                user: Duration::from_micros(micros * 250),
                system: Duration::from_micros(micros * 750),
            },
            p50: 0.42,
            p99: 1.5,
            write_p99: None,
            others,
        }
    }

    fn series(system: &str, micros: [u64; 3], others: f64) -> Series {
        Series {
            system: system.into(),
            slots: micros.iter().map(|micros| slot(*micros, others)).collect(),
        }
    }

    fn row(title: &str, ratio: Option<f64>, rate: Option<f64>, series: Vec<Series>) -> RowResult {
        RowResult {
            title: title.into(),
            target: Target { ratio, rate },
            unit: None,
            series,
        }
    }

    fn fact(what: &str, unit: &'static str, values: &[f64], limit: Limit) -> Fact {
        Fact {
            what: what.into(),
            unit,
            values: values.to_vec(),
            limit,
        }
    }

    #[test]
    fn the_tables_compare_with_nginx_and_say_what_is_met() {
        let (kura, nginx) = (series("kura", [10, 12, 11], 2.0), series("nginx", [13, 14, 12], 22.0));
        let other = series("other", [130, 140, 120], 2.0);
        let steady = |ours, theirs| vec![series("kura", [ours; 3], 2.0), series("nginx", [theirs; 3], 2.0)];
        let asked = vec![series("kura", [240, 250, 245], 1.0), series("nginx", [12, 13, 12], 1.0)];
        let mut mixed = series("kura", [40, 40, 40], 1.0);
        mixed.slots.iter_mut().for_each(|slot| slot.write_p99 = Some(2.25));
        let report = Report {
            head: Head {
                disk: Some("data on ext4".into()),
                load: Some((0.1, 2.0)),
                versions: vec![("kura".into(), "0.1.0".into()), ("nginx".into(), "1.22.1".into())],
                ..head("russet-bench cache")
            },
            rounds: 3,
            rows: vec![
                row("GET 4 KiB", Some(1.0), None, vec![kura, nginx, other]),
                row("PUT 4 KiB", Some(0.8), Some(25_000.0), steady(30, 60)),
                row("mix", Some(0.9), None, vec![mixed, series("nginx", [30, 30, 30], 1.0)]),
                RowResult {
                    unit: Some("GET 4 KiB"),
                    ..row("FindMissing", Some(25.0), None, asked)
                },
            ],
            facts: vec![
                fact("serving after a clean stop", "s", &[0.41, 0.5, 1.25], Limit::Most(1.0)),
                fact("idle memory", "MiB", &[12.0], Limit::Most(20.0)),
                fact("peak", "MiB", &[300.0], Limit::None),
                fact("upload", "MB/s", &[20.5, 11.9], Limit::Least(12.0)),
            ],
            notes: vec!["A note.".into()],
        };
        insta::assert_snapshot!(report.markdown());
    }

    #[test]
    fn without_a_yardstick_only_the_rate_is_judged() {
        let target = Target {
            ratio: Some(0.8),
            rate: Some(100.0),
        };
        assert_eq!(verdict(target, None, 100.0), ("≥ 100/s".to_owned(), "yes"));
        let missed = ("≤ 0.8, ≥ 100/s".to_owned(), "**no**");
        assert_eq!(verdict(target, Some(0.804), 99.0), missed);
        assert_eq!(verdict(target, Some(0.804), 100.0).1, "yes");
        assert_eq!(verdict(Target::default(), Some(1.0), 1.0), (String::new(), ""));
    }
}
