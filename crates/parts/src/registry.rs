//! Packages of other languages' registries, through those languages' own clients, into the cache. Where a registry is reached is
//! the clients' configuration; what is fetched is fixed by a lock file (npm), a digest (Python) or strict checksums (Maven).

use std::{collections::BTreeMap, fs, path::Path};

use crate::{
    Activity, Error, Manifest, Options, Origin, Part, Progress, SourceError,
    attempt::Failure,
    cache::Cache,
    command::{run, text},
    download::blocking,
    manifest::{Maven, Npm, Pypi},
    tree,
};

/// The goal that unpacks an artifact without a project around it.
const UNPACK: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack";

pub(crate) struct Registry<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) manifest: &'a Manifest,
    pub(crate) options: &'a Options,
    pub(crate) part: &'a Part,
    pub(crate) progress: &'a dyn Progress,
}

impl Registry<'_> {
    /// `None` if the part does not come from that registry.
    pub(crate) async fn fetch(&self, origin: Origin, tools: &[&str]) -> Option<Result<(), Failure>> {
        let part = self.part;
        match origin {
            Origin::Npm => {
                let source = part.npm.as_ref()?;
                Some(self.guarded(source.space_mib, self.npm(source, tools)).await)
            }
            Origin::Pypi => {
                let source = part.pypi.as_ref()?;
                Some(self.guarded(source.space_mib, self.pypi(source, tools)).await)
            }
            Origin::Maven => {
                let source = part.maven.as_ref()?;
                Some(self.guarded(source.space_mib, self.maven(source, tools)).await)
            }
            _ => None,
        }
    }

    async fn guarded(&self, space_mib: u64, work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
        if !self.options.download {
            return Err(SourceError::Offline.into());
        }
        let why = format!("to install {}", self.part.name);
        self.options
            .free_space
            .require(self.cache.root(), space_mib << 20, &why)?;
        self.progress.start(
            &self.part.name,
            &Activity::Unpacking {
                packages: vec![format!("{} {}", self.part.name, self.part.version)],
            },
        );
        work.await
    }

    async fn npm(&self, source: &Npm, tools: &[&str]) -> Result<(), Failure> {
        let npm = self.options.which("npm").ok_or(SourceError::NoCommand {
            command: "npm",
            comes_with: "Node.js",
        })?;
        let staging = self.cache.stage(self.part)?;
        let root = staging.path().join("root");
        for (name, content) in self.manifest.module(&source.module)? {
            let path = root.join(name);
            let folder = path.parent().unwrap_or(&root);
            fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
            fs::write(&path, content).map_err(Error::io("write", &path))?;
        }
        // Not `npm ci`: a registry that lacks some other platform's optional package would fail it.
        let args = [
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--no-update-notifier",
        ];
        run(self.options, self.part, &npm, &args, &root, self.progress).await?;
        self.deliver(&root, tools, &source.paths, Origin::Npm).await
    }

    async fn pypi(&self, source: &Pypi, tools: &[&str]) -> Result<(), Failure> {
        let python = self.options.which("python3").ok_or(SourceError::NoCommand {
            command: "python3",
            comes_with: "Python",
        })?;
        let staging = self.cache.stage(self.part)?;
        let (root, wanted) = (staging.path().join("root"), staging.path().join("requirements.txt"));
        let mut requirement = format!("{}=={}", source.package, self.part.version);
        for hash in &source.sha256 {
            requirement.push_str(" --hash=sha256:");
            requirement.push_str(hash);
        }
        requirement.push('\n');
        fs::write(&wanted, requirement).map_err(Error::io("write", &wanted))?;
        let (target, wanted) = (text(&root), text(&wanted));
        let args = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "--no-deps",
            "--no-compile",
            "--only-binary=:all:",
            "--require-hashes",
            "--target",
            &target,
            "-r",
            &wanted,
        ];
        run(self.options, self.part, &python, &args, staging.path(), self.progress).await?;
        self.deliver(&root, tools, &source.paths, Origin::Pypi).await
    }

    async fn maven(&self, source: &Maven, tools: &[&str]) -> Result<(), Failure> {
        let mvn = self.options.which("mvn").ok_or(SourceError::NoCommand {
            command: "mvn",
            comes_with: "Apache Maven",
        })?;
        let staging = self.cache.stage(self.part)?;
        let root = staging.path().join("root");
        let artifact = source.artifact.replace("{version}", &self.part.version);
        let (artifact, repository, target) = (
            format!("-Dartifact={artifact}"),
            format!("-Dmaven.repo.local={}", text(&staging.path().join("repository"))),
            format!("-DoutputDirectory={}", text(&root)),
        );
        let args = ["-B", "-q", "-ntp", "-C", &repository, UNPACK, &artifact, &target];
        run(self.options, self.part, &mvn, &args, staging.path(), self.progress).await?;
        self.deliver(&root, tools, &source.paths, Origin::Maven).await
    }

    /// Moves what was asked for into the cache. Folders are moved as they are, links and all.
    async fn deliver(
        &self,
        root: &Path,
        tools: &[&str],
        paths: &BTreeMap<String, String>,
        origin: Origin,
    ) -> Result<(), Failure> {
        let source = format!("{} {}", self.part.name, self.part.version);
        for tool in tools {
            let Some(inside) = paths.get(*tool) else { continue };
            let inside = inside.replace("{version}", &self.part.version);
            let from = tree::inside(root, &inside);
            if !from.exists() {
                return Err(SourceError::NotInside {
                    from: source,
                    what: inside,
                }
                .into());
            }
            let (cache, part, tool) = (self.cache.clone(), self.part.clone(), (*tool).to_owned());
            let source = source.clone();
            blocking(move || cache.install(&part, &tool, &from, &part.version, origin, &source)).await?;
        }
        Ok(())
    }
}
