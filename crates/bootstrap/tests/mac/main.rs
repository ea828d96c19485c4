//! Setting up Macs: the plan of `russet-bootstrap` on emulated Macs, over a real SSH connection.

mod builder;
mod cuts;
mod drift;
mod harness;
mod launchd;
mod life;
mod trouble;
