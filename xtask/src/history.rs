//! `xtask check-crds` and `xtask record-crds`: the schemas that were ever installed, and what became of them.
//!
//! `crates/api/schema-history/<n>-<name>/` holds one CRD per file, as a release installed it. `accepted.yaml` beside them
//! lists the findings somebody has looked at, with the reason why no stored object is hurt; an entry that no longer
//! matches anything is an error too, so that the list stays short and true.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize;

use crate::compatibility::{self, Change, Finding};

const FOLDER: &str = "crates/api/schema-history";
const ACCEPTED: &str = "accepted.yaml";

/// Changes of one field that were looked at and found harmless.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    /// Plural names of the kinds, or `*` for all.
    kinds: Vec<String>,
    /// The field; `spec.template.spec` of a template counts as `spec`.
    path: String,
    changes: Vec<Change>,
    reason: String,
}

impl Accepted {
    fn covers(&self, finding: &Finding) -> bool {
        let plural = finding.crd.split('.').next().unwrap_or_default();
        let path = match finding.path.strip_prefix("spec.template.spec") {
            Some(rest) => format!("spec{rest}"),
            None => finding.path.clone(),
        };
        self.changes.contains(&finding.change)
            && self.path == path
            && self.kinds.iter().any(|k| k == plural || k == "*")
    }
}

/// One entry of the history.
struct Era {
    name: String,
    crds: Vec<CustomResourceDefinition>,
}

/// Fails on any finding that is not accepted, and on any acceptance that finds nothing.
pub(crate) fn check(root: &Path) -> Result<()> {
    let folder = root.join(FOLDER);
    let accepted = read_accepted(&folder.join(ACCEPTED))?;
    let eras = read_eras(&folder)?;
    if eras.is_empty() {
        bail!("{FOLDER} is empty, so nothing was compared; it holds the schemas of earlier releases");
    }
    let problems = problems(&eras, &russet_api::all_crds(), &accepted);
    if problems.is_empty() {
        return Ok(());
    }
    bail!(
        "{} change(s) could hurt objects that are stored in somebody's cluster. Undo them, or add an entry with the reason to \
         {FOLDER}/{ACCEPTED}\n\n{}",
        problems.len(),
        problems.join("\n\n")
    );
}

/// Keeps the current CRDs as a new era.
pub(crate) fn record(root: &Path, name: &str) -> Result<()> {
    check(root)?;
    let folder = root.join(FOLDER);
    let number = read_eras(&folder)?.len() + 1;
    let era = folder.join(format!("{number:04}-{name}"));
    fs::create_dir_all(&era).with_context(|| format!("failed to make {}", era.display()))?;
    for crd in russet_api::all_crds() {
        let file = era.join(format!("{}.yaml", crd.metadata.name.clone().unwrap_or_default()));
        let text = serde_yaml_ng::to_string(&crd).context("failed to turn a CRD into YAML")?;
        fs::write(&file, text).with_context(|| format!("failed to write {}", file.display()))?;
    }
    Ok(())
}

fn problems(eras: &[Era], current: &[CustomResourceDefinition], accepted: &[Accepted]) -> Vec<String> {
    // The changes each entry was needed for.
    let mut used: Vec<BTreeSet<Change>> = vec![BTreeSet::new(); accepted.len()];
    let mut problems = Vec::new();
    for era in eras {
        for old in &era.crds {
            let findings = match current.iter().find(|new| new.metadata.name == old.metadata.name) {
                Some(new) => compatibility::compare(old, new),
                None => vec![compatibility::removed(old)],
            };
            for finding in findings {
                let mut covered = false;
                for (entry, used) in accepted.iter().zip(&mut used) {
                    if entry.covers(&finding) {
                        covered = true;
                        used.insert(finding.change);
                    }
                }
                if !covered {
                    problems.push(format!("[{}] {finding}", era.name));
                }
            }
        }
    }
    for (entry, used) in accepted.iter().zip(used) {
        for change in entry.changes.iter().filter(|change| !used.contains(change)) {
            problems.push(format!(
                "{ACCEPTED}: {} {}: {change:?} happened nowhere; remove it from the entry",
                entry.kinds.join(", "),
                entry.path
            ));
        }
    }
    problems
}

fn read_accepted(file: &Path) -> Result<Vec<Accepted>> {
    let text = fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
    let entries: Vec<Accepted> =
        serde_yaml_ng::from_str(&text).with_context(|| format!("failed to parse {}", file.display()))?;
    if let Some(bare) = entries.iter().find(|e| e.reason.trim().is_empty()) {
        bail!("{}: the entry for {} has no reason", file.display(), bare.path);
    }
    Ok(entries)
}

fn read_eras(folder: &Path) -> Result<Vec<Era>> {
    let mut eras = Vec::new();
    for path in sorted(folder)?.into_iter().filter(|p| p.is_dir()) {
        let mut crds = Vec::new();
        for file in sorted(&path)?
            .into_iter()
            .filter(|p| p.extension().is_some_and(|e| e == "yaml"))
        {
            let text = fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?;
            let crd = serde_yaml_ng::from_str(&text).with_context(|| format!("{} is not a CRD", file.display()))?;
            crds.push(crd);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        eras.push(Era { name, crds });
    }
    Ok(eras)
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
    let mut paths = entries
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| format!("failed to list {}", folder.display()))?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(path: &str, change: Change) -> Accepted {
        Accepted {
            kinds: vec!["things".into()],
            path: path.into(),
            changes: vec![change],
            reason: "because".into(),
        }
    }

    fn crd(required: &str) -> CustomResourceDefinition {
        let text = format!(
            "metadata: {{name: things.example.com}}\nspec:\n  group: example.com\n  scope: Namespaced\n  \
             names: {{kind: Thing, plural: things}}\n  versions:\n    - name: v1\n      served: true\n      storage: true\n      \
             schema:\n        openAPIV3Schema:\n          type: object\n          required: [{required}]\n          \
             properties: {{spec: {{type: object}}}}\n"
        );
        serde_yaml_ng::from_str(&format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n{text}"
        ))
        .unwrap()
    }

    fn era(required: &str) -> Vec<Era> {
        vec![Era {
            name: "0001-first".into(),
            crds: vec![crd(required)],
        }]
    }

    #[test]
    fn an_unaccepted_change_is_a_problem_that_names_its_era() {
        let problems = problems(&era(""), &[crd("spec")], &[]);
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].starts_with("[0001-first] things.example.com spec"),
            "{}",
            problems[0]
        );
    }

    #[test]
    fn an_accepted_change_is_none() {
        assert!(problems(&era(""), &[crd("spec")], &[accepted("spec", Change::NewlyRequired)]).is_empty());
    }

    #[test]
    fn an_acceptance_of_nothing_is_a_problem() {
        let problems = problems(&era(""), &[crd("")], &[accepted("spec", Change::NewlyRequired)]);
        assert!(problems[0].contains("remove it from the entry"), "{problems:?}");
    }

    #[test]
    fn a_kind_that_is_gone_is_a_problem() {
        assert!(problems(&era(""), &[], &[])[0].contains("crd-removed"));
    }

    #[test]
    fn an_acceptance_covers_the_template_of_a_kind_too() {
        let finding = Finding {
            crd: "things.example.com".into(),
            path: "spec.template.spec.zone".into(),
            change: Change::RuleAdded,
            detail: String::new(),
        };
        assert!(accepted("spec.zone", Change::RuleAdded).covers(&finding));
        assert!(!accepted("spec.zone", Change::TypeChanged).covers(&finding));
        assert!(!accepted("spec.other", Change::RuleAdded).covers(&finding));
    }

    #[test]
    fn the_history_of_this_workspace_holds() {
        check(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()).unwrap();
    }
}
