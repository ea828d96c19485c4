//! Go, through `kura cacheprog`: a program of one line, and the runtime below it.

use crate::{
    Kit, Target,
    plan::{Invocation, Plan, Site},
};

pub(super) fn plan(kit: &Kit, site: &Site, target: &Target) -> Plan {
    let mut plan = Plan::default();
    let project = site.project();
    plan.file(project.join("go.mod"), "module example.org/answer\n\ngo 1.24\n");
    plan.file(
        project.join("main.go"),
        format!("package main\n\nfunc main() {{ println(\"{}\") }}\n", site.seed),
    );
    let program = project.join("answer");
    plan.state.push(program.clone());
    plan.outputs.push(program);
    let mut go = Invocation::new(kit.command("go"), &project)
        .args(["build", "-trimpath", "-o", "answer", "."])
        .env("GOCACHEPROG", format!("{} cacheprog", kit.kura.display()))
        .env("KURA_CACHEPROG_URL", target.under("go"))
        .env("KURA_CACHEPROG_DIR", site.state("cacheprog"))
        .env("GOCACHE", site.state("go-build"))
        .env("GOPATH", site.keep("go"))
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-buildvcs=false")
        .env("CGO_ENABLED", "0");
    if let Some(token) = target.token() {
        go = go.env("KURA_CACHEPROG_TOKEN", token);
    }
    plan.build = vec![go];
    plan
}
