//! What the emulated `tart` says and does, by the built program. Read it as documentation of the real one's habits.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, its helpers too"
)]

mod files;
mod guests;
mod harness;
mod lies;
mod pulls;
mod words;
