//! Setting up Macs over SSH: the bootstrapper of the provider on emulated Macs behind an emulated Scaleway.

mod harness;
mod life;
