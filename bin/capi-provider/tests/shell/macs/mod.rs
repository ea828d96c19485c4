//! Macs that are set up over SSH: by the bootstrapper of the provider alone, and with everything of the provider in between.

mod hosts;
mod stage;
mod stories;
