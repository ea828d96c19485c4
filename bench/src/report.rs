//! Figures as Markdown. Pure, so that the table is tested without a cluster.

use crate::fleet::table::Head;
use std::fmt::Write as _;

/// One start of `russet up`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Start {
    /// From the command to the prompt, as a person waits for it.
    pub(crate) wall_seconds: f64,
    /// As `up` itself reports it.
    pub(crate) ready_seconds: f64,
    /// Part or step, and how long it took from its own start.
    pub(crate) pieces: Vec<(String, f64)>,
}

/// One process when nothing happens.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Idle {
    pub(crate) name: String,
    pub(crate) memory_bytes: u64,
    pub(crate) cpu_percent: f64,
}

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) head: Head,
    pub(crate) fresh: Vec<Start>,
    pub(crate) resumed: Vec<Start>,
    pub(crate) window_seconds: u64,
    pub(crate) idle: Vec<Idle>,
}

impl Report {
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        self.head.write(&mut out, "`russet up`");
        let _ = writeln!(out, "Seconds, median of {} (lowest to highest).\n", self.fresh.len());
        let _ = writeln!(out, "| Start | Fresh state | Resumed state |\n| --- | ---: | ---: |");
        self.row(&mut out, "command to prompt", |start| Some(start.wall_seconds));
        self.row(&mut out, "`up` to ready", |start| Some(start.ready_seconds));
        for name in self.names() {
            self.row(&mut out, &name, |start| {
                let piece = start.pieces.iter().find(|(piece, _)| *piece == name);
                piece.map(|(_, seconds)| *seconds)
            });
        }
        let _ = writeln!(out, "\nIdle, over {} s.\n", self.window_seconds);
        let _ = writeln!(
            out,
            "| Process | Memory (RSS, MiB) | CPU (% of one core) |\n| --- | ---: | ---: |"
        );
        for idle in &self.idle {
            let (name, memory) = (&idle.name, mib(idle.memory_bytes));
            let _ = writeln!(out, "| {name} | {memory} | {:.1} |", idle.cpu_percent);
        }
        let memory = self.idle.iter().map(|idle| idle.memory_bytes).sum();
        let cpu: f64 = self.idle.iter().map(|idle| idle.cpu_percent).sum();
        let _ = writeln!(out, "| **all** | **{}** | **{cpu:.1}** |", mib(memory));
        out
    }

    fn row(&self, out: &mut String, name: &str, pick: impl Fn(&Start) -> Option<f64>) {
        let cell = |starts: &[Start]| spread(starts.iter().filter_map(&pick).collect());
        let _ = writeln!(out, "| {name} | {} | {} |", cell(&self.fresh), cell(&self.resumed));
    }

    /// Parts and steps in the order of the first start.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (name, _) in self.fresh.iter().chain(&self.resumed).flat_map(|start| &start.pieces) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }
}

/// `9.1 (8.8 to 9.9)`; a single figure has no spread.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    match (values.first(), values.get(values.len() / 2), values.last()) {
        (Some(low), Some(middle), Some(high)) if values.len() > 1 => format!("{middle:.1} ({low:.1} to {high:.1})"),
        (_, Some(only), _) => format!("{only:.1}"),
        _ => "-".to_owned(),
    }
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::table::examples::head;

    fn idle(name: &str, memory_bytes: u64, cpu_percent: f64) -> Idle {
        Idle {
            name: name.into(),
            memory_bytes,
            cpu_percent,
        }
    }

    fn start(wall: f64) -> Start {
        Start {
            wall_seconds: wall,
            ready_seconds: wall - 0.2,
            pieces: vec![("etcd".into(), 0.3), ("kube-apiserver".into(), wall / 3.0)],
        }
    }

    #[test]
    fn the_table_names_machine_versions_and_command() {
        let report = Report {
            head: Head {
                load: None,
                ..head("russet-bench up --runs 3")
            },
            fresh: vec![start(12.0), start(11.0), start(15.0)],
            resumed: vec![start(6.0), start(5.0), start(7.0)],
            window_seconds: 30,
            idle: vec![idle("etcd", 45 << 20, 1.25), idle("kube-apiserver", 270 << 20, 3.0)],
        };
        insta::assert_snapshot!(report.markdown());
    }

    #[test]
    fn a_single_figure_has_no_spread_and_none_is_a_dash() {
        assert_eq!(spread(vec![2.0]), "2.0");
        assert_eq!(spread(vec![]), "-");
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), "2.0 (1.0 to 3.0)");
    }
}
