//! `russet version`: ours, and that of every pinned part.

use crate::cli;
use crate::config::Surroundings;
use crate::exit::Exit;
use crate::table::Table;
use anyhow::{Context, Result};
use russet_parts::Manifest;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

#[derive(Debug, Serialize)]
struct Document {
    russet: &'static str,
    parts: Vec<Part>,
}

#[derive(Debug, Serialize)]
struct Part {
    name: String,
    version: String,
    about: String,
}

pub(crate) fn version(args: &cli::Version, surroundings: &Surroundings) -> Result<Exit> {
    let document = document(&Manifest::embedded());
    let text = if args.json {
        serde_json::to_string_pretty(&document)? + "\n"
    } else {
        let mut table = Table::new(&[]);
        table.row(["russet".into(), document.russet.into()]);
        for part in document.parts {
            table.row([part.name.into(), part.version.into(), part.about.into()]);
        }
        table.render(surroundings.stdout.colour)
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("failed to write to standard output")?;
    Ok(Exit::Success)
}

fn document(manifest: &Manifest) -> Document {
    let part = |part: &russet_parts::Part| Part {
        name: part.name.clone(),
        version: part.version.clone(),
        about: part.about.clone(),
    };
    Document {
        russet: env!("CARGO_PKG_VERSION"),
        parts: manifest.parts().iter().map(part).collect(),
    }
}

/// Versions of the parts that own data in a state directory.
pub(crate) fn of_data(manifest: &Manifest) -> BTreeMap<String, String> {
    ["etcd", "kube-apiserver", "capi-core"]
        .into_iter()
        .filter_map(|tool| Some((tool.to_owned(), manifest.tool(tool).ok()?.0.version.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_that_own_data_have_versions_that_can_be_compared() {
        let versions = of_data(&Manifest::embedded());
        assert_eq!(versions.len(), 3);
        let all = versions.values().all(|version| version.starts_with('v'));
        assert!(all, "{versions:?}");
    }

    #[test]
    fn the_document_lists_kubernetes() {
        let document = document(&Manifest::embedded());
        assert!(document.parts.iter().any(|part| part.name == "kubernetes"));
    }
}
