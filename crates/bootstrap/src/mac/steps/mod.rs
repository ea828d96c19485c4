//! The steps, one file each.

mod agent;
mod auto_login;
mod hostname;
mod names;
mod reachability;
mod sleep;
pub(super) mod sudo;
mod tart;

use super::config::{Fleet, Host};
use super::step::Step;

/// All of them, in order: what a step relies on comes before it. A step is in the list for every host; one that does not apply
/// makes sure that what it would have set up is not there.
pub(super) fn all(fleet: &Fleet, host: &Host) -> Vec<Step> {
    vec![
        sudo::step(&host.user),
        auto_login::step(host),
        sleep::step(),
        reachability::step(),
        hostname::step(host),
        tart::step(fleet),
        names::resolver(fleet),
        names::local_network(),
        agent::kubeconfig(host),
        agent::program(fleet),
        agent::job(fleet, host),
    ]
}
