//! The figures of Linux machines as Markdown. Pure.

use crate::fleet::count::Stage;
use crate::fleet::table::{self, Head};

/// A kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Instance,
    /// Ordered, not adopted.
    Metal,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Instance, Self::Metal];

    /// As the API server knows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Instance => "ScalewayInstanceMachine",
            Self::Metal => "ScalewayElasticMetalMachine",
        }
    }

    /// As people do.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Instance => "Instances",
            Self::Metal => "Elastic Metal servers",
        }
    }

    /// The MachineDeployment of a run.
    pub(crate) fn deployment(self) -> &'static str {
        match self {
            Self::Instance => "instances",
            Self::Metal => "metals",
        }
    }
}

/// The machines of one kind, from the first order to the last deletion.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) kind: Kind,
    pub(crate) machines: u32,
    pub(crate) up: Stage,
    pub(crate) rest: Stage,
    pub(crate) down: Stage,
}

impl Life {
    fn stages(&self) -> [(String, &Stage); 3] {
        let kind = self.kind.plural();
        [
            (format!("{kind}: order and join"), &self.up),
            (format!("{kind} at rest"), &self.rest),
            (format!("{kind}: drain and delete"), &self.down),
        ]
    }
}

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) head: Head,
    pub(crate) kinds: Vec<Life>,
    /// The most memory the provider ever had, in KiB.
    pub(crate) peak_kib: Option<u64>,
}

impl Report {
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        let counts = self.kinds.iter();
        let counts: Vec<String> = counts
            .map(|life| format!("{} {}", life.machines, life.kind.plural()))
            .collect();
        self.head
            .write(&mut out, &format!("A fleet of {}", counts.join(" and ")));
        let mut rows = Vec::new();
        for life in &self.kinds {
            let [(up, _), (rest, _), (down, _)] = life.stages();
            rows.extend(table::work(life.machines, &up, "to serving", &life.up));
            rows.extend(table::at_rest(life.machines, &rest, &life.rest));
            rows.extend(table::work(life.machines, &down, "to nothing on the bill", &life.down));
        }
        rows.push(table::peak(self.peak_kib));
        table::write(&mut out, rows);
        for (name, stage) in self.kinds.iter().flat_map(Life::stages) {
            table::note(&mut out, &name, stage);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::table::examples::{head, stage};

    #[test]
    fn each_kind_has_its_rows_and_the_provider_one_peak() {
        let life = |kind, own| Life {
            kind,
            machines: 200,
            up: stage(120, 4_000, own, 3_000),
            rest: stage(60, 30, 0, 0),
            down: stage(90, 2_000, own, 2_000),
        };
        let report = Report {
            head: head("russet-bench linux"),
            kinds: vec![life(Kind::Instance, 2_000), life(Kind::Metal, 2_600)],
            peak_kib: Some(60 << 10),
        };
        insta::assert_snapshot!(report.markdown());
    }
}
