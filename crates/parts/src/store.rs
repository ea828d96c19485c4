//! The store: finds tools, and obtains those that are missing.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::{
    Activity, Attempt, Error, Located, Manifest, Options, Origin, Outcome, Part, PartState, PartStatus, Progress,
    SourceError, Tool, Tools, Verification,
    attempt::Failure,
    cache::Cache,
    debian,
    download::{Releases, blocking},
    error::Unobtainable,
    executable, given,
    gobuild::{self, Build},
    lock::Lock,
    platform::Platform,
    receipt::{self, Check, Stamp},
    registry::Registry,
};

/// Finds and obtains tools. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    manifest: Manifest,
    options: Options,
    platform: Platform,
    cache: Cache,
    releases: Releases,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

impl Store {
    pub fn new(manifest: Manifest, options: Options) -> Self {
        let platform = Platform::host();
        let cache = Cache::new(options.cache.clone(), platform.clone());
        let releases = Releases::new(&options);
        Self {
            inner: Arc::new(Inner {
                manifest,
                options,
                platform,
                cache,
                releases,
            }),
        }
    }

    pub fn manifest(&self) -> &Manifest {
        &self.inner.manifest
    }

    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Where the tool is, if it is here already: in a given folder, in the cache, or on the PATH if that will do.
    pub fn locate(&self, tool: &str) -> Result<Option<Located>, Error> {
        let (part, tool) = self.supported(tool)?;
        self.locate_tool(part, tool)
    }

    /// Makes sure of the tools: looks them up, and obtains what is missing, part by part, each under its lock.
    pub async fn ensure(&self, tools: &[&str], progress: &dyn Progress) -> Result<Tools, Error> {
        let mut found = BTreeMap::new();
        let mut missing: Vec<(&Part, &Tool)> = Vec::new();
        for name in tools {
            let (part, tool) = self.supported(name)?;
            match self.locate_tool(part, tool)? {
                Some(located) => {
                    self.remark(part, tool, &located, progress).await?;
                    found.insert(tool.name.clone(), located);
                }
                None if missing.iter().any(|(_, other)| other.name == tool.name) => {}
                None => missing.push((part, tool)),
            }
        }
        // In the order of the manifest, whatever order was asked for.
        for part in self.inner.manifest.parts() {
            let of_part: Vec<&Tool> = missing
                .iter()
                .filter(|(other, _)| other.name == part.name)
                .map(|(_, tool)| *tool)
                .collect();
            if of_part.is_empty() {
                continue;
            }
            let outcome = self.obtain(part, &of_part, progress).await;
            match outcome {
                Ok(obtained) => {
                    missing.retain(|(other, _)| other.name != part.name);
                    let (origin, tools) = summary(&obtained);
                    progress.finish(&part.name, &Outcome::Ready { origin, tools });
                    found.extend(obtained);
                }
                Err(failure) => {
                    progress.finish(&part.name, &Outcome::Failed);
                    return Err(match failure {
                        Obtain::Stopped(error) => error,
                        Obtain::Exhausted(attempts) => self.unobtainable(part, &missing, attempts),
                    });
                }
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Every tool of the manifest, and whether it is here.
    pub fn list(&self) -> Vec<PartStatus> {
        self.inner
            .manifest
            .all_tools()
            .map(|(part, tool)| PartStatus {
                part: part.name.clone(),
                tool: tool.name.clone(),
                wanted: part.version.clone(),
                about: part.about.clone(),
                state: self.state(part, tool),
            })
            .collect()
    }

    /// Reads every cached tool from end to end and compares it with its receipt. What differs is forgotten, hence obtained anew.
    pub async fn verify(&self) -> Result<Vec<Verification>, Error> {
        let inner = Arc::clone(&self.inner);
        blocking(move || {
            let mut results = Vec::new();
            for (part, tool) in inner.manifest.all_tools() {
                let path = inner.cache.tool(part, &tool.name);
                let problem = match receipt::check(&path, true)? {
                    Check::Absent => continue,
                    Check::Whole(_) => None,
                    Check::Broken(reason) => {
                        inner.cache.forget(part, &tool.name)?;
                        Some(reason)
                    }
                };
                results.push(Verification {
                    tool: tool.name.clone(),
                    path,
                    problem,
                });
            }
            Ok(results)
        })
        .await
    }

    fn supported(&self, name: &str) -> Result<(&Part, &Tool), Error> {
        let (part, tool) = self.inner.manifest.tool(name)?;
        if tool.exists_for(&self.inner.platform) {
            Ok((part, tool))
        } else {
            Err(Error::Unsupported {
                tool: tool.name.clone(),
                platform: self.inner.platform.clone(),
                exists_for: tool.os.clone(),
            })
        }
    }

    fn locate_tool(&self, part: &Part, tool: &Tool) -> Result<Option<Located>, Error> {
        let inner = &self.inner;
        if let Some(located) = given::find(&inner.options.given, tool, &inner.platform)? {
            return Ok(Some(located));
        }
        if let Some(located) = inner.cache.find(part, &tool.name)? {
            return Ok(Some(located));
        }
        if part.on_path(&tool.name)
            && let Some(path) = inner.options.which(&tool.name)
            && executable::problem(&path, &inner.platform).is_none()
        {
            return Ok(Some(Located {
                path,
                origin: Origin::System,
                version: None,
            }));
        }
        Ok(None)
    }

    async fn remark(&self, part: &Part, tool: &Tool, located: &Located, progress: &dyn Progress) -> Result<(), Error> {
        if located.origin == Origin::Given
            && let Some(remark) = given::remark(part, tool, located, self.inner.options.path()).await?
        {
            progress.note(&part.name, &remark);
        }
        Ok(())
    }

    fn state(&self, part: &Part, tool: &Tool) -> PartState {
        if !tool.exists_for(&self.inner.platform) {
            return PartState::Unsupported {
                exists_for: tool.os.clone(),
            };
        }
        match self.locate_tool(part, tool) {
            Ok(Some(Located { path, origin, version })) => {
                let size = Stamp::of(&path).map_or(0, |stamp| stamp.size);
                PartState::Found {
                    path,
                    origin,
                    version,
                    size,
                }
            }
            Ok(None) => PartState::Missing,
            Err(error) => PartState::Unusable {
                reason: error.to_string(),
            },
        }
    }

    async fn obtain(
        &self,
        part: &Part,
        tools: &[&Tool],
        progress: &dyn Progress,
    ) -> Result<Vec<(String, Located)>, Obtain> {
        let lock_file = self.inner.cache.lock_file(part);
        let _lock = Lock::acquire(&lock_file, |pid| progress.start(&part.name, &Activity::Waiting { pid })).await?;
        let mut attempts = Vec::new();
        for source in [
            Origin::Release,
            Origin::Debian,
            Origin::Npm,
            Origin::Pypi,
            Origin::Maven,
            Origin::Go,
        ] {
            // Looked up again each time: while we waited another process may have obtained them, and a source may deliver some.
            let missing = self.still_missing(part, tools)?;
            if missing.is_empty() {
                break;
            }
            match self.attempt(source, part, &missing, progress).await {
                None | Some(Ok(())) => {}
                Some(Err(Failure::Stop(error))) => return Err(error.into()),
                Some(Err(Failure::Next(error))) => {
                    // The last one's reason is in the error; the others would go unseen once a later source succeeds.
                    if source != Origin::Go && part.go.is_some() {
                        progress.note(&part.name, &format!("{error}; next: a build with Go"));
                    }
                    attempts.push(Attempt { origin: source, error });
                }
            }
        }
        let mut obtained = Vec::new();
        for tool in tools {
            match self.locate_tool(part, tool)? {
                Some(located) => obtained.push((tool.name.clone(), located)),
                None => return Err(Obtain::Exhausted(attempts)),
            }
        }
        Ok(obtained)
    }

    fn still_missing<'a>(&self, part: &Part, tools: &[&'a Tool]) -> Result<Vec<&'a str>, Error> {
        let mut missing = Vec::new();
        for tool in tools {
            if self.locate_tool(part, tool)?.is_none() {
                missing.push(tool.name.as_str());
            }
        }
        Ok(missing)
    }

    /// `None` if the part has no such source.
    async fn attempt(
        &self,
        source: Origin,
        part: &Part,
        tools: &[&str],
        progress: &dyn Progress,
    ) -> Option<Result<(), Failure>> {
        let Inner {
            manifest,
            options,
            platform,
            cache,
            releases,
        } = &*self.inner;
        match source {
            Origin::Release => {
                let release = part.release.as_ref()?;
                if !options.download {
                    return Some(Err(SourceError::Offline.into()));
                }
                Some(releases.fetch(cache, part, release, tools, platform, progress).await)
            }
            Origin::Debian => {
                let debian = part.debian.as_ref()?;
                if !options.download {
                    return Some(Err(SourceError::Offline.into()));
                }
                Some(debian::unpack(cache, options, part, debian, tools, progress).await)
            }
            Origin::Npm | Origin::Pypi | Origin::Maven => {
                let registry = Registry {
                    cache,
                    manifest,
                    options,
                    part,
                    progress,
                };
                registry.fetch(source, tools).await
            }
            Origin::Go => {
                let go = part.go.as_ref()?;
                if !options.build {
                    return Some(Err(SourceError::BuildNotAllowed.into()));
                }
                Some(
                    Build {
                        cache,
                        manifest,
                        options,
                        platform,
                        progress,
                    }
                    .run(part, go, tools)
                    .await,
                )
            }
            Origin::Given | Origin::System => None,
        }
    }

    fn unobtainable(&self, part: &Part, missing: &[(&Part, &Tool)], attempts: Vec<Attempt>) -> Error {
        let missing: Vec<String> = missing.iter().map(|(_, tool)| tool.name.clone()).collect();
        let mut ways_out = Vec::new();
        if let Some(go) = &part.go
            && let Ok(needed) = self.inner.manifest.module(&go.module).and_then(gobuild::needed_version)
        {
            let has_go = attempts
                .iter()
                .any(|attempt| matches!(attempt.error, SourceError::Command { .. } | SourceError::Spawn { .. }));
            ways_out.push(if has_go {
                format!("remedy what the build says (it wants Go {needed} or newer and a module proxy) and try again")
            } else {
                format!("install Go {needed} or newer (with access to a module proxy) and try again")
            });
        }
        if let Some(debian) = &part.debian {
            ways_out.push(format!(
                "install {} with the package manager of this system and try again",
                debian.packages.join(", ")
            ));
        }
        if part.npm.is_some() || part.pypi.is_some() || part.maven.is_some() {
            ways_out.push(
                "make sure that npm, pip or mvn reaches its registry (a mirror is set in its own configuration) and try again"
                    .to_owned(),
            );
        }
        ways_out.push(format!(
            "put {} into a folder and name it in RUSSET_PARTS_DIR (or KUBEBUILDER_ASSETS)",
            missing.join(", ")
        ));
        ways_out.extend(part.instead.clone());
        Error::Unobtainable(Box::new(Unobtainable {
            part: part.name.clone(),
            version: part.version.clone(),
            missing,
            attempts,
            ways_out,
        }))
    }
}

/// How obtaining a part ended without it.
enum Obtain {
    Stopped(Error),
    Exhausted(Vec<Attempt>),
}

impl From<Error> for Obtain {
    fn from(error: Error) -> Self {
        Self::Stopped(error)
    }
}

fn summary(obtained: &[(String, Located)]) -> (Origin, Vec<String>) {
    let origin = obtained.first().map_or(Origin::Given, |(_, located)| located.origin);
    (origin, obtained.iter().map(|(name, _)| name.clone()).collect())
}
