//! Folders the user named. They win over everything else, so what is wrong with them is said and never passed over in silence.

use std::{ffi::OsString, path::PathBuf, process::Stdio, time::Duration};

use tokio::process::Command;

use crate::{Error, Located, Origin, Part, Tool, ToolKind, executable, platform::Platform};

/// The tool in the first given folder that has it.
pub(crate) fn find(folders: &[PathBuf], tool: &Tool, platform: &Platform) -> Result<Option<Located>, Error> {
    for folder in folders {
        if !folder.is_dir() {
            return Err(Error::GivenFolder { path: folder.clone() });
        }
        let path = folder.join(&tool.name);
        // A link that leads nowhere is a mistake to report, not an absent tool.
        if path.symlink_metadata().is_err() {
            continue;
        }
        let problem = match tool.kind {
            ToolKind::Program => executable::problem(&path, platform),
            ToolKind::Directory => (!path.is_dir()).then(|| "it is not a folder".to_owned()),
        };
        return match problem {
            None => Ok(Some(Located {
                path,
                origin: Origin::Given,
                version: None,
            })),
            Some(problem) => Err(Error::Given {
                tool: tool.name.clone(),
                path,
                problem,
            }),
        };
    }
    Ok(None)
}

/// Asks a given program for its version: an error if it does not even start, a remark if it differs from the one Russet is tested with.
pub(crate) async fn remark(
    part: &Part,
    tool: &Tool,
    located: &Located,
    path: OsString,
) -> Result<Option<String>, Error> {
    const PATIENCE: Duration = Duration::from_secs(10);
    if tool.version_args.is_empty() {
        return Ok(None);
    }
    let unusable = |problem: String| Error::Given {
        tool: tool.name.clone(),
        path: located.path.clone(),
        problem,
    };
    let asked = Command::new(&located.path)
        .args(&tool.version_args)
        .env("PATH", path)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(unusable(format!("it does not start: {error}"))),
        Err(_) => {
            return Ok(Some(format!(
                "{} did not tell its version within {} s",
                located.path.display(),
                PATIENCE.as_secs()
            )));
        }
    };
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if !output.status.success() {
        let first = text.lines().next().unwrap_or("no output");
        return Err(unusable(format!(
            "asked for its version it ended with {}: {first}",
            output.status
        )));
    }
    let wanted = part.version.trim_start_matches('v');
    Ok(match version_in(&text) {
        Some(found) if found == wanted => None,
        Some(found) => Some(format!(
            "{} is version {found}; Russet is tested with {wanted}",
            located.path.display()
        )),
        None => Some(format!(
            "{} told no version; Russet is tested with {wanted}",
            located.path.display()
        )),
    })
}

/// The first thing that looks like `1.2.3`, build metadata cut off.
fn version_in(text: &str) -> Option<&str> {
    text.split(|c: char| c.is_whitespace() || matches!(c, ',' | '"' | ':'))
        .find_map(|word| {
            let word = word.trim_start_matches('v');
            let version = word.split('+').next().unwrap_or(word);
            let core = version.split('-').next().unwrap_or(version);
            let numbers: Vec<_> = core.split('.').collect();
            (numbers.len() == 3
                && numbers
                    .iter()
                    .all(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit())))
            .then_some(version)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_the_real_tools_print() {
        assert_eq!(version_in("Kubernetes v1.35.4\n"), Some("1.35.4"));
        let etcd = version_in("etcd Version: 3.6.16\nGit SHA: Not provided\nGo Version: go1.26.8\n");
        assert_eq!(etcd, Some("3.6.16"));
        assert_eq!(version_in("v4.3.1+g1234567\n"), Some("4.3.1"));
        let kubectl = version_in("Client Version: v1.36.0-rc.1\nKustomize Version: v5.7.1\n");
        assert_eq!(kubectl, Some("1.36.0-rc.1"));
        assert_eq!(version_in("usage: thing [flags]"), None);
    }
}
