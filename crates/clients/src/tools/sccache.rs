//! sccache over WebDAV. Its server is per project (a socket in the project's folder), started by the first compilation.

use crate::{
    Claim, Kit, Target,
    plan::{Invocation, Plan, Site},
};

pub(super) fn plan(kit: &Kit, site: &Site, target: &Target) -> Plan {
    let mut plan = Plan::default();
    let project = site.project();
    let sccache = || {
        let mut sccache = Invocation::new(&kit.main, &project)
            .env("SCCACHE_SERVER_UDS", site.keep("sccache.sock"))
            .env("SCCACHE_IDLE_TIMEOUT", "60")
            .env("SCCACHE_CONF", site.keep("none"))
            .env("SCCACHE_CACHED_CONF", site.keep("none-cached"))
            .env("SCCACHE_WEBDAV_ENDPOINT", target.under("sccache"));
        if let Some(token) = target.token() {
            sccache = sccache.env("SCCACHE_WEBDAV_TOKEN", token);
        }
        sccache
    };
    for unit in super::UNITS {
        let (source, object) = (format!("{unit}.c"), format!("{unit}.o"));
        plan.file(project.join(&source), super::ccache::c_source(&site.seed, unit));
        plan.state.push(project.join(&object));
        plan.outputs.push(project.join(&object));
        plan.build.push(
            sccache()
                .args([kit.command("gcc")])
                .args(["-c", &source, "-o", &object]),
        );
    }
    plan.report = Some(sccache().args(["--show-stats", "--stats-format=json"]));
    // The server took the URL and the token of the build that started it: the next build needs a new one.
    plan.forget = vec![sccache().args(["--stop-server"])];
    plan.stop.clone_from(&plan.forget);
    plan
}

/// The JSON of `--show-stats`: counts by language.
pub(super) fn claim(report: &str) -> Claim {
    let start = report.find('{').unwrap_or(report.len());
    let parsed = report.get(start..).and_then(|text| {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
        values.next()?.ok()
    });
    let Some(stats) = parsed else { return Claim::default() };
    let sum = |name: &str| {
        let counts = stats.pointer(&format!("/stats/{name}/counts"))?.as_object()?;
        Some(counts.values().filter_map(serde_json::Value::as_u64).sum())
    };
    Claim {
        hits: sum("cache_hits"),
        misses: sum("cache_misses"),
    }
}
