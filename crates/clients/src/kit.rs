//! Everything one tool needs, at hand: the tool, its toolchain, and what has to be made once beside it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
};

use russet_parts::{Manifest, Modules, Progress, Store, lock::Lock};
use tokio::process::Command;

use crate::{Error, Settings, Tool, tools};

macro_rules! module {
    ($name:literal) => {
        (
            $name,
            [
                ("package.json", include_str!(concat!("../npm/", $name, "/package.json"))),
                (
                    "package-lock.json",
                    include_str!(concat!("../npm/", $name, "/package-lock.json")),
                ),
            ],
        )
    };
}

const MODULES: [(&str, [(&str, &str); 2]); 4] =
    [module!("nx"), module!("turborepo"), module!("metro"), module!("moon")];

/// `clients.toml` with its npm modules.
pub(crate) fn manifest() -> Result<Manifest, Error> {
    let owned = |files: [(&str, &str); 2]| files.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
    let modules: Modules = MODULES
        .iter()
        .map(|(name, files)| ((*name).to_owned(), owned(*files)))
        .collect();
    Ok(Manifest::parse(include_str!("../clients.toml"), modules)?)
}

/// A tool that can be run. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Kit {
    pub(crate) tool: Tool,
    /// The program, or the folder it is in.
    pub(crate) main: PathBuf,
    /// What was made once beside it.
    pub(crate) aid: PathBuf,
    pub(crate) kura: PathBuf,
    pub(crate) search_path: OsString,
    commands: BTreeMap<&'static str, PathBuf>,
}

impl Kit {
    /// Makes sure of a tool: its toolchain, the tool itself (installed into the cache folder if it is not there yet), and what it needs
    /// beside it. Several processes may ask at once; one installs, the others wait.
    pub async fn ensure(tool: Tool, settings: &Settings, progress: &dyn Progress) -> Result<Self, Error> {
        let mut commands = BTreeMap::new();
        for need in tool.needs() {
            let path = settings.which(need.command).ok_or(Error::Toolchain {
                tool: tool.name(),
                command: need.command,
                advice: need.advice,
            })?;
            commands.insert(need.command, path);
        }
        let mut kit = Self {
            tool,
            main: PathBuf::new(),
            aid: PathBuf::new(),
            kura: settings.kura.clone().unwrap_or_default(),
            search_path: settings.search_path.clone(),
            commands,
        };
        if let Some(part) = tool.part() {
            let store = Store::new(manifest()?, settings.parts.clone());
            kit.main = store.ensure(&[part], progress).await?.path(part)?.to_owned();
        }
        match tool {
            Tool::Gradle => kit.aid = gradle_home(&kit, settings, progress).await?,
            Tool::Maven => kit.aid = maven_repository(&kit, settings, progress).await?,
            Tool::Go if settings.kura.is_none() => {
                return Err(Error::Toolchain {
                    tool: "go",
                    command: "kura",
                    advice: "build it (cargo build --package kura) and keep it beside russet",
                });
            }
            _ => {}
        }
        Ok(kit)
    }

    /// A kit that cannot be run, to look at plans with.
    #[cfg(test)]
    pub(crate) fn pretend(tool: Tool) -> Self {
        Self {
            tool,
            main: "/nowhere/tool".into(),
            aid: "/nowhere/aid".into(),
            kura: "/nowhere/kura".into(),
            search_path: OsString::new(),
            commands: BTreeMap::new(),
        }
    }

    pub fn tool(&self) -> Tool {
        self.tool
    }

    /// A command of the toolchain; empty, hence not startable, if it was not asked for.
    pub(crate) fn command(&self, name: &str) -> PathBuf {
        self.commands.get(name).cloned().unwrap_or_default()
    }
}

/// A folder that is made once: under a lock, in a folder beside it, moved into place when whole.
async fn made_once<F, Fut>(
    settings: &Settings,
    name: &str,
    what: &str,
    progress: &dyn Progress,
    make: F,
) -> Result<PathBuf, Error>
where
    F: FnOnce(PathBuf) -> Fut,
    Fut: Future<Output = Result<(), Error>>,
{
    let cache = &settings.parts.cache;
    let folder = cache.join("clients");
    let path = folder.join(name);
    if path.is_dir() {
        return Ok(path);
    }
    let waiting = |_| progress.note(what, "waiting for another russet to prepare it");
    let _lock = Lock::acquire(&cache.join("locks").join(format!("client-{name}.lock")), waiting).await?;
    if path.is_dir() {
        return Ok(path);
    }
    progress.note(what, "preparing, once");
    fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    let staging = tempfile::Builder::new()
        .prefix(".staging-")
        .tempdir_in(&folder)
        .map_err(Error::io("create a folder in", &folder))?;
    let draft = staging.path().join("draft");
    fs::create_dir_all(&draft).map_err(Error::io("create", &draft))?;
    make(draft.clone()).await?;
    fs::rename(&draft, &path).map_err(Error::io("move a folder to", &path))?;
    Ok(path)
}

/// Debian's Gradle is spread over /usr/share and knows only that place. Here it gets a home of its own (links to its jars), and a
/// class that names it.
async fn gradle_home(kit: &Kit, settings: &Settings, progress: &dyn Progress) -> Result<PathBuf, Error> {
    // The links name the tree, so another tree needs another home.
    let name = format!("gradle-home-{}", fingerprint(&kit.main));
    made_once(settings, &name, "gradle", progress, |made| async move {
        let share = kit.main.join("usr/share");
        let (lib, boot) = (made.join("home/lib"), made.join("boot"));
        for (from, to) in [
            (share.join("gradle/lib"), lib.clone()),
            (share.join("gradle/lib/plugins"), lib.join("plugins")),
            (share.join("java"), lib.join("java")),
        ] {
            link_jars(&from, &to)?;
        }
        fs::create_dir_all(&boot).map_err(Error::io("create", &boot))?;
        let api = share.join("java/gradle-core-api-4.4.1.jar");
        let package = "org/gradle/internal/installation";
        let mut classes = Command::new(kit.command("jar"));
        classes.arg("xf").arg(&api).current_dir(&boot);
        for class in [
            "GradleInstallation",
            "GradleInstallation$1",
            "CurrentGradleInstallation",
        ] {
            classes.arg(format!("{package}/{class}.class"));
        }
        finish("gradle", "jar xf", classes).await?;
        let source = made.join("CurrentGradleInstallationLocator.java");
        let text = include_str!("../java/CurrentGradleInstallationLocator.java");
        fs::write(&source, text).map_err(Error::io("write", &source))?;
        let mut compiler = Command::new(kit.command("javac"));
        compiler.arg("-cp").arg(&api).arg("-d").arg(&boot).arg(&source);
        finish("gradle", "javac", compiler).await
    })
    .await
}

fn link_jars(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to).map_err(Error::io("create", to))?;
    for entry in fs::read_dir(from).map_err(Error::io("read", from))? {
        let entry = entry.map_err(Error::io("read", from))?;
        let (path, link) = (entry.path(), to.join(entry.file_name()));
        if path.extension().is_some_and(|extension| extension == "jar") {
            symlink(&path, &link).map_err(Error::io("link", &link))?;
        }
    }
    Ok(())
}

/// The plugins of a Java build, fetched once. Builds then work offline, and no build's time depends on a registry.
async fn maven_repository(kit: &Kit, settings: &Settings, progress: &dyn Progress) -> Result<PathBuf, Error> {
    let name = format!("maven-repository-{}", tools::maven::REPOSITORY);
    made_once(settings, &name, "maven", progress, |made| async move {
        let project = made.join(".seed");
        tools::maven::write_seed(&project)?;
        let mut build = Command::new(kit.main.join("bin/mvn"));
        build
            .args(["-B", "-q", "-ntp", "-C", "-Dmaven.build.cache.enabled=false"])
            .arg(format!("-Dmaven.repo.local={}", made.display()))
            .arg("package")
            .current_dir(&project);
        finish("maven", "mvn package", build).await?;
        fs::remove_dir_all(&project).map_err(Error::io("remove", &project))
    })
    .await
}

/// Runs a step of a preparation, with our environment: it may have to reach a registry.
async fn finish(what: &str, shown: &str, mut command: Command) -> Result<(), Error> {
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|source| Error::Spawn {
            command: shown.to_owned(),
            source,
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    Err(Error::Prepare {
        what: what.to_owned(),
        command: shown.to_owned(),
        status: output.status.to_string(),
        tail: lines
            .get(lines.len().saturating_sub(15)..)
            .unwrap_or_default()
            .join("\n"),
    })
}

/// Short, stable, and different for different paths.
fn fingerprint(path: &Path) -> String {
    let hash = path
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{hash:016x}")
}
