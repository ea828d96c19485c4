//! What every runtime keeps to, tried on each of them; and what only Tart has to be tried for.
//!
//! This program is four: the tests, `tart` (the emulator) when it is called so, a supervisor and an agent when told so. That way
//! the tests need no other package to be built.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, its helpers too"
)]

mod cases;
mod only_tart;
mod world;

use libtest_mimic::{Arguments, Trial};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use world::{SyntheticWorld, TartWorld};

/// Generous: the machine may be busy with other things.
const DEADLINE: Duration = Duration::from_mins(4);

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = PathBuf::from(words.next().unwrap_or_default());
    let words: Vec<_> = words.collect();
    if words.first().is_some_and(|word| word == world::SUPERVISE) {
        return russet_vm::supervise::main();
    }
    if words.first().is_some_and(|word| word == only_tart::AGENT) {
        only_tart::agent(&words);
        return ExitCode::SUCCESS;
    }
    if russet_sim_tart::poses(&program, words.first()) {
        return russet_sim_tart::main(words.into_iter());
    }
    let mut trials = Vec::new();
    for case in cases::ALL {
        trials.push(trial("synthetic", case.name, || {
            run((case.run)(Box::new(SyntheticWorld::new())));
        }));
        trials.push(trial("tart", case.name, || run((case.run)(Box::new(TartWorld::new())))));
    }
    for case in only_tart::ALL {
        trials.push(trial("only_tart", case.name, || run((case.run)(TartWorld::new()))));
    }
    let mut arguments = Arguments::from_args();
    // Each of them mostly waits, whatever the machine has.
    arguments.test_threads.get_or_insert(4);
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(kind: &str, name: &str, run: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(format!("{kind}::{name}"), || {
        run();
        Ok(())
    })
}

fn run(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(DEADLINE, case)
            .await
            .expect("the case took too long");
    });
    runtime.shutdown_background();
}
