//! Linux servers whose provider dies, or whose calls fail, at any call: none is there twice, none is leaked.
//!
//! Servers join as soon as they are up with a script, or when somebody runs it on them.

mod cases;
mod doors;
mod world;
