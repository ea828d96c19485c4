//! Our kubelet beside a stock one; [`compare`] says how they are compared.
//!
//! This program is two: the tests, and `tart` when it is called so. Each Pod is a test of its own, and all share one cluster with
//! one Linux node and a few Macs.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::wildcard_imports,
    reason = "a test fails by panicking; here clippy cannot tell one, since this program has a harness of its own"
)]

mod compare;
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
    let mut trials: Vec<Trial> = compare::FACTS
        .iter()
        .map(|(name, fact)| {
            Trial::test(*name, || {
                fact();
                Ok(())
            })
        })
        .collect();
    trials.extend(compare::all().into_iter().map(|case| {
        let handle = runtime.handle().clone();
        Trial::test(case.name, move || {
            let done = handle.block_on(async {
                if !russet_stages::linux::can_run(case.name).await {
                    return Ok(());
                }
                Stage::shared().await?.compare(&case).await
            });
            done.map_err(|error| format!("{error:#}").into())
        })
    }));
    let done = libtest_mimic::run(&arguments, trials);
    runtime.block_on(Stage::end());
    runtime.shutdown_background();
    done.exit_code()
}
