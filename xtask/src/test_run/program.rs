//! The test programs of the workspace, as cargo built them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) package: String,
    /// The target: `it`, or the name of a crate for its unit tests.
    pub(crate) target: String,
    pub(crate) file: PathBuf,
    /// The folder of its package, where cargo would run it.
    pub(crate) folder: PathBuf,
    /// Run only tests whose names contain one of these; empty runs all.
    pub(crate) only: Vec<String>,
}

impl Program {
    /// What the program is called in tables: `package:target`.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.package, self.target)
    }

    /// The names of its tests in the order in which its harness starts them.
    pub(crate) fn tests(&self) -> Result<Vec<String>> {
        let output = self
            .command()
            .args(["--list", "--format", "terse"])
            .args(&self.only)
            .output()
            .with_context(|| format!("failed to list the tests of {}", self.name()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .map(str::to_owned)
            .collect())
    }

    /// The program in the folder where cargo would run it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        command
    }
}

/// The test programs of the workspace; they were compiled before, so this only lists them.
pub(crate) fn built(root: &Path) -> Result<Vec<Program>> {
    let output = Command::new("cargo")
        .args(["test", "--workspace", "--no-run", "--quiet", "--message-format", "json"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("failed to start cargo")?;
    if !output.status.success() {
        bail!("cargo could not build the tests: {}", output.status);
    }
    let programs = programs(&String::from_utf8_lossy(&output.stdout));
    if programs.is_empty() {
        bail!("cargo lists no test program");
    }
    Ok(programs)
}

/// The test programs among the messages of cargo.
fn programs(messages: &str) -> Vec<Program> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter_map(|message| program(&message)).collect()
}

fn program(message: &Value) -> Option<Program> {
    let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
    if message.pointer("/profile/test") != Some(&Value::Bool(true)) {
        return None;
    }
    let folder = Path::new(text("/manifest_path")?).parent()?.to_owned();
    // `path+file:///folder#name@version`, or without the name where it is that of the folder.
    let (place, after) = text("/package_id")?.rsplit_once('#')?;
    let package = match after.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit_once('/')?.1,
    };
    Some(Program {
        package: package.to_owned(),
        target: text("/target/name")?.to_owned(),
        file: text("/executable")?.into(),
        folder,
        only: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_known_by_its_package_and_target() {
        let artifact = |profile: bool, id: &str| {
            serde_json::json!({
                "reason": "compiler-artifact", "package_id": id, "manifest_path": "/w/bin/russet/Cargo.toml",
                "target": {"name": "it"}, "profile": {"test": profile}, "executable": "/w/target/debug/deps/it-2",
            })
            .to_string()
        };
        let messages = [
            artifact(false, "path+file:///w/bin/russet#0.1.0"),
            artifact(true, "path+file:///w/bin/russet#0.1.0"),
            artifact(true, "path+file:///w/e2e#russet-e2e@0.1.0"),
            "not JSON".to_owned(),
        ];
        let found = programs(&messages.join("\n"));
        let packages: Vec<_> = found.iter().map(|program| program.package.as_str()).collect();
        assert_eq!(packages, ["russet", "russet-e2e"]);
        assert_eq!(found.first().unwrap().folder, Path::new("/w/bin/russet"));
    }
}
