//! Metro: one bundle of two modules, with the HTTP store as its only cache.

use crate::{
    Kit, Target,
    plan::{Invocation, Plan, Site},
};

const CONFIGURATION: &str = "\
const { HttpStore } = require('metro-cache');
const token = process.env.CACHE_TOKEN;
module.exports = {
  projectRoot: __dirname,
  watchFolders: [process.env.MODULES],
  maxWorkers: 1,
  reporter: { update() {} },
  cacheStores: [
    new HttpStore({
      endpoint: process.env.CACHE_URL,
      timeout: 20000,
      headers: token ? { Authorization: `Bearer ${token}` } : {},
    }),
  ],
};
";

pub(super) fn plan(kit: &Kit, site: &Site, target: &Target) -> Plan {
    let mut plan = Plan::default();
    let project = site.project();
    let modules = kit.main.join("node_modules");
    plan.links.push((modules.clone(), project.join("node_modules")));
    plan.file(
        project.join("package.json"),
        "{\"name\": \"root\", \"private\": true}\n",
    );
    plan.file(project.join("metro.config.js"), CONFIGURATION);
    plan.file(
        project.join("index.js"),
        format!(
            "const two = require('./two');\nconsole.log('{} one', two);\n",
            site.seed
        ),
    );
    plan.file(
        project.join("two.js"),
        format!("module.exports = '{} two';\n", site.seed),
    );
    let bundle = project.join("bundle.js");
    plan.state.push(bundle.clone());
    plan.outputs.push(bundle);
    let mut metro = Invocation::new(kit.command("node"), &project)
        .args([modules.join(".bin/metro")])
        .args(["build", "index.js", "--out", "bundle.js", "--config", "metro.config.js"])
        .env("MODULES", &modules)
        .env("CACHE_URL", format!("{}/api/metro/cache", target.base()));
    if let Some(token) = target.token() {
        metro = metro.env("CACHE_TOKEN", token);
    }
    plan.build = vec![metro];
    plan
}
