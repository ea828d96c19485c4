//! `sim-tart`: poses as `tart`. Install it under that name.

use std::process::ExitCode;

fn main() -> ExitCode {
    russet_sim_tart::main(std::env::args_os().skip(1))
}
