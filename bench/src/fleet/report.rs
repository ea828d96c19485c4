//! The figures of a fleet of Macs as Markdown. Pure, so that the table is tested without a cluster.

use super::count::Stage;
use super::table::{self, Head, Row};

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) head: Head,
    pub(crate) machines: u32,
    /// Minis that nobody wanted.
    pub(crate) spare: u32,
    pub(crate) up: Stage,
    pub(crate) rest: Stage,
    pub(crate) down: Option<Stage>,
    /// The most memory the provider ever had, in KiB.
    pub(crate) peak_kib: Option<u64>,
}

impl Report {
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        let spare = match self.spare {
            0 => String::new(),
            spare => format!(", {spare} more minis in the pool"),
        };
        self.head
            .write(&mut out, &format!("A fleet of {} Macs{spare}", self.machines));
        table::write(&mut out, self.rows());
        for (name, stage) in self.stages() {
            table::note(&mut out, name, stage);
        }
        out
    }

    fn stages(&self) -> impl Iterator<Item = (&'static str, &Stage)> {
        let down = self.down.as_ref().map(|down| ("drain, wipe, pool", down));
        [("adopt and join", &self.up), ("at rest", &self.rest)]
            .into_iter()
            .chain(down)
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = table::work(self.machines, "adopt and join", "to available", &self.up);
        rows.extend(table::at_rest(self.machines, "at rest", &self.rest));
        if let Some(down) = &self.down {
            let end = "to the last mini in the pool";
            rows.extend(table::work(self.machines, "drain, wipe, pool", end, down));
        }
        rows.push(table::peak(self.peak_kib));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::examples::{head, stage};
    use super::*;

    #[test]
    fn the_table_says_what_is_met_and_what_is_not() {
        let report = Report {
            head: head("russet-bench fleet --machines 1000"),
            machines: 1000,
            spare: 0,
            up: stage(300, 20_000, 7_000, 20_000),
            rest: stage(60, 1_500, 0, 0),
            down: Some(stage(200, 9_000, 13_000, 9_000)),
            peak_kib: Some(60 << 10),
        };
        insta::assert_snapshot!(report.markdown());
    }
}
