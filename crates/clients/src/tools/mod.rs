//! One file per tool: the tiny project, its set-up against the cache, and how to read what the tool says.

mod bazel;
mod ccache;
mod go;
mod gradle;
pub(crate) mod maven;
mod metro;
mod moon;
mod nx;
mod sccache;
mod turborepo;

use crate::{
    Claim, Kit, Target, Tool,
    plan::{Plan, Site},
};

/// The names of a project's two units of work, where the tool has a notion of them.
pub(crate) const UNITS: [&str; 2] = ["one", "two"];

pub(crate) fn plan(kit: &Kit, site: &Site, target: &Target) -> Plan {
    match kit.tool {
        Tool::Gradle => gradle::plan(kit, site, target),
        Tool::Maven => maven::plan(kit, site, target),
        Tool::Ccache => ccache::plan(kit, site, target),
        Tool::Sccache => sccache::plan(kit, site, target),
        Tool::Bazel | Tool::BazelGrpc => bazel::plan(kit, site, target),
        Tool::Nx => nx::plan(kit, site, target),
        Tool::Turborepo => turborepo::plan(kit, site, target),
        Tool::Metro => metro::plan(kit, site, target),
        Tool::Moon => moon::plan(kit, site, target),
        Tool::Go => go::plan(kit, site, target),
    }
}

/// What the tool says of a build, from what it printed and from its report.
pub(crate) fn claim(tool: Tool, output: &str, report: &str) -> Claim {
    match tool {
        Tool::Gradle => gradle::claim(output),
        Tool::Maven => maven::claim(output),
        Tool::Ccache => ccache::claim(report),
        Tool::Sccache => sccache::claim(report),
        Tool::Bazel | Tool::BazelGrpc => bazel::claim(output),
        Tool::Nx => nx::claim(output),
        Tool::Turborepo => turborepo::claim(output),
        Tool::Moon => moon::claim(output),
        // Neither says a word about its cache.
        Tool::Metro | Tool::Go => Claim::default(),
    }
}

#[cfg(test)]
mod tests;
