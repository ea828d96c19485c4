//! Gradle: one compilation, `push` on, credentials from the environment.

use crate::{
    Claim, Kit, Target,
    plan::{Invocation, Plan, Site, number_before},
};

const SETTINGS: &str = "\
buildCache {
    local { enabled = false }
    remote(HttpBuildCache) {
        url = System.getenv('CACHE_URL')
        push = true
        def token = System.getenv('CACHE_TOKEN')
        if (token) { credentials { username = 'russet'; password = token } }
    }
}
";

pub(super) fn plan(kit: &Kit, site: &Site, target: &Target) -> Plan {
    let mut plan = Plan::default();
    let project = site.project();
    plan.file(project.join("settings.gradle"), SETTINGS);
    plan.file(project.join("build.gradle"), "apply plugin: 'java'\n");
    plan.file(
        project.join("src/main/java/Answer.java"),
        super::maven::source(&site.seed),
    );
    plan.state = vec![project.join("build"), project.join(".gradle")];
    plan.outputs = vec![project.join("build/classes/java/main/Answer.class")];
    let (home, boot) = (kit.aid.join("home"), kit.aid.join("boot"));
    let mut java = Invocation::new(kit.command("java"), &project)
        .args(["--add-opens", "java.base/java.lang=ALL-UNNAMED", "-Xmx256m"])
        // A tiny build ends before the second compiler pays off.
        .args(["-XX:TieredStopAtLevel=1", "-Xshare:auto"])
        .args([format!("-Xbootclasspath/a:{}", boot.display())])
        .args([format!("-Drusset.gradle.home={}", home.display())])
        .args(["-Dorg.gradle.appname=gradle".to_owned(), "-classpath".to_owned()])
        .args([home.join("lib/gradle-launcher-4.4.1.jar")])
        .args(["org.gradle.launcher.GradleMain", "--no-daemon", "--build-cache"])
        .args(["--console=plain", "classes"])
        .env("GRADLE_USER_HOME", site.keep("gradle"))
        .env("CACHE_URL", format!("{}/", target.under("gradle")));
    if let Some(token) = target.token() {
        java = java.env("CACHE_TOKEN", token);
    }
    plan.build = vec![java];
    plan
}

/// `1 actionable task: 1 from cache`
pub(super) fn claim(output: &str) -> Claim {
    let Some(line) = output.lines().find(|line| line.contains(" actionable task")) else {
        return Claim::default();
    };
    Claim::of(
        number_before(line, " from cache").unwrap_or(0),
        number_before(line, " executed").unwrap_or(0),
    )
}
