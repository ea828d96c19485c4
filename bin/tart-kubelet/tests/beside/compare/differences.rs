//! Where the two differ, and why that is right.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// In place of what is told: whatever it is.
pub(super) const ANY: &str = "whatever comes first";

/// In place of an aspect: one of the two does not take the Pod on, so that the phases say it all.
pub(super) const EVERYTHING: &str = "everything";

/// One aspect of some Pods that is told otherwise here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Difference {
    /// In which Pods.
    pub(crate) cases: &'static [&'static str],
    pub(crate) aspect: &'static str,
    /// What a stock kubelet tells. Empty: nothing.
    pub(crate) stock: &'static str,
    /// What ours tells.
    pub(crate) ours: &'static str,
    /// Why that is right, in a sentence.
    pub(crate) why: &'static str,
    pub(crate) chance: Chance,
}

/// Who may tell it otherwise, as it happens: whether a difference is seen may depend on who is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chance {
    /// Nobody: it is always seen.
    Nobody,
    /// A stock kubelet, which may tell the same as ours. Ours tells what is listed, always.
    Stock,
    /// Ours, which may tell the same as a stock kubelet.
    Ours,
}

/// Whether two runs of a case differ as they should and not otherwise. An error says what is to be done.
pub(crate) fn compare(
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
    let listed = expected.iter().map(|known| known.aspect);
    let told = stock.keys().chain(ours.keys()).map(String::as_str);
    let aspects: BTreeSet<&str> = told.chain(listed.filter(|aspect| *aspect != EVERYTHING)).collect();
    for aspect in aspects {
        let told = |side: &BTreeMap<String, String>| side.get(aspect).cloned().unwrap_or_default();
        let (stock, ours) = (told(stock), told(ours));
        let of_this = || expected.iter().filter(|known| known.aspect == aspect);
        // That the two tell the same is no excuse where only a stock kubelet may vary.
        let bound = of_this().any(|known| known.chance == Chance::Stock);
        let strays = bound && !of_this().any(|known| known.ours == ours);
        let seen = |known: &Difference| {
            known.aspect == aspect && (known.stock == ANY || known.stock == stock) && known.ours == ours
        };
        let count = expected.len();
        expected.retain(|known| !seen(known));
        if strays || stock != ours && count == expected.len() {
            let _ = writeln!(complaint, "{case}, {aspect}\n    stock: {stock}\n    ours:  {ours}");
        }
    }
    for unused in expected.into_iter().filter(|known| known.chance == Chance::Nobody) {
        let _ = writeln!(
            complaint,
            "{case}, {}: this difference is listed and was not seen",
            unused.aspect
        );
    }
    if complaint.is_empty() { Ok(()) } else { Err(complaint) }
}

/// Whether ours tells of a case what it told before. A difference of ours that is seen in some runs only must not hide
/// behind a stock kubelet that varies, so ours varies only between what is listed as a matter of chance.
pub(crate) fn same_again(
    case: &str,
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
    justified: &[Difference],
) -> Result<(), String> {
    let mut complaint = String::new();
    let aspects: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    for aspect in aspects {
        let told = |run: &BTreeMap<String, String>| run.get(aspect).cloned().unwrap_or_default();
        let (before, now) = (told(before), told(now));
        let listed = |told: &str| {
            let here = |known: &&Difference| known.cases.contains(&case) && known.aspect == aspect;
            justified.iter().filter(here).any(|known| match known.chance {
                Chance::Nobody => false,
                Chance::Stock => known.ours == told,
                Chance::Ours => known.ours == told || known.stock == told,
            })
        };
        if before != now && !(listed(&before) && listed(&now)) {
            let _ = writeln!(complaint, "{case}, {aspect}\n    before: {before}\n    now:    {now}");
        }
    }
    if complaint.is_empty() { Ok(()) } else { Err(complaint) }
}

pub(crate) mod tests {
    use super::super::JUSTIFIED;
    use super::*;

    const KNOWN: Difference = Difference {
        cases: &["a", "b"],
        aspect: "phase",
        stock: "Running",
        ours: "Failed",
        why: "because",
        chance: Chance::Nobody,
    };

    fn told(phase: &str) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("phase".to_owned(), phase.to_owned()),
            ("Ready".to_owned(), "True".to_owned()),
        ])
    }

    pub(crate) fn a_difference_has_to_be_listed_and_a_listed_one_has_to_be_seen() {
        assert_eq!(compare("a", &told("Running"), &told("Failed"), &[KNOWN]), Ok(()));
        assert_eq!(compare("c", &told("Running"), &told("Running"), &[KNOWN]), Ok(()));
        let unlisted = compare("c", &told("Running"), &told("Failed"), &[KNOWN]).unwrap_err();
        assert!(unlisted.contains("ours:  Failed"), "{unlisted}");
        let unseen = compare("b", &told("Running"), &told("Running"), &[KNOWN]).unwrap_err();
        assert!(unseen.contains("was not seen"), "{unseen}");
        // Another difference than the listed one is both.
        assert!(compare("a", &told("Running"), &told("Pending"), &[KNOWN]).is_err());
    }

    pub(crate) fn what_depends_on_chance_need_not_be_seen_and_must_be_listed() {
        let chance = Difference {
            chance: Chance::Ours,
            ..KNOWN
        };
        assert_eq!(compare("a", &told("Running"), &told("Running"), &[chance]), Ok(()));
        assert_eq!(compare("a", &told("Running"), &told("Failed"), &[chance]), Ok(()));
        assert!(compare("a", &told("Running"), &told("Pending"), &[chance]).is_err());
    }

    const STOCK_VARIES: Difference = Difference {
        stock: ANY,
        chance: Chance::Stock,
        ..KNOWN
    };

    /// Anything was excused on both sides, and ours might have told any nonsense.
    pub(crate) fn where_a_stock_kubelet_tells_what_it_likes_ours_does_not() {
        let listed = [STOCK_VARIES];
        assert_eq!(compare("a", &told("Running"), &told("Failed"), &listed), Ok(()));
        assert_eq!(compare("a", &told("Failed"), &told("Failed"), &listed), Ok(()));
        assert!(compare("a", &told("Running"), &told("Pending"), &listed).is_err());
        assert!(compare("a", &told("Pending"), &told("Pending"), &listed).is_err());
        let nothing = BTreeMap::new();
        assert!(compare("a", &nothing, &nothing, &listed).is_err());
    }

    pub(crate) fn what_is_excused_is_excused_in_its_aspect_only() {
        let mut unready = told("Failed");
        unready.insert("Ready".to_owned(), "False".to_owned());
        assert!(compare("a", &told("Running"), &unready, &[STOCK_VARIES]).is_err());
    }

    /// What differed was run again until it did not, and so a difference of ours that came now and then was never seen.
    pub(crate) fn ours_tells_the_same_again_or_what_is_listed_as_chance() {
        let again = |before, now, listed| same_again("a", &told(before), &told(now), &[listed]);
        let ours = Difference {
            chance: Chance::Ours,
            ..KNOWN
        };
        assert_eq!(again("Failed", "Failed", KNOWN), Ok(()));
        assert_eq!(again("Failed", "Running", ours), Ok(()));
        assert!(again("Failed", "Pending", ours).is_err());
        let varies = again("Running", "Failed", KNOWN).unwrap_err();
        assert!(varies.contains("now:    Failed"), "{varies}");
        let stock = Difference {
            stock: "Running",
            ..STOCK_VARIES
        };
        assert!(again("Running", "Failed", stock).is_err());
        let (two, mut more) = (
            [
                STOCK_VARIES,
                Difference {
                    ours: "Pending",
                    ..STOCK_VARIES
                },
            ],
            told("Failed"),
        );
        assert_eq!(same_again("a", &told("Failed"), &told("Pending"), &two), Ok(()));
        more.insert("DisruptionTarget".to_owned(), "True".to_owned());
        assert!(same_again("a", &told("Failed"), &more, &two).is_err());
    }

    pub(crate) fn of_a_pod_that_is_not_taken_on_the_phases_say_it_all() {
        let all = Difference {
            aspect: EVERYTHING,
            ..KNOWN
        };
        let refused = BTreeMap::from([("phase".to_owned(), "Failed".to_owned())]);
        assert_eq!(compare("a", &told("Running"), &refused, &[all]), Ok(()));
        assert!(compare("a", &told("Succeeded"), &refused, &[all]).is_err());
        assert!(compare("a", &told("Running"), &told("Running"), &[all]).is_err());
    }

    pub(crate) fn an_aspect_that_only_one_tells_of_is_a_difference() {
        let mut more = told("Running");
        more.insert("DisruptionTarget".to_owned(), "True".to_owned());
        assert!(compare("c", &more, &told("Running"), &[]).is_err());
        assert!(compare("c", &told("Running"), &more, &[]).is_err());
    }

    pub(crate) fn differences_are_of_cases_that_there_are_and_say_why() {
        let names: BTreeSet<&str> = super::super::all().iter().map(|case| case.name).collect();
        for difference in JUSTIFIED {
            assert!(
                !difference.why.is_empty() && difference.stock != difference.ours && difference.ours != ANY,
                "{difference:?}"
            );
            for case in difference.cases {
                assert!(names.contains(case), "there is no case {case}");
            }
        }
    }
}
