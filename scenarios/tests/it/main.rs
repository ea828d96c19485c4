//! Every incident that can be replayed, replayed.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, outside of test functions"
)]

use russet_scenarios::{self as scenarios, Silent};
use russet_testkit::program::built;

const PROVIDER: [(&str, &str); 1] = [("capi-provider", "russet-capi-provider")];
const MACS: [(&str, &str); 3] = [
    PROVIDER[0],
    ("sim-mac", "russet-sim-mac"),
    ("tart-kubelet", "russet-tart-kubelet"),
];

/// What a story starts, built now if it never was.
fn programs(all: &[(&str, &str)]) {
    for (name, package) in all {
        built(name, package).unwrap();
    }
}

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
    programs(&[("kura", "kura")]);
    replay("scope-confusion").await;
}

#[tokio::test]
async fn header_drip_starves_nobody_and_is_cut_off() {
    programs(&[("kura", "kura")]);
    replay("header-drip").await;
}

#[tokio::test]
async fn leaked_mini_ends_in_the_pool_or_is_reported() {
    programs(&PROVIDER);
    replay("leaked-mini").await;
}

#[tokio::test]
async fn release_wipes_a_live_host_never_and_pools_none_unwiped() {
    programs(&PROVIDER);
    replay("release-wipes-a-live-host").await;
}

#[tokio::test]
async fn iam_project_scope_is_named_in_every_call() {
    replay("iam-project-scope").await;
}

#[tokio::test]
async fn fleet_key_race_has_one_winner_everywhere() {
    replay("fleet-key-race").await;
}

#[tokio::test]
async fn pem_and_spaces_are_read_or_named_by_their_field() {
    replay("pem-and-spaces").await;
}

#[tokio::test]
async fn egress_service_race_loses_nobodys_fields() {
    replay("egress-service-race").await;
}

#[tokio::test]
async fn no_workload_kubeconfig_is_needed_from_outside() {
    programs(&PROVIDER);
    replay("no-workload-kubeconfig").await;
}

#[tokio::test]
async fn token_in_events_and_anywhere_else_is_found_by_no_canary() {
    programs(&PROVIDER);
    replay("token-in-events").await;
}

#[tokio::test]
async fn nodes_in_a_role_are_not_needed_under_the_rights_of_the_chart() {
    programs(&PROVIDER);
    replay("nodes-in-a-role").await;
}

#[tokio::test]
async fn half_made_instance_is_found_again_and_ordered_once() {
    programs(&PROVIDER);
    replay("half-made-instance").await;
}

#[tokio::test]
async fn delete_stopped_instance_converges_from_every_state() {
    programs(&PROVIDER);
    replay("delete-stopped-instance").await;
}

#[tokio::test]
async fn no_public_ip_is_not_what_our_orders_say() {
    programs(&PROVIDER);
    replay("no-public-ip").await;
}

#[tokio::test]
async fn dash_is_not_bash_and_is_not_asked_to_be() {
    replay("dash-is-not-bash").await;
}

#[tokio::test]
async fn kubelet_rbac_is_that_of_the_node_authorizer() {
    programs(&PROVIDER);
    replay("kubelet-rbac").await;
}

#[tokio::test]
async fn pn_ipv4_missing_is_a_condition_until_the_label_is_there() {
    programs(&PROVIDER);
    replay("pn-ipv4-missing").await;
}

#[tokio::test]
async fn provisioner_rbac_of_the_chart_binds_a_claim() {
    replay("provisioner-rbac").await;
}

#[tokio::test]
async fn csi_toleration_holds_for_all_that_runs_on_cache_nodes() {
    replay("csi-toleration").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostname_address_is_tried_after_the_internal_ip() {
    programs(&MACS);
    replay("hostname-address").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_path_forgets_a_step_no_more_since_there_is_one_plan() {
    programs(&MACS);
    replay("drift-path-forgets-a-step").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tailscale_down_no_fallback_to_a_public_address() {
    programs(&MACS);
    replay("tailscale-down-no-fallback").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn btm_cap_is_not_reached_by_rolls() {
    programs(&MACS);
    replay("btm-cap").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn noop_kickstart_is_no_roll() {
    programs(&MACS);
    replay("noop-kickstart").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_loop_pid_is_no_process_that_stays() {
    programs(&MACS);
    replay("crash-loop-pid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_cdhash_kills_nobody_in_a_hundred_rolls() {
    programs(&MACS);
    replay("stale-cdhash").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_id_binds_a_node_however_it_came() {
    programs(&MACS);
    replay("provider-id").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn legacy_launchctl_is_not_what_reaches_the_session() {
    programs(&MACS);
    replay("legacy-launchctl").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packer_upgrade_revokes_tcc_and_a_condition_says_so() {
    programs(&MACS);
    replay("packer-upgrade-revokes-tcc").await;
}

#[test]
fn every_scenario_has_a_test_in_this_file() {
    let source = include_str!("main.rs");
    for scenario in scenarios::all() {
        assert!(
            source.contains(&format!("replay(\"{}\")", scenario.name)),
            "{} is never replayed",
            scenario.name
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_blocked_by_pull_is_nobody_but_who_pulls() {
    programs(&MACS);
    replay("worker-blocked-by-pull").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_never_comes_back_no_more() {
    programs(&MACS);
    replay("node-never-comes-back").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn third_vm_never_runs_and_a_lost_one_is_found() {
    programs(&MACS);
    replay("third-vm").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_exit_code_is_never_a_success() {
    programs(&MACS);
    replay("lost-exit-code").await;
}
