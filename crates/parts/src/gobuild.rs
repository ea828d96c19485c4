//! Builds from source, for machines that reach a module proxy but no release host, and for parts that publish no program.
//!
//! The module is embedded in this program and written out for the go command. Its go.sum fixes every dependency, and -mod=readonly
//! forbids the go command to change it. All missing tools of a part are built by one command, which shares their packages.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::{
    Activity, Error, Options, Origin, Part, Progress, SourceError,
    attempt::Failure,
    cache::{self, Cache},
    download::blocking,
    golang::{self, Go},
    manifest::{self, Manifest, binary_name},
    platform::Platform,
    receipt,
};

/// Less than this left after a failed build, and the build failed for that reason.
const FULL_BELOW: u64 = 128 << 20;

pub(crate) struct Build<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) manifest: &'a Manifest,
    pub(crate) options: &'a Options,
    pub(crate) platform: &'a Platform,
    pub(crate) progress: &'a dyn Progress,
}

impl Build<'_> {
    pub(crate) async fn run(&self, part: &Part, source: &manifest::Go, tools: &[&str]) -> Result<(), Failure> {
        let files = self.manifest.module(&source.module)?;
        let needed = needed_version(files)?;
        let go = Go::find(self.options, self.platform, &needed).await?;
        // Modules and programs; what compiling takes is known after Go has looked into its cache.
        self.require_space(part, source, &go, (source.space_mib << 20) / 4)?;
        let folder = self.write_module(&source.module, files)?;
        let staging = self.cache.stage(part)?;

        let programs: Vec<(&str, &str)> = tools
            .iter()
            .filter_map(|tool| source.packages.get(*tool).map(|package| (*tool, package.as_str())))
            .collect();
        if !programs.is_empty() {
            let packages: Vec<&str> = programs.iter().map(|(_, package)| *package).collect();
            if let Err(failure) = self
                .compile(part, source, &go, &folder, &packages, staging.path())
                .await
            {
                self.require_space_left(part, source, &go)?;
                return Err(failure);
            }
        }
        for (tool, package) in programs {
            let staged = staging.path().join(binary_name(package));
            self.install(part, tool, staged, format!("{package}@{}", part.version))
                .await?;
        }

        for tool in tools {
            let Some(wanted) = source.copies.get(*tool) else {
                continue;
            };
            self.progress.start(&part.name, &Activity::Resolving);
            let from = self
                .module_folder(part, &go, &folder, &wanted.module)
                .await?
                .join(&wanted.path);
            if !from.is_dir() {
                let missing = SourceError::NotInside {
                    from: wanted.module.clone(),
                    what: wanted.path.clone(),
                };
                return Err(missing.into());
            }
            let staged = staging.path().join(tool);
            let target = staged.clone();
            blocking(move || cache::copy_folder(&from, &target)).await?;
            self.install(
                part,
                tool,
                staged,
                format!("{}@{}/{}", wanted.module, part.version, wanted.path),
            )
            .await?;
        }
        Ok(())
    }

    async fn compile(
        &self,
        part: &Part,
        source: &manifest::Go,
        go: &Go,
        folder: &Path,
        packages: &[&str],
        staging: &Path,
    ) -> Result<(), Failure> {
        let (part_name, progress) = (part.name.as_str(), self.progress);
        progress.start(part_name, &Activity::Resolving);
        let mut fetched = 0;
        let mut list = vec![
            "list",
            "-trimpath",
            "-deps",
            "-f",
            "{{if .Stale}}{{.ImportPath}}{{else}}-{{end}}",
        ];
        list.extend_from_slice(packages);
        // Downloads the modules on the way, and tells which packages Go's cache lacks: the length of the progress bar.
        let listed = go
            .run(folder, &list, |line| {
                if let Some(module) = line.strip_prefix("go: downloading ") {
                    fetched += 1;
                    progress.advance(part_name, fetched, module);
                }
            })
            .await?;
        // The programs themselves are always linked anew.
        let total = listed
            .lines()
            .filter(|line| *line != "-" && !packages.contains(line))
            .count() as u64;
        let all = (listed.lines().count() as u64).max(1);
        self.require_space(part, source, go, (source.space_mib << 20) * total / all)?;
        progress.start(part_name, &Activity::Compiling { total });

        let ldflags = format!("-s -w {}", part.expand(&source.ldflags, "", self.platform));
        let output = format!("{}/", staging.display());
        let mut build = vec!["build", "-v", "-trimpath", "-ldflags", ldflags.trim(), "-o", &output];
        build.extend_from_slice(packages);
        let mut done = 0;
        let (lines, mut heard) = mpsc::unbounded_channel::<String>();
        let building = go.run(folder, &build, move |line| {
            // A package path stands alone on its line. The receiver outlives the build.
            if !line.is_empty() && !line.contains(' ') {
                let _ = lines.send(line.to_owned());
            }
        });
        tokio::pin!(building);
        let mut tick = tokio::time::interval(std::time::Duration::from_secs(1));
        let mut current = String::new();
        loop {
            tokio::select! {
                result = &mut building => return result.map(drop),
                Some(package) = heard.recv() => {
                    done += 1;
                    current = package;
                    progress.advance(part_name, done.min(total), &current);
                }
                // Linking says nothing for a minute; the elapsed time shall still move.
                _ = tick.tick() => {
                    progress.advance(part_name, done.min(total), if done >= total { "linking" } else { &current });
                }
            }
        }
    }

    async fn module_folder(&self, part: &Part, go: &Go, folder: &Path, module: &str) -> Result<PathBuf, Failure> {
        let mut fetched = 0;
        go.run(folder, &["mod", "download", module], |line| {
            fetched += 1;
            self.progress.advance(&part.name, fetched, line);
        })
        .await?;
        let text = go
            .run(folder, &["list", "-m", "-f", "{{.Dir}}", module], |_| {})
            .await?;
        Ok(PathBuf::from(text.trim()))
    }

    async fn install(&self, part: &Part, tool: &str, staged: PathBuf, source: String) -> Result<(), Error> {
        let (cache, part, tool) = (self.cache.clone(), part.clone(), tool.to_owned());
        blocking(move || cache.install(&part, &tool, &staged, &part.version, Origin::Go, &source)).await
    }

    /// After a failure: go reports a full disk only as text, so the disk itself is asked.
    fn require_space_left(&self, part: &Part, source: &manifest::Go, go: &Go) -> Result<(), Error> {
        self.require_space(part, source, go, FULL_BELOW)
    }

    /// Go's caches may be on another disk than ours: each place is asked for the whole amount. The error names what a build from
    /// nothing takes, since less than that only moves the failure.
    fn require_space(&self, part: &Part, source: &manifest::Go, go: &Go, at_least: u64) -> Result<(), Error> {
        let why = format!("building {} {} with Go", part.name, part.version);
        [self.cache.root()]
            .into_iter()
            .chain(go.caches.iter().map(PathBuf::as_path))
            .try_for_each(|place| self.options.free_space.require(place, at_least, &why))
            .map_err(|error| match error {
                Error::NoSpace { path, free, why, .. } => Error::NoSpace {
                    path,
                    needed: source.space_mib << 20,
                    free,
                    why,
                },
                other => other,
            })
    }

    /// The folder is named after the content, so that two versions of Russet never write to the same one.
    fn write_module(&self, module: &str, files: &[(String, String)]) -> Result<PathBuf, Error> {
        let mut hasher = Sha256::new();
        for (name, text) in files {
            hasher.update(name.as_bytes());
            hasher.update([0]);
            hasher.update(text.as_bytes());
            hasher.update([0]);
        }
        let digest = receipt::hex(&hasher.finalize());
        let folder = self
            .cache
            .work()
            .join(format!("{module}-{}", digest.get(..12).unwrap_or(&digest)));
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        for (name, text) in files {
            let path = folder.join(name);
            let parent = path.parent().unwrap_or(&folder);
            fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
            if fs::read_to_string(&path).is_ok_and(|found| found == *text) {
                continue;
            }
            let write = || -> std::io::Result<()> {
                let mut file = tempfile::NamedTempFile::new_in(&folder)?;
                file.write_all(text.as_bytes())?;
                file.persist(&path).map_err(|error| error.error)?;
                Ok(())
            };
            write().map_err(Error::io("write", &path))?;
        }
        Ok(folder)
    }
}

/// The Go version a module asks for.
pub(crate) fn needed_version(files: &[(String, String)]) -> Result<String, Error> {
    let go_mod = files
        .iter()
        .find(|(name, _)| name == "go.mod")
        .map(|(_, text)| text.as_str())
        .unwrap_or_default();
    golang::needed_version(go_mod)
}
