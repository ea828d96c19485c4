//! Where the two differ, and why that is right.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// In place of what is told: whatever it is.
pub(super) const ANY: &str = "whatever comes first";

/// In place of an aspect: one of the two does not take the Pod on, so that the phases say it all.
pub(super) const EVERYTHING: &str = "everything";

/// One aspect of some Pods that is told otherwise here.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// In which Pods.
    pub cases: &'static [&'static str],
    pub aspect: &'static str,
    /// What a stock kubelet tells. Empty: nothing.
    pub stock: &'static str,
    /// What ours tells.
    pub ours: &'static str,
    /// Why that is right, in a sentence.
    pub why: &'static str,
    /// Whether it is seen depends on who is faster.
    pub by_chance: bool,
}

/// Whether two runs of a case differ as they should and not otherwise. An error says what is to be done.
pub fn compare(
    case: &str,
    stock: &BTreeMap<String, String>,
    ours: &BTreeMap<String, String>,
    justified: &[Difference],
) -> Result<(), String> {
    let mut expected: Vec<&Difference> = justified.iter().filter(|known| known.cases.contains(&case)).collect();
    let mut complaint = String::new();
    let phase = |side: &BTreeMap<String, String>| side.get("phase").cloned().unwrap_or_default();
    let (stock_phase, our_phase) = (phase(stock), phase(ours));
    let refused =
        |known: &&Difference| known.aspect == EVERYTHING && known.stock == stock_phase && known.ours == our_phase;
    if expected.iter().any(refused) {
        return Ok(());
    }
    let aspects: BTreeSet<&String> = stock.keys().chain(ours.keys()).collect();
    for aspect in aspects {
        let told = |side: &BTreeMap<String, String>| side.get(aspect).cloned().unwrap_or_default();
        let (stock, ours) = (told(stock), told(ours));
        let fits = |wanted: &str, told: &str| wanted == ANY || wanted == told;
        let seen = |known: &Difference| known.aspect == aspect && fits(known.stock, &stock) && fits(known.ours, &ours);
        let count = expected.len();
        expected.retain(|known| !seen(known));
        if stock != ours && count == expected.len() {
            let _ = writeln!(complaint, "{case}, {aspect}\n    stock: {stock}\n    ours:  {ours}");
        }
    }
    for unused in expected.into_iter().filter(|known| !known.by_chance) {
        let _ = writeln!(
            complaint,
            "{case}, {}: this difference is listed and was not seen",
            unused.aspect
        );
    }
    if complaint.is_empty() { Ok(()) } else { Err(complaint) }
}

#[cfg(test)]
mod tests {
    use super::super::JUSTIFIED;
    use super::*;

    const KNOWN: Difference = Difference {
        cases: &["a", "b"],
        aspect: "phase",
        stock: "Running",
        ours: "Failed",
        why: "because",
        by_chance: false,
    };

    fn told(phase: &str) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("phase".to_owned(), phase.to_owned()),
            ("Ready".to_owned(), "True".to_owned()),
        ])
    }

    #[test]
    fn a_difference_has_to_be_listed_and_a_listed_one_has_to_be_seen() {
        assert_eq!(compare("a", &told("Running"), &told("Failed"), &[KNOWN]), Ok(()));
        assert_eq!(compare("c", &told("Running"), &told("Running"), &[KNOWN]), Ok(()));
        let unlisted = compare("c", &told("Running"), &told("Failed"), &[KNOWN]).unwrap_err();
        assert!(unlisted.contains("ours:  Failed"), "{unlisted}");
        let unseen = compare("b", &told("Running"), &told("Running"), &[KNOWN]).unwrap_err();
        assert!(unseen.contains("was not seen"), "{unseen}");
        // Another difference than the listed one is both.
        assert!(compare("a", &told("Running"), &told("Pending"), &[KNOWN]).is_err());
    }

    #[test]
    fn what_depends_on_chance_need_not_be_seen_and_must_be_listed() {
        let chance = Difference {
            by_chance: true,
            ..KNOWN
        };
        assert_eq!(compare("a", &told("Running"), &told("Running"), &[chance]), Ok(()));
        assert_eq!(compare("a", &told("Running"), &told("Failed"), &[chance]), Ok(()));
        assert!(compare("a", &told("Running"), &told("Pending"), &[chance]).is_err());
    }

    #[test]
    fn what_comes_as_it_happens_is_excused_in_its_aspect_only() {
        let any = Difference {
            stock: ANY,
            ours: ANY,
            by_chance: true,
            ..KNOWN
        };
        assert_eq!(compare("a", &told("Running"), &told("Pending"), &[any]), Ok(()));
        let mut unready = told("Running");
        unready.insert("Ready".to_owned(), "False".to_owned());
        assert!(compare("a", &told("Running"), &unready, &[any]).is_err());
    }

    #[test]
    fn of_a_pod_that_is_not_taken_on_the_phases_say_it_all() {
        let all = Difference {
            aspect: EVERYTHING,
            ..KNOWN
        };
        let refused = BTreeMap::from([("phase".to_owned(), "Failed".to_owned())]);
        assert_eq!(compare("a", &told("Running"), &refused, &[all]), Ok(()));
        assert!(compare("a", &told("Succeeded"), &refused, &[all]).is_err());
        assert!(compare("a", &told("Running"), &told("Running"), &[all]).is_err());
    }

    #[test]
    fn an_aspect_that_only_one_tells_of_is_a_difference() {
        let mut more = told("Running");
        more.insert("DisruptionTarget".to_owned(), "True".to_owned());
        assert!(compare("c", &more, &told("Running"), &[]).is_err());
        assert!(compare("c", &told("Running"), &more, &[]).is_err());
    }

    #[test]
    fn differences_are_of_cases_that_there_are_and_say_why() {
        let names: BTreeSet<&str> = super::super::all().iter().map(|case| case.name).collect();
        for difference in JUSTIFIED {
            assert!(
                !difference.why.is_empty() && (difference.stock != difference.ours || difference.stock == ANY),
                "{difference:?}"
            );
            for case in difference.cases {
                assert!(names.contains(case), "there is no case {case}");
            }
        }
    }
}
