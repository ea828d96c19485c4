//! Plain aligned columns, as kubectl prints them: they survive copy and paste, `grep` and narrow terminals.
//!
//! Colour is laid over finished cells, never measured, so a table has the same columns with and without it.

use std::fmt::Write as _;

/// What a cell says about health; the only use of colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    #[default]
    Plain,
    Good,
    Warn,
    Bad,
    Dim,
}

/// Whether escape codes may be written; decided once in `config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Always,
    Never,
}

impl Colour {
    /// `text` in the colour of `tone`.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            _ if text.is_empty() => return String::new(),
            Tone::Plain => return text.to_owned(),
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "31",
            Tone::Dim => "2",
        };
        match self {
            Self::Never => text.to_owned(),
            Self::Always => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// Rows of cells under a heading; an empty heading prints no heading line.
#[derive(Debug, Default)]
pub struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(heading: &[&'static str]) -> Self {
        Self {
            heading: heading.to_vec(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn render(&self, colour: Colour) -> String {
        let columns = self
            .rows
            .iter()
            .map(Vec::len)
            .chain([self.heading.len()])
            .max()
            .unwrap_or(0);
        let mut widths = vec![0; columns];
        for (width, text) in widths.iter_mut().zip(&self.heading) {
            *width = text.chars().count();
        }
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let mut out = String::new();
        if !self.heading.is_empty() {
            let cells: Vec<Cell> = self.heading.iter().map(|text| Cell::new(*text, Tone::Plain)).collect();
            line(&mut out, &widths, &cells, colour);
        }
        for row in &self.rows {
            line(&mut out, &widths, row, colour);
        }
        out
    }
}

fn line(out: &mut String, widths: &[usize], cells: &[Cell], colour: Colour) {
    for (index, (width, cell)) in widths.iter().zip(cells).enumerate() {
        let last = index + 1 == cells.len();
        // No padding after the last cell: trailing blanks wrap in narrow terminals.
        let padding = if last { 0 } else { width - cell.text.chars().count() + 3 };
        let _ = write!(out, "{}{:padding$}", colour.paint(cell.tone, &cell.text), "");
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(&["PART", "STATE", "LOG"]);
        table.row(["etcd".into(), Cell::new("Running", Tone::Good), "logs/etcd.log".into()]);
        table.row(["kube-apiserver".into(), Cell::new("BackingOff", Tone::Bad), "–".into()]);
        table
    }

    #[test]
    fn columns_line_up_and_lines_end_without_blanks() {
        insta::assert_snapshot!(sample().render(Colour::Never), @r"
        PART             STATE        LOG
        etcd             Running      logs/etcd.log
        kube-apiserver   BackingOff   –
        ");
    }

    #[test]
    fn colour_does_not_move_a_column() {
        let painted = sample().render(Colour::Always);
        assert!(painted.contains("\u{1b}[32mRunning\u{1b}[0m      logs/etcd.log"));
        let stripped = painted
            .replace("\u{1b}[32m", "")
            .replace("\u{1b}[31m", "")
            .replace("\u{1b}[0m", "");
        assert_eq!(stripped, sample().render(Colour::Never));
    }
}
