//! What emulators have in common: the frame of a program, a clock, faults, a journal, a control API, and a wire that can break.
//!
//! Only what has nothing to do with the API that is emulated is here. What a call means, and what a fault does to it, is the
//! emulator's own.

pub mod clock;
pub mod control;
pub mod fault;
pub mod log;
pub mod logged;
pub mod program;
pub mod wire;

pub use clock::{BadFactor, Clock, Factor};
pub use fault::{Fault, FaultId, Faults, When};
pub use log::Log;
