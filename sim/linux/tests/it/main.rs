//! Real servers: what happens inside when they boot, and that nothing of them stays. Needs root and a few system packages;
//! without them the tests say so and end.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, its helpers too"
)]

mod boots;
mod harness;
mod join;
mod program;
mod synthetic;
