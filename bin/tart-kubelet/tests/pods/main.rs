//! Pods as virtual machines: the agent, a real API server, and the emulated `tart`.
//!
//! This program is two: the tests, and `tart` when it is called so. That way the tests need no other package to be built.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking, its helpers too")]

mod accidents;
mod clock;
mod disasters;
mod features;
#[path = "../it/harness.rs"]
#[expect(dead_code, reason = "the other tests of this package need more of it")]
mod harness;
mod housekeeping;
mod leaving;
mod line;
mod lives;
mod logs;
mod parting;
mod reaching;
mod secrets;
mod stage;
mod terminal;
mod top;
mod trust;
mod words;

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};
use std::path::PathBuf;
use std::process::ExitCode;

macro_rules! trials {
    ($($module:ident::$name:ident),* $(,)?) => {
        vec![$(Trial::test(concat!(stringify!($module), "::", stringify!($name)), || run($module::$name()))),*]
    };
}

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = PathBuf::from(words.next().unwrap_or_default());
    let words: Vec<_> = words.collect();
    if russet_sim_tart::poses(&program, words.first()) {
        return russet_sim_tart::main(words.into_iter());
    }
    let trials = trials![
        lives::a_pod_becomes_a_vm_and_leaves_nothing_behind,
        lives::a_container_gets_its_environment_and_volumes_and_its_exit_code_is_true,
        lives::a_pod_that_is_deleted_has_its_grace_and_is_gone,
        lives::a_container_that_fails_is_started_again,
        lives::a_job_after_another_asks_for_nothing_that_is_known_and_tells_only_what_matters,
        lives::a_third_vm_is_refused_in_words,
        lives::an_image_that_is_not_there_is_said_in_words,
        lives::a_pull_that_hangs_holds_up_nobody_else,
        lives::a_pod_is_ready_when_its_probe_says_so_and_restarted_when_it_is_dead,
        lives::metrics_of_a_guest_are_read_at_the_node_and_nothing_else_of_it,
        features::an_image_that_brings_its_own_program_finds_its_environment_and_its_token,
        accidents::an_agent_killed_while_a_vm_is_planned_makes_another,
        accidents::an_agent_killed_when_a_vm_is_cloned_goes_on_with_it,
        accidents::an_agent_killed_while_a_vm_runs_goes_on_with_it,
        accidents::an_agent_killed_after_the_end_still_tells_the_exit_code,
        accidents::an_end_while_the_agent_was_away_is_told_truly,
        accidents::a_pod_that_vanished_while_the_agent_was_away_leaves_nothing,
        reaching::kubectl_reaches_into_a_vm,
        reaching::a_port_of_a_vm_is_forwarded,
        logs::a_log_is_read_from_a_moment_on_and_with_its_times,
        reaching::the_log_of_the_start_before_is_there,
        reaching::the_log_of_an_image_that_starts_by_itself_is_followed_before_there_is_one,
        reaching::a_command_that_is_cut_off_by_the_end_of_the_agent_is_no_success,
        reaching::a_container_is_attached_to_and_told_things,
        reaching::a_container_that_asks_for_a_terminal_has_one,
        reaching::a_node_tells_what_it_is_and_what_its_pods_use,
        terminal::a_shell_in_a_vm_has_a_terminal_that_follows_that_of_its_caller,
        features::a_pod_follows_what_is_changed_about_it_and_what_it_refers_to,
        features::a_container_knows_its_address_and_leaves_its_last_words,
        features::volumes_of_every_kind_are_where_they_belong,
        features::what_a_guest_plants_leads_its_host_nowhere,
        features::a_restricted_namespace_runs_pods_and_what_cannot_be_kept_is_refused,
        features::a_container_has_the_hardware_it_asked_for_and_its_hooks_run,
        features::a_port_of_the_node_leads_to_a_container,
        top::kubectl_top_shows_what_a_mac_and_its_vms_use,
        accidents::a_host_that_was_rebooted_does_not_call_it_a_success,
        housekeeping::a_node_says_what_keeps_it_from_running_pods_and_recovers,
        housekeeping::a_node_says_that_memory_or_processes_are_short_and_recovers,
        housekeeping::an_image_that_nobody_needed_for_a_day_goes_and_nothing_else,
        housekeeping::a_full_disk_costs_images_first_then_pods,
        housekeeping::an_image_that_does_not_fit_is_said_in_words_and_fits_when_there_is_room,
        housekeeping::an_image_is_there_before_a_pod_asks_for_it,
        housekeeping::a_volume_that_outgrows_its_limit_ends_its_pod,
        housekeeping::a_log_is_cut_to_size_and_read_and_followed_across_its_files,
        disasters::a_host_that_was_rebooted_starts_again_what_shall_run,
        disasters::an_api_server_that_is_away_is_told_the_truth_when_it_is_back,
        disasters::a_full_disk_holds_up_and_damages_nothing,
        clock::a_clock_that_steps_by_hours_ends_nothing_and_holds_up_nothing,
        secrets::what_is_secret_is_told_to_containers_alone_and_goes_with_them,
        secrets::a_secret_that_changes_during_a_pull_is_told_as_it_is_by_then,
        secrets::a_start_that_never_was_leaves_no_secret,
        secrets::an_image_that_came_with_a_secret_is_for_those_who_may_have_it,
        trust::the_trust_anchors_of_a_cluster_are_files_that_follow_them,
        words::what_a_vm_cannot_do_is_said_in_one_sentence,
        words::what_a_pod_lacks_is_said_and_it_runs_once_that_is_there,
        words::without_a_gui_session_a_pod_says_so_and_runs_once_there_is_one,
        words::a_mac_that_has_lost_count_of_its_vms_says_so_and_runs_them_after_a_reboot,
        words::a_kubeconfig_that_is_mended_makes_a_node,
        leaving::an_agent_that_is_told_to_stop_leaves_its_vms_and_says_so,
        leaving::a_second_agent_leaves_the_first_alone_and_says_so,
        leaving::a_node_that_is_ready_stays_so_over_a_restart_of_its_agent,
        leaving::a_node_is_drained_with_grace_and_stays_cordoned,
        leaving::an_agent_that_ends_within_the_grace_of_a_container_is_followed_by_one_that_ends_it,
        leaving::a_hook_that_is_cut_off_with_its_agent_is_run_again,
        leaving::a_pod_that_was_ended_while_the_agent_was_away_leaves_no_secret,
        parting::less_patience_ends_no_container_before_its_hook,
        parting::a_pod_that_takes_hours_to_end_does_not_keep_a_full_disk_full,
    ];
    let mut arguments = Arguments::from_args();
    // Each of them mostly waits, whatever the machine has.
    arguments.test_threads.get_or_insert(4);
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn run(case: impl Future<Output = Result<()>>) -> Result<(), libtest_mimic::Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(case);
    runtime.shutdown_background();
    done.map_err(|error| format!("{error:#}").into())
}
