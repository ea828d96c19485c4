//! Whether so many hosts are what they should be: what each reconcile of a machine asks, and the plan that is made when one is not.

use super::world::facts;
use jiff::Timestamp;
use russet_api::apple_silicon_machine::ScalewayAppleSiliconMachineStatus;
use russet_api::conditions::{Condition, reasons, types};
use russet_capi_provider::bootstrap::{Bootstrapper as _, HostFacts, Ssh};
use russet_capi_provider::rollout::{self, Facts, Host, Policy};
use std::time::{Duration, Instant};

const PASSES: u32 = 20;

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drift {
    pub(super) hosts: u32,
    /// Files that were read to the end for it.
    pub(super) hashed: u64,
    /// The hash of all of them, compared with what each has.
    pub(super) check: Duration,
    /// The same, and the plan of the rollout for them as one fleet.
    pub(super) plan: Duration,
}

pub(super) fn measure(ssh: &Ssh, hosts: u32) -> Drift {
    let all: Vec<HostFacts> = (0..hosts).map(|_| facts()).collect();
    let status = ScalewayAppleSiliconMachineStatus {
        host_config_hash: all.first().map(|facts| ssh.desired(facts).as_str().to_owned()),
        conditions: vec![Condition::new(types::BOOTSTRAPPED, true, reasons::READY)],
        ..ScalewayAppleSiliconMachineStatus::default()
    };
    let before = ssh.hashed();
    let look = || -> Vec<Host> {
        let names = all.iter().enumerate();
        names
            .map(|(number, facts)| {
                let desired = ssh.desired(facts);
                let around = Facts {
                    ready: true,
                    ..Facts::default()
                };
                Host::of(&format!("mac-{number}"), desired.as_str(), &status, around)
            })
            .collect()
    };
    let check = best(|| {
        let drifted = look().iter().filter(|host| host.drifted()).count();
        std::hint::black_box(drifted);
    });
    let plan = best(|| {
        let plan = rollout::plan(&look(), &Policy::default(), Timestamp::now());
        std::hint::black_box(plan);
    });
    Drift {
        hosts,
        hashed: ssh.hashed() - before,
        check,
        plan,
    }
}

/// The quickest of some: others use the machine, too.
fn best(work: impl Fn()) -> Duration {
    let passes = (0..PASSES).map(|_| {
        let began = Instant::now();
        work();
        began.elapsed()
    });
    passes.min().unwrap_or_default()
}
