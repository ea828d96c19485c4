//! `russet parts`: the real programs a cluster is made of.

use crate::cli::{self, PartsAction};
use crate::config::Surroundings;
use crate::exit::Exit;
use crate::status::view::bytes;
use crate::suggest;
use crate::table::{Cell, Colour, Table, Tone};
use anyhow::{Context, Result, bail};
use russet_parts::{Bars, Manifest, Options, PartState, PartStatus, Platform, Store};
use std::io::Write;
use std::path::PathBuf;

/// The store every command uses: the environment's options, and the folders of `--parts-dir` before all others.
pub(crate) fn store(parts_dir: &[PathBuf]) -> Store {
    let mut options = Options::from_env();
    options.given.splice(0..0, parts_dir.iter().cloned());
    Store::new(Manifest::embedded(), options)
}

pub(crate) async fn parts(args: &cli::Parts, surroundings: &Surroundings) -> Result<Exit> {
    let dirs: Vec<PathBuf> = args
        .parts_dir
        .iter()
        .map(|dir| surroundings.working_dir.join(dir))
        .collect();
    let store = store(&dirs);
    match &args.action {
        PartsAction::List { json } => list(&store, *json, surroundings.stdout.colour),
        PartsAction::Fetch { tools, all } => fetch(&store, tools, *all).await,
        PartsAction::Path { tool } => path(&store, tool),
        PartsAction::Verify => verify(&store).await,
    }
}

fn list(store: &Store, json: bool, colour: Colour) -> Result<Exit> {
    let all = store.list();
    let text = if json {
        serde_json::to_string_pretty(&all)? + "\n"
    } else {
        render(&all, colour)
    };
    print(&text)?;
    Ok(Exit::Success)
}

fn render(all: &[PartStatus], colour: Colour) -> String {
    let mut table = Table::new(&["TOOL", "PART", "VERSION", "STATE", "SIZE", "PATH"]);
    for status in all {
        let (state, size, path) = match &status.state {
            PartState::Found { path, origin, size, .. } => (
                Cell::new(origin.to_string(), Tone::Good),
                bytes(*size),
                path.display().to_string(),
            ),
            PartState::Missing => (
                Cell::new("missing", Tone::Warn),
                "-".into(),
                "`russet parts fetch` obtains it".into(),
            ),
            PartState::Unusable { reason } => (Cell::new("unusable", Tone::Bad), "-".into(), reason.clone()),
            PartState::Unsupported { exists_for } => (
                Cell::new("not here", Tone::Dim),
                "-".into(),
                format!("exists for {}", exists_for.join(", ")),
            ),
        };
        table.row([
            status.tool.clone().into(),
            status.part.clone().into(),
            status.wanted.clone().into(),
            state,
            size.into(),
            path.into(),
        ]);
    }
    table.render(colour)
}

async fn fetch(store: &Store, tools: &[String], all: bool) -> Result<Exit> {
    let platform = Platform::host();
    let names: Vec<&str> = if all {
        let every = store.manifest().parts().iter().flat_map(|part| &part.tools);
        every
            .filter(|tool| tool.exists_for(&platform))
            .map(|tool| tool.name.as_str())
            .collect()
    } else {
        tools.iter().map(|tool| known(store, tool)).collect::<Result<_>>()?
    };
    let found = store.ensure(&names, &Bars::stderr()).await?;
    let mut table = Table::new(&["TOOL", "FROM", "PATH"]);
    for (name, located) in found.iter() {
        table.row([
            name.into(),
            located.origin.to_string().into(),
            located.path.display().to_string().into(),
        ]);
    }
    print(&table.render(Colour::Never))?;
    Ok(Exit::Success)
}

fn path(store: &Store, tool: &str) -> Result<Exit> {
    let tool = known(store, tool)?;
    let Some(located) = store.locate(tool)? else {
        bail!("{tool} is not here yet; obtain it with `russet parts fetch {tool}`");
    };
    print(&format!("{}\n", located.path.display()))?;
    Ok(Exit::Success)
}

async fn verify(store: &Store) -> Result<Exit> {
    let mut damaged = 0;
    let mut table = Table::new(&["TOOL", "RESULT", "PATH"]);
    for checked in store.verify().await? {
        damaged += usize::from(checked.problem.is_some());
        let result = checked.problem.unwrap_or_else(|| "intact".to_owned());
        table.row([
            checked.tool.into(),
            result.into(),
            checked.path.display().to_string().into(),
        ]);
    }
    print(&table.render(Colour::Never))?;
    Ok(if damaged == 0 { Exit::Success } else { Exit::Failure })
}

/// The tool as the manifest spells it, or a suggestion.
fn known<'a>(store: &'a Store, wanted: &str) -> Result<&'a str> {
    let names = || {
        store
            .manifest()
            .parts()
            .iter()
            .flat_map(|part| &part.tools)
            .map(|tool| tool.name.as_str())
    };
    let found = names().find(|name| *name == wanted);
    found.with_context(|| suggest::unknown("part", wanted, names().collect::<Vec<_>>()))
}

fn print(text: &str) -> Result<()> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("failed to write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;
    use russet_parts::Origin;

    #[test]
    fn the_list_says_where_each_part_is_or_how_to_get_it() {
        let status = |tool: &str, state| PartStatus {
            part: "kubernetes".into(),
            tool: tool.into(),
            wanted: "v1.35.4".into(),
            about: String::new(),
            state,
        };
        let found = PartState::Found {
            path: "/c/kubectl".into(),
            origin: Origin::Go,
            version: Some("v1.35.4".into()),
            size: 59 << 20,
        };
        let all = [
            status("kubectl", found),
            status("kube-scheduler", PartState::Missing),
            status(
                "kubelet",
                PartState::Unsupported {
                    exists_for: vec!["linux".into()],
                },
            ),
            status(
                "kube-proxy",
                PartState::Unusable {
                    reason: "/g/kube-proxy is not executable".into(),
                },
            ),
        ];
        insta::assert_snapshot!(render(&all, Colour::Never));
    }

    #[test]
    fn an_unknown_tool_is_answered_with_the_nearest() {
        let error = known(&Store::new(Manifest::embedded(), Options::new("/nowhere")), "kubctl")
            .unwrap_err()
            .to_string();
        assert!(error.contains("did you mean `kubectl`"), "{error}");
    }
}
