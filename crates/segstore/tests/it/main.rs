#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::similar_names,
    clippy::print_stdout,
    clippy::manual_is_multiple_of,
    clippy::duration_suboptimal_units,
    clippy::large_stack_arrays,
    clippy::case_sensitive_file_extension_comparisons,
    clippy::zero_sized_map_values,
    reason = "tests say what went wrong by panicking; numbers here are small"
)]

//! The store from outside.

/// Cases that ever failed.
const ALWAYS: &str = include_str!("always.txt");

mod basics;
mod clock;
mod crash;
mod decoders;
mod faults;
mod fixtures;
mod flips;
mod full;
mod permission;
mod races;
mod replay;
mod vouch;
mod world;
