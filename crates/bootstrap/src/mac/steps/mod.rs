//! The steps, one file each.

mod agent;
mod auto_login;
mod builder;
mod firewall;
mod hostname;
mod names;
mod observe;
mod private_network;
mod reachability;
mod sleep;
pub(super) mod ssh;
pub(super) mod sudo;
mod tailnet;
mod tart;
mod volume;

use super::config::{Fleet, Host};
use super::resource::Resource;
use super::step::Step;

/// All of them, in order: what a step relies on comes before it. A step is in the list for every host; one that does not apply
/// makes sure that what it would have set up is not there.
pub(super) fn all(fleet: &Fleet, host: &Host) -> Vec<Step> {
    vec![
        sudo::step(&host.user),
        ssh::step(host),
        auto_login::step(host),
        sleep::step(),
        reachability::step(),
        hostname::step(host),
        tart::step(fleet),
        volume::step(fleet, host),
        private_network::step(host),
        firewall::step(fleet),
        firewall::nat(fleet),
        tailnet::step(fleet, host),
        names::resolver(fleet),
        names::local_network(),
        firewall::guard(fleet),
        observe::exporter(fleet),
        agent::kubeconfig(host),
        agent::api_server(fleet),
        agent::program(fleet),
        agent::job(fleet, host),
        builder::step(host),
        observe::logs(fleet, host),
    ]
}

/// Those that look at what changes on a host without anybody of ours: what they look at is cheap to read, and nothing of it is secret.
pub(super) fn watched(host: &Host) -> Vec<Step> {
    host.runner.iter().map(|_| builder::step(host)).collect()
}

/// No such daemon.
fn absent_job(label: &str) -> Resource {
    Resource::NoJob {
        job: format!("system/{label}"),
        plist: format!("/Library/LaunchDaemons/{label}.plist"),
    }
}
