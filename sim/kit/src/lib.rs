//! The stage emulators of web APIs play on: a clock, faults, and a wire that can break.
//!
//! Only what has nothing to do with the API that is emulated is here. What an answer looks like, and what a fault does to it, is the
//! emulator's own.

pub mod clock;
pub mod fault;
pub mod wire;

pub use clock::{BadFactor, Clock, Factor};
pub use fault::{Fault, FaultId, Faults, When};
