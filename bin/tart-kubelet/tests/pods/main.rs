//! Pods as virtual machines: the agent, a real API server, and the emulated `tart`.
//!
//! This program is two: the tests, and `tart` when it is called so. That way the tests need no other package to be built.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking, its helpers too")]

mod accidents;
#[path = "../it/harness.rs"]
#[expect(dead_code, reason = "the other tests of this package need more of it")]
mod harness;
mod lives;
mod reaching;
mod stage;

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
        lives::a_third_vm_is_refused_in_words,
        lives::an_image_that_is_not_there_is_said_in_words,
        lives::a_pull_that_hangs_holds_up_nobody_else,
        lives::a_pod_is_ready_when_its_probe_says_so_and_restarted_when_it_is_dead,
        lives::metrics_of_a_guest_are_read_at_the_node,
        accidents::an_agent_killed_while_a_vm_is_planned_makes_another,
        accidents::an_agent_killed_when_a_vm_is_cloned_goes_on_with_it,
        accidents::an_agent_killed_while_a_vm_runs_goes_on_with_it,
        accidents::an_agent_killed_after_the_end_still_tells_the_exit_code,
        accidents::an_end_while_the_agent_was_away_is_told_truly,
        accidents::a_pod_that_vanished_while_the_agent_was_away_leaves_nothing,
        reaching::kubectl_reaches_into_a_vm,
        reaching::a_port_of_a_vm_is_forwarded,
        reaching::the_log_of_the_start_before_is_there,
        accidents::a_host_that_was_rebooted_does_not_call_it_a_success,
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn run(case: impl Future<Output = Result<()>>) -> Result<(), libtest_mimic::Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(case);
    runtime.shutdown_background();
    done.map_err(|error| format!("{error:#}").into())
}
