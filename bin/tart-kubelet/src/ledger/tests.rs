use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use jiff::Timestamp;
use russet_vm::{Listed, Listing, Owner, PodVm, Process, VmName};

use super::*;

fn vm(pod: &str, attempt: u32) -> PodVm {
    PodVm::new("ci", pod, "main", "0b5d7f3c-8a4e-4f0c-9d1a-2b3c4d5e6f70", attempt).unwrap()
}

fn entry(stage: Stage) -> Entry {
    Entry {
        pod: "job-1".to_owned(),
        planned: Timestamp::UNIX_EPOCH,
        image: String::new(),
        shares: Vec::new(),
        stage,
        running: None,
        given_up: false,
    }
}

fn stages() -> Vec<Stage> {
    let ending = Ending::exited(3, Timestamp::UNIX_EPOCH);
    let process = Process {
        pid: 7,
        started: "boot/9".to_owned(),
    };
    vec![
        Stage::Planned,
        Stage::Cloned,
        Stage::Running {
            process,
            at: Timestamp::UNIX_EPOCH,
        },
        Stage::Stopped(ending.clone()),
        Stage::Deleted(ending),
    ]
}

#[test]
fn every_stage_is_there_after_a_restart_and_nobody_else_can_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vms");
    for stage in stages() {
        Ledger::open(&path)
            .unwrap()
            .write(&vm("job-1", 0), entry(stage.clone()))
            .unwrap();
        let ledger = Ledger::open(&path).unwrap();
        assert_eq!(ledger.get(&vm("job-1", 0)).unwrap().stage, stage);
    }
    let file = path.join(format!("{}.json", vm("job-1", 0)));
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
}

/// A power cut between the write of the new file and its rename leaves a file that nobody reads.
#[test]
fn a_write_that_was_cut_short_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    ledger.write(&vm("job-1", 0), entry(Stage::Cloned)).unwrap();
    std::fs::write(dir.path().join(format!("{}.new", vm("job-1", 0))), "{\"pod\":").unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    assert_eq!(ledger.all().len(), 1);
    assert_eq!(ledger.get(&vm("job-1", 0)).unwrap().stage, Stage::Cloned);
}

#[test]
fn a_damaged_entry_is_set_aside_and_the_others_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    ledger.write(&vm("job-1", 0), entry(Stage::Planned)).unwrap();
    ledger.write(&vm("job-1", 1), entry(Stage::Planned)).unwrap();
    std::fs::write(dir.path().join(format!("{}.json", vm("job-1", 0))), "nonsense").unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    assert_eq!(ledger.get(&vm("job-1", 0)), None);
    assert!(ledger.get(&vm("job-1", 1)).is_some());
    assert!(dir.path().join(format!("{}.damaged", vm("job-1", 0))).exists());
}

#[test]
fn what_is_forgotten_stays_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    ledger.write(&vm("job-1", 0), entry(Stage::Planned)).unwrap();
    ledger.forget(&vm("job-1", 0)).unwrap();
    ledger.forget(&vm("job-1", 0)).unwrap();
    assert!(Ledger::open(dir.path()).unwrap().all().is_empty());
}

#[test]
fn an_entry_of_a_release_that_knew_less_is_read() {
    let old = r#"{"pod":"job-1","planned":"2026-11-16T03:00:00Z","stage":{"is":"cloned"}}"#;
    let entry: Entry = serde_json::from_str(old).unwrap();
    assert_eq!(entry.stage, Stage::Cloned);
    assert!(!entry.given_up);
}

fn listed(owner: Owner, running: bool) -> Listed {
    Listed {
        owner,
        running,
        bytes: 0,
        accessed: None,
    }
}

/// The licence allows two, so whatever may run counts: what runs, what another agent was about to start, and what others run.
#[test]
fn places_are_counted_from_the_ledger_and_from_the_host() {
    let ours = |pod: &str| Owner::Ours(VmName::from(vm(pod, 0)));
    let listing = Listing {
        vms: vec![
            listed(ours("runs"), true),
            listed(ours("about-to"), false),
            listed(ours("planned"), false),
            listed(ours("ended"), false),
            listed(ours("unwritten"), true),
            listed(ours("late"), false),
            listed(Owner::Foreign("packer".to_owned()), true),
            listed(Owner::Foreign("idle".to_owned()), false),
        ],
        images: Vec::new(),
    };
    let ledger = BTreeMap::from([
        (vm("runs", 0), entry(stages().remove(2))),
        (vm("about-to", 0), entry(Stage::Cloned)),
        (vm("planned", 0), entry(Stage::Planned)),
        (vm("ended", 0), entry(stages().remove(3))),
        (vm("gone", 0), entry(Stage::Cloned)),
    ]);
    let found = reconcile(&ledger, &listing);
    let occupied: Vec<&str> = found.occupied.iter().map(PodVm::shown_pod).collect();
    assert_eq!(occupied, ["about-to", "ended", "planned", "runs", "unwritten"]);
    assert_eq!(found.unwritten, [vm("unwritten", 0)]);
    assert_eq!(found.late, [vm("late", 0)]);
    assert_eq!(found.foreign.into_iter().collect::<Vec<_>>(), ["packer"]);
}
