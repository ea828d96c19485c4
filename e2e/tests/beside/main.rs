//! Our kubelet beside a stock one; `russet_e2e::beside` says how they are compared.
//!
//! This program is two: the tests, and `tart` when it is called so. Each Pod is a test of its own, and all share one cluster with
//! one Linux node and a few Macs.

mod mac;
mod record;
mod run;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use self::stage::Stage;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = PathBuf::from(words.next().unwrap_or_default());
    let words: Vec<_> = words.collect();
    if russet_sim_tart::poses(&program, words.first()) {
        return russet_sim_tart::main(words.into_iter());
    }
    let mut arguments = Arguments::from_args();
    // Each of them mostly waits, whatever the machine has.
    arguments.test_threads.get_or_insert(stage::MACS);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let trials = russet_e2e::beside::all().into_iter().map(|case| {
        let handle = runtime.handle().clone();
        Trial::test(case.name, move || {
            let done = handle.block_on(async {
                if !russet_e2e::linux::can_run(case.name).await {
                    return Ok(());
                }
                Stage::shared().await?.compare(&case).await
            });
            done.map_err(|error| format!("{error:#}").into())
        })
    });
    let done = libtest_mimic::run(&arguments, trials.collect());
    runtime.block_on(Stage::end());
    runtime.shutdown_background();
    done.exit_code()
}
