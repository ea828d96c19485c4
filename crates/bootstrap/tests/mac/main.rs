//! Setting up Macs: the plan of `russet-bootstrap` on emulated Macs, over a real SSH connection.

mod harness;
mod life;
