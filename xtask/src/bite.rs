//! `xtask bite`: takes the defence of a scenario out of the shipped code and wants the scenario to notice.
//!
//! Beside a scenario lies `<file>.without.patch`: which defence it takes out, which promise (`promise!`) must then be seen broken, and
//! the change itself. A bite makes a copy of the tree with the change, builds the programs whose sources it touches, and has `russet replay`
//! play the story with them. Any end but the named promise (a time-out, another error, a story that holds) is a failure of the bite.
//!
//! The copy is kept below `target/bite`, and only files that differ are written, so that patches of one crate share a build.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

/// Programs that ship: folder in `bin/`, package.
const SHIPPED: [(&str, &str); 3] = [
    ("capi-provider", "russet-capi-provider"),
    ("kura", "kura"),
    ("tart-kubelet", "russet-tart-kubelet"),
];
/// What plays a story: the command line, and the emulators that it starts.
const PLAYERS: [&str; 5] = [
    "russet",
    "russet-sim-linux",
    "russet-sim-mac",
    "russet-sim-scaleway",
    "russet-sim-tart",
];

#[derive(Args, Debug)]
pub(crate) struct BiteArgs {
    /// Scenarios whose defence to take out [default: all that have a patch]
    names: Vec<String>,
}

/// How the source of a scenario begins that uses a library in place of its program.
const PART: &str = "//! Proves a part, ";

/// A scenario's patch.
struct Patch {
    scenario: String,
    promise: String,
    file: PathBuf,
    text: String,
}

/// All patches apply, and each names a promise of its scenario.
pub(crate) fn check(root: &Path) -> Result<()> {
    for patch in patches(root)? {
        let story = std::fs::read_to_string(patch.story())?;
        ensure!(
            story.contains(&format!("promise!(\"{0}\"", patch.promise))
                || story.contains(&format!("\"{0}\",\n", patch.promise)),
            "{} breaks {:?}, which {} does not promise",
            patch.file.display(),
            patch.promise,
            patch.story().display()
        );
        apply(root, &patch.file, &["--check"])?;
    }
    let mut unmarked = Vec::new();
    for file in below(&root.join("scenarios/src"))? {
        let source = std::fs::read_to_string(&file).unwrap_or_default();
        let proves_a_part = source.contains("    without: None,\n");
        if proves_a_part != source.starts_with(PART) {
            unmarked.push(file.display().to_string());
        }
    }
    ensure!(
        unmarked.is_empty(),
        "a scenario without a patch begins with `{PART}`, and no other does:\n{}",
        unmarked.join("\n")
    );
    Ok(())
}

/// Bites, one after the other, and says how long each took.
pub(crate) fn run(root: &Path, args: &BiteArgs) -> Result<()> {
    let mut patches = patches(root)?;
    if let Some(unknown) = args
        .names
        .iter()
        .find(|name| patches.iter().all(|patch| patch.scenario != **name))
    {
        let all: Vec<_> = patches.iter().map(|patch| patch.scenario.as_str()).collect();
        bail!("no scenario {unknown} has a patch; these have one: {}", all.join(", "));
    }
    patches.retain(|patch| args.names.is_empty() || args.names.contains(&patch.scenario));
    // Those of one crate follow each other.
    patches.sort_by_key(Patch::touches);
    let tree = root.join("target/bite");
    cargo(
        root,
        "build",
        SHIPPED.iter().map(|(_, package)| *package).chain(PLAYERS),
    )?;
    let mut failed = Vec::new();
    for patch in &patches {
        let began = Instant::now();
        let outcome = bite(root, &tree, patch);
        let minutes = began.elapsed().as_secs_f64() / 60.0;
        match outcome {
            Ok(seen) => eprintln!("{minutes:>5.1} min  {}: {seen}", patch.scenario),
            Err(error) => {
                eprintln!("{minutes:>5.1} min  {}: NO BITE: {error:#}", patch.scenario);
                failed.push(patch.scenario.as_str());
            }
        }
    }
    ensure!(failed.is_empty(), "no bite: {}", failed.join(", "));
    Ok(())
}

/// What was seen of the broken promise.
fn bite(root: &Path, tree: &Path, patch: &Patch) -> Result<String> {
    copy(root, tree)?;
    apply(tree, &patch.file, &[])?;
    let id = |root: &Path, name: &str| russet_build_id::of(root, &root.join("bin").join(name));
    let mut touched = Vec::new();
    for (name, package) in SHIPPED {
        if id(root, name)? != id(tree, name)? {
            touched.push(package);
        }
    }
    if !touched.is_empty() {
        // Crates of other projects come from where earlier runs of the gate left them.
        let restore = ["run", "--quiet", "--package", "xtask-artifacts", "--", "restore"];
        ensure!(
            command(tree).args(restore).status()?.success(),
            "failed to restore crates"
        );
        cargo(tree, "build", touched.iter().copied())?;
    }
    let russet = std::env::current_exe()?.with_file_name("russet");
    let played = Command::new(&russet)
        .args(["replay", &patch.scenario])
        .env("RUSSET_PROGRAMS", tree.join("target/debug"))
        .current_dir(root)
        .output()
        .with_context(|| format!("failed to start {}", russet.display()))?;
    let said = String::from_utf8_lossy(&played.stderr).into_owned();
    ensure!(!played.status.success(), "the story holds without its defence");
    let named = format!("broken promise `{}`", patch.promise);
    let line = said.lines().find(|line| line.contains(&named));
    let line = line.with_context(|| format!("it ended otherwise than by {named}:\n{said}"))?;
    Ok(line.trim().to_owned())
}

/// Makes the copy what the tree is, with all that is not ignored.
fn copy(root: &Path, tree: &Path) -> Result<()> {
    let list = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("failed to start git")?;
    ensure!(list.status.success(), "git ls-files failed: {}", list.status);
    let names = String::from_utf8_lossy(&list.stdout).into_owned();
    let files: BTreeSet<&Path> = names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(Path::new)
        .collect();
    for file in files {
        let (from, to) = (root.join(file), tree.join(file));
        // A file that was deleted and is not committed yet is listed, too.
        let Ok(content) = std::fs::read(&from) else { continue };
        if std::fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&to, content).with_context(|| format!("failed to write {}", to.display()))?;
    }
    Ok(())
}

fn apply(tree: &Path, patch: &Path, more: &[&str]) -> Result<()> {
    let applied = Command::new("git")
        .arg("apply")
        .args(more)
        .arg(patch)
        .current_dir(tree)
        // Below another checkout git would take the paths of the patch for those of that one.
        .env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree))
        .output()
        .context("failed to start git")?;
    ensure!(
        applied.status.success(),
        "{} does not apply; make it anew:\n{}",
        patch.display(),
        String::from_utf8_lossy(&applied.stderr)
    );
    Ok(())
}

/// Cargo in another checkout than this one: nothing of how this program was started holds there.
fn command(folder: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(folder).env_remove("CARGO_TARGET_DIR");
    command
}

fn cargo<'a>(folder: &Path, verb: &str, packages: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let packages = packages.into_iter().flat_map(|package| ["--package", package]);
    let status = command(folder).args([verb, "--quiet"]).args(packages).status();
    ensure!(
        status.context("failed to start cargo")?.success(),
        "cargo {verb} failed"
    );
    Ok(())
}

fn patches(root: &Path) -> Result<Vec<Patch>> {
    let files = below(&root.join("scenarios/src"))?.into_iter();
    let patches = files.filter(|file| file.to_string_lossy().ends_with(".without.patch"));
    let patches = patches.map(Patch::read).collect::<Result<Vec<_>>>()?;
    ensure!(!patches.is_empty(), "no scenario has a patch");
    Ok(patches)
}

/// Every file below a folder.
fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

impl Patch {
    fn read(file: PathBuf) -> Result<Self> {
        let text = std::fs::read_to_string(&file)?;
        let promise = text.lines().find_map(|line| line.strip_prefix("Breaks: "));
        let promise = promise.with_context(|| format!("{} has no line `Breaks: <promise>`", file.display()))?;
        let mut patch = Self {
            scenario: String::new(),
            promise: promise.trim().to_owned(),
            file,
            text,
        };
        let story = patch.story();
        let source = std::fs::read_to_string(&story).with_context(|| format!("failed to read {}", story.display()))?;
        let name = source.split("name: \"").nth(1).and_then(|rest| rest.split('"').next());
        name.with_context(|| format!("{} has no name", story.display()))?
            .clone_into(&mut patch.scenario);
        Ok(patch)
    }

    /// The scenario that it is beside.
    fn story(&self) -> PathBuf {
        self.file.with_extension("").with_extension("rs")
    }

    /// The first file that it changes.
    fn touches(&self) -> String {
        let line = self.text.lines().find_map(|line| line.strip_prefix("+++ b/"));
        line.unwrap_or_default().to_owned()
    }
}
