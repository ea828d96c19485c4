//! What an honest client may rely on, one file per subject.

mod bazel;
mod blobs;
mod clean;
mod conditions;
mod errors;
mod framing;
mod keyvalue;
mod modules;
pub(super) mod probes;
mod ranges;
mod scope;
mod stalls;
pub(super) mod tools;
mod trust;

use super::Suite;

pub(super) const SUITES: &[Suite] = &[
    blobs::CHECKS,
    tools::CHECKS,
    bazel::CHECKS,
    keyvalue::CHECKS,
    modules::CHECKS,
    clean::CHECKS,
    scope::CHECKS,
    ranges::CHECKS,
    conditions::CHECKS,
    framing::CHECKS,
    stalls::CHECKS,
    errors::CHECKS,
    probes::CHECKS,
    trust::CHECKS,
];
