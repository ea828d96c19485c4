//! ccache with nothing but its remote storage. The token is part of a setting that ccache reads from the environment.

use crate::{
    Claim, Kit, Target,
    plan::{Invocation, Plan, Site},
};

pub(super) fn plan(kit: &Kit, site: &Site, target: &Target) -> Plan {
    let mut plan = Plan::default();
    let project = site.project();
    let mut storage = format!("{}|layout=subdirs", target.under("ccache"));
    if let Some(token) = target.token() {
        storage.push_str("|bearer-token=");
        storage.push_str(token);
    }
    let ccache = || {
        Invocation::new(&kit.main, &project)
            .env("CCACHE_DIR", site.state("ccache"))
            .env("CCACHE_NOHASHDIR", "1")
            .env("CCACHE_REMOTE_ONLY", "1")
            .env("CCACHE_REMOTE_STORAGE", &storage)
    };
    for unit in super::UNITS {
        let (source, object) = (format!("{unit}.c"), format!("{unit}.o"));
        plan.file(project.join(&source), c_source(&site.seed, unit));
        plan.state.push(project.join(&object));
        plan.outputs.push(project.join(&object));
        plan.build
            .push(ccache().args([kit.command("gcc")]).args(["-c", &source, "-o", &object]));
    }
    plan.report = Some(ccache().args(["--print-stats"]));
    plan
}

/// A compilation unit whose object depends on the seed.
pub(super) fn c_source(seed: &str, unit: &str) -> String {
    format!("const char *{unit}(void) {{ return \"{seed} {unit}\"; }}\n")
}

/// Lines of `name<TAB>number`.
pub(super) fn claim(report: &str) -> Claim {
    let number = |wanted: &str| {
        report.lines().find_map(|line| {
            let (name, value) = line.split_once('\t')?;
            (name == wanted).then(|| value.trim().parse::<u64>().ok())?
        })
    };
    match (
        number("direct_cache_hit"),
        number("preprocessed_cache_hit"),
        number("cache_miss"),
    ) {
        (Some(direct), Some(preprocessed), Some(misses)) => Claim::of(direct + preprocessed, misses),
        _ => Claim::default(),
    }
}
