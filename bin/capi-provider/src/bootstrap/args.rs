//! Flags of the set-up of hosts.

use std::time::Duration;

use clap::{Args, ValueEnum};
use russet_controller::duration;
use serde::Serialize;

use crate::rollout::RolloutArgs;

/// How hosts are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostBootstrap {
    /// Over SSH: the way for Macs.
    Ssh,
    /// By an emulated Mac that joins a synthetic Node: for laptops and tests.
    StandIn,
}

/// Flags of the set-up of hosts.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Host bootstrap")]
#[serde(rename_all = "camelCase")]
pub struct BootstrapArgs {
    /// How hosts are set up.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = HostBootstrap::Ssh, env = "CAPI_HOST_BOOTSTRAP")]
    pub host_bootstrap: HostBootstrap,

    /// Port on which hosts are logged in to, with --host-bootstrap=ssh.
    #[arg(long, value_name = "PORT", env = "CAPI_HOST_SSH_PORT", default_value_t = 22)]
    pub host_ssh_port: u16,

    /// How long a program on a host has to stay before it counts as started, with --host-bootstrap=ssh.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub host_settle_time: Duration,

    /// Port on which emulated Macs listen, with --host-bootstrap=stand-in.
    #[arg(long, value_name = "PORT", default_value_t = 10251)]
    pub stand_in_port: u16,

    /// Failed attempts to set up a host before it is rebooted once; 0 for never.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub bootstrap_reboot_after: u32,

    /// Failed attempts to set up a host before it is given back and another taken; 0 for never.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub bootstrap_max_attempts: u32,

    /// Time between two attempts to set up a host.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    pub bootstrap_retry_interval: Duration,

    /// Time after which steps that had to wait, such as an exchange of tart under virtual machines, are tried again.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    pub bootstrap_held_interval: Duration,

    /// Time between two looks at what changes on builders by itself, such as the code signature of a Packer that somebody upgraded; 0s
    /// for never. A look is one command and changes nothing.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration::parse)]
    pub bootstrap_look_interval: Duration,

    /// Hosts that are set up at once.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub max_concurrent_bootstraps: u16,

    /// How hosts that serve are brought up to date.
    #[command(flatten)]
    #[serde(flatten)]
    pub rollout: RolloutArgs,
}
