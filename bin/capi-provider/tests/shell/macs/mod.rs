//! Macs that are set up over SSH, with everything of the provider in between.

mod stage;
mod stories;
