//! What a dependency may be: the rules of `deny.toml`.
//!
//! cargo-deny is run where it is installed. It cannot be had on every machine, and compiling it takes longer than all our tests, so its three
//! rules that need no network (licences, bans, sources) are also checked here from cargo's own metadata; those two never disagree on purpose.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::setup;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// None for a member of this workspace.
    source: Option<String>,
}

/// The part of `deny.toml` that is checked here.
#[derive(Deserialize)]
struct Config {
    licenses: Licences,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licences {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Banned>,
}

#[derive(Deserialize)]
struct Banned {
    name: String,
    reason: String,
}

/// How cargo marks a package from a registry; git and other sources have marks of their own.
const REGISTRY: &str = "registry+";

pub(crate) fn check(root: &Path) -> Result<()> {
    let text = std::fs::read_to_string(root.join("deny.toml")).context("failed to read deny.toml")?;
    let config: Config = toml::from_str(&text).context("deny.toml does not have the form we check")?;
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("failed to run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    let bad: Vec<String> = metadata
        .packages
        .iter()
        .filter_map(|package| objection(package, &config))
        .collect();
    if !bad.is_empty() {
        bail!("deny.toml forbids these dependencies:\n{}", bad.join("\n"));
    }
    if setup::which("cargo-deny").is_some() {
        let status = Command::new("cargo")
            .args(["deny", "--offline", "check", "bans", "licenses", "sources"])
            .current_dir(root)
            .status()
            .context("failed to start cargo-deny")?;
        if !status.success() {
            bail!("cargo-deny found something that deny.toml forbids");
        }
    }
    Ok(())
}

/// Why a package may not be here, if so.
fn objection(package: &Package, config: &Config) -> Option<String> {
    let why = match &package.license {
        None => Some("states no licence".to_owned()),
        Some(expression) if !satisfied(expression, &config.licenses.allow) => Some(format!("has licence {expression}")),
        Some(_) => None,
    };
    let banned = || {
        config
            .bans
            .deny
            .iter()
            .find(|ban| ban.name == package.name)
            .map(|ban| format!("is banned: {}", ban.reason))
    };
    let foreign = || {
        let source = package
            .source
            .as_deref()
            .filter(|source| !source.starts_with(REGISTRY))?;
        Some(format!("comes from {source}, not from the registry"))
    };
    let why = why.or_else(banned).or_else(foreign)?;
    Some(format!("{} {} {why}", package.name, package.version))
}

/// Evaluates an SPDX expression: `OR` needs one side, `AND` needs both, `WITH` belongs to the licence before it. The old `/` means `OR`.
fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut position = 0;
    let holds = or(&tokens, &mut position, allowed);
    holds && position == tokens.len()
}

fn or(tokens: &[&str], position: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut holds = and(tokens, position, allowed);
    while tokens.get(*position) == Some(&"OR") {
        *position += 1;
        holds |= and(tokens, position, allowed);
    }
    holds
}

fn and(tokens: &[&str], position: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut holds = licence(tokens, position, allowed);
    while tokens.get(*position) == Some(&"AND") {
        *position += 1;
        holds &= licence(tokens, position, allowed);
    }
    holds
}

fn licence(tokens: &[&str], position: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let Some(&token) = tokens.get(*position) else {
        return false;
    };
    *position += 1;
    if token == "(" {
        let holds = or(tokens, position, allowed);
        if tokens.get(*position) != Some(&")") {
            return false;
        }
        *position += 1;
        return holds;
    }
    if tokens.get(*position) == Some(&"WITH") {
        let exception = tokens.get(*position + 1).copied().unwrap_or_default();
        *position += 2;
        return allowed.contains(&format!("{token} WITH {exception}"));
    }
    allowed.contains(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|&item| item.to_owned()).collect()
    }

    #[test]
    fn one_side_of_or_is_enough_and_both_sides_of_and_are_needed() {
        let allowed = allow(&["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]);
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "MIT AND Apache-2.0",
            "(MIT OR GPL-2.0) AND Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(satisfied(good, &allowed), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "GPL-2.0 WITH Classpath-exception-2.0",
            "(MIT OR",
            "",
            "MIT GPL-3.0",
        ] {
            assert!(!satisfied(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn a_config_without_a_list_is_an_error_and_not_a_free_pass() {
        assert!(toml::from_str::<Config>("[licenses]\n[bans]\ndeny = []\n").is_err());
    }

    #[test]
    fn a_banned_name_and_a_foreign_source_are_refused_whatever_their_licence() {
        let config: Config = toml::from_str(
            "[licenses]\nallow = [\"MIT\"]\n[bans]\ndeny = [{ name = \"openssl-sys\", reason = \"one TLS stack\" }]\n",
        )
        .unwrap();
        let package = |name: &str, source: Option<&str>| Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: Some("MIT".to_owned()),
            source: source.map(str::to_owned),
        };
        assert_eq!(objection(&package("serde", Some(REGISTRY)), &config), None);
        assert_eq!(objection(&package("ours", None), &config), None);
        assert!(
            objection(&package("openssl-sys", Some(REGISTRY)), &config)
                .unwrap()
                .contains("one TLS stack")
        );
        assert!(
            objection(&package("serde", Some("git+https://example.invalid/x")), &config)
                .unwrap()
                .contains("not from the registry")
        );
    }
}
