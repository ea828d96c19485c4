//! What the emulated `tart` says and does, by the built program. Read it as documentation of the real one's habits.

mod files;
mod guests;
mod harness;
mod lies;
mod pulls;
mod words;
