//! Every incident that can be replayed, replayed.

use russet_e2e::scenarios::{self, Silent};

async fn replay(name: &str) {
    let scenario = scenarios::find(name).unwrap_or_else(|| panic!("no scenario {name}"));
    scenario
        .run(&mut Silent)
        .await
        .unwrap_or_else(|error| panic!("{name}: {} — {error:#}", scenario.must_hold));
}

#[tokio::test]
async fn rollback_trap_every_older_object_still_applies() {
    replay("rollback-trap").await;
}

#[tokio::test]
async fn crd_pruning_is_reported_and_heals_when_the_crd_is_upgraded() {
    replay("crd-pruning").await;
}

#[tokio::test]
async fn namespaced_informer_needs_no_right_beyond_its_role() {
    replay("namespaced-informer").await;
}

#[tokio::test]
async fn scope_confusion_names_one_project_or_none() {
    crate::kura_program();
    replay("scope-confusion").await;
}

#[tokio::test]
async fn header_drip_starves_nobody_and_is_cut_off() {
    crate::kura_program();
    replay("header-drip").await;
}

#[test]
fn every_scenario_has_a_test_in_this_file() {
    let source = include_str!("scenarios.rs");
    for scenario in scenarios::all() {
        assert!(
            source.contains(&format!("replay(\"{}\")", scenario.name)),
            "{} is never replayed",
            scenario.name
        );
    }
}
