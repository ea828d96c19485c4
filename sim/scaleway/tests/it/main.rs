//! What a client sees, over real HTTP.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, its helpers too"
)]

mod bill;
mod boxes;
mod control;
mod faults;
mod harness;
mod hosts;
mod instances;
mod keys;
mod metals;
mod networks;
mod pages;
mod persistence;
mod program;
mod property;
mod property_linux;
mod servers;
mod strictness;
