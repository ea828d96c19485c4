//! What a run found, for people, for programs and for `docs/conformance.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

/// How one check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// What was seen instead.
    Failed(String),
    /// The server does not offer what the check is about.
    NotApplicable(String),
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Self::Passed => "pass",
            Self::Failed(_) => "FAIL",
            Self::NotApplicable(_) => "n/a",
        }
    }

    fn detail(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::Failed(text) | Self::NotApplicable(text) => text,
        }
    }
}

/// One check and how it ended.
#[derive(Debug, Clone)]
pub struct Row {
    pub name: &'static str,
    pub proves: &'static str,
    pub reference: &'static str,
    pub outcome: Outcome,
    pub took: Duration,
}

/// All of them, in the order they ran.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub rows: Vec<Row>,
}

impl Report {
    pub fn passed(&self) -> usize {
        self.count(|outcome| *outcome == Outcome::Passed)
    }

    pub fn not_applicable(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::NotApplicable(_)))
    }

    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| matches!(row.outcome, Outcome::Failed(_)))
    }

    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.rows.iter().filter(|row| is(&row.outcome)).count()
    }

    /// `71 passed, 0 failed, 3 not applicable`.
    pub fn summary(&self) -> String {
        format!(
            "{} passed, {} failed, {} not applicable",
            self.passed(),
            self.failures().count(),
            self.not_applicable()
        )
    }

    /// Lines for a terminal; what went wrong stands below its check.
    pub fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
        let mut text = String::new();
        for row in &self.rows {
            let _ = writeln!(text, "{:<4}  {:<width$}  {}", row.outcome.word(), row.name, row.proves);
            if !row.outcome.detail().is_empty() {
                let _ = writeln!(text, "      {:<width$}  └ {}", "", row.outcome.detail());
            }
        }
        let _ = writeln!(text, "\n{}", self.summary());
        text
    }

    pub fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "check": row.name,
                    "proves": row.proves,
                    "reference": row.reference,
                    "outcome": row.outcome.word().to_lowercase(),
                    "detail": row.outcome.detail(),
                    "milliseconds": u64::try_from(row.took.as_millis()).unwrap_or(u64::MAX),
                })
            })
            .collect();
        json!({
            "passed": self.passed(),
            "failed": self.failures().count(),
            "not_applicable": self.not_applicable(),
            "checks": rows,
        })
    }
}

/// Several servers side by side, as Markdown: one column each, and what they did instead below.
pub fn compare(columns: &[(&str, &Report)]) -> String {
    let mut text = String::from("| Check | Proves | Reference |");
    for (name, _) in columns {
        let _ = write!(text, " {name} |");
    }
    text.push_str("\n| --- | --- | --- |");
    text.push_str(&" --- |".repeat(columns.len()));
    text.push('\n');
    let Some((_, first)) = columns.first() else {
        return text;
    };
    for row in &first.rows {
        let _ = write!(
            text,
            "| `{}` | {} | {} |",
            row.name,
            cell(row.proves),
            cell(row.reference)
        );
        for (_, report) in columns {
            let found = report.rows.iter().find(|other| other.name == row.name);
            let _ = write!(text, " {} |", found.map_or("", |found| found.outcome.word()));
        }
        text.push('\n');
    }
    let _ = write!(text, "| **total** | | |");
    for (_, report) in columns {
        let _ = write!(text, " {} |", report.summary());
    }
    text.push('\n');
    for (name, report) in columns {
        text.push_str(&differences(name, report));
    }
    text
}

/// Failures one by one, what does not apply by its reason.
fn differences(name: &str, report: &Report) -> String {
    let mut text = String::new();
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in &report.rows {
        match &row.outcome {
            Outcome::Passed => {}
            Outcome::Failed(seen) => {
                let _ = writeln!(text, "- `{}` (FAIL): {}", row.name, line(seen));
            }
            Outcome::NotApplicable(why) => reasons.entry(why).or_default().push(row.name),
        }
    }
    for (why, names) in reasons {
        let _ = writeln!(text, "- n/a, {}: `{}`", line(why), names.join("`, `"));
    }
    if text.is_empty() {
        return text;
    }
    format!("\nWhere {name} differs or does not take part:\n\n{text}")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// One line of Markdown that shows what was seen and nothing else: no markup of ours in a server's words, no end of line.
fn line(text: &str) -> String {
    let mut plain: String = text
        .chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .take(300)
        .collect();
    if text.chars().count() > 300 {
        plain.push('…');
    }
    plain.replace('<', "&lt;").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcome: Outcome) -> Report {
        Report {
            rows: vec![Row {
                name: "a-check",
                proves: "one | two",
                reference: "RFC 9110",
                outcome,
                took: Duration::from_millis(5),
            }],
        }
    }

    #[test]
    fn a_table_shows_what_was_seen_instead() {
        let text = report(Outcome::Failed("status 500".to_owned())).table();
        assert!(text.starts_with("FAIL  a-check  one | two\n"), "{text}");
        assert!(text.contains("└ status 500"), "{text}");
        assert!(text.ends_with("0 passed, 1 failed, 0 not applicable\n"), "{text}");
    }

    #[test]
    fn a_comparison_has_a_column_for_each_server_and_keeps_its_cells_apart() {
        let (ours, theirs) = (
            report(Outcome::Passed),
            report(Outcome::NotApplicable("no\nTLS".to_owned())),
        );
        let text = compare(&[("kura", &ours), ("other", &theirs)]);
        let row = text.contains("| `a-check` | one \\| two | RFC 9110 | pass | n/a |");
        assert!(row, "{text}");
        assert!(text.contains("- n/a, no TLS: `a-check`\n"), "{text}");
    }

    #[test]
    fn the_json_counts_and_lists() {
        let value = report(Outcome::Passed).json();
        let seen = (&value["passed"], &value["checks"][0]["outcome"]);
        assert_eq!(seen, (&json!(1), &json!("pass")));
    }
}
