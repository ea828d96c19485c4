//! One tiny project, built again and again from nothing.

use std::{
    fs, io,
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    Claim, Error, Exit, Kit, Target,
    plan::{File, Plan, Site},
    run::{self, Surroundings},
    tools,
};

/// How a build went.
#[derive(Debug, Clone)]
pub struct Build {
    pub exit: Exit,
    pub claim: Claim,
    /// Everything the tool said, errors included.
    pub output: String,
    pub took: Duration,
}

/// A folder with a project in it, and the tool to build it with.
#[derive(Debug)]
pub struct Workshop {
    kit: Kit,
    site: Site,
    /// The plan of the latest build, which knows how to stop what it started.
    last: Option<Plan>,
    builds: u32,
}

impl Workshop {
    /// A project in `dir`, which must be absolute. `seed` goes into every source: another seed, other entries in the cache.
    pub fn new(kit: Kit, dir: impl Into<PathBuf>, seed: &str) -> Result<Self, Error> {
        let site = Site {
            dir: dir.into(),
            seed: seed.to_owned(),
        };
        for folder in ["project", "keep", "home", "logs"] {
            let folder = site.dir.join(folder);
            fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        }
        Ok(Self {
            kit,
            site,
            last: None,
            builds: 0,
        })
    }

    /// Where the project is.
    pub fn project(&self) -> PathBuf {
        self.site.project()
    }

    /// Changes every source: the next build has nothing in common with the ones before.
    pub fn reseed(&mut self, seed: &str) {
        seed.clone_into(&mut self.site.seed);
    }

    /// Forgets all local state and builds against `target`. A failed build is a result, not an error.
    pub async fn build(&mut self, target: &Target, patience: Duration) -> Result<Build, Error> {
        let plan = tools::plan(&self.kit, &self.site, target);
        self.builds += 1;
        let log = self.site.dir.join("logs").join(format!("{}.log", self.builds));
        let begun = Instant::now();
        let deadline = begun + patience;
        self.wipe(&plan, &log, deadline).await?;
        write(&plan)?;
        let surroundings = self.surroundings();
        let (mut exit, mut output) = (Exit::Code(0), String::new());
        for invocation in &plan.build {
            let said;
            (exit, said) = run::run(invocation, &surroundings, &log, deadline).await?;
            output.push_str(&said);
            if !exit.success() {
                break;
            }
        }
        let took = begun.elapsed();
        let mut report = String::new();
        if let Some(invocation) = &plan.report {
            report = run::run(invocation, &surroundings, &log, deadline).await?.1;
        }
        let claim = tools::claim(self.kit.tool, &output, &report);
        self.last = Some(plan);
        Ok(Build {
            exit,
            claim,
            output,
            took,
        })
    }

    /// What the latest build made: name and content, or none where it made nothing.
    pub fn outputs(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let outputs = self.last.iter().flat_map(|plan| &plan.outputs);
        outputs
            .map(|path| {
                let name = path.strip_prefix(self.site.project()).unwrap_or(path);
                (name.display().to_string(), fs::read(path).ok())
            })
            .collect()
    }

    async fn wipe(&self, plan: &Plan, log: &Path, deadline: Instant) -> Result<(), Error> {
        // A server of the tool first: it would write its state anew.
        let surroundings = self.surroundings();
        fs::create_dir_all(&surroundings.temp).map_err(Error::io("create", &surroundings.temp))?;
        for invocation in self.last.iter().flat_map(|last| &last.forget) {
            run::run(invocation, &surroundings, log, deadline).await?;
        }
        for path in plan.state.iter().chain([&self.site.dir.join("state")]) {
            remove(path).map_err(Error::io("remove", path))?;
        }
        fs::create_dir_all(&surroundings.temp).map_err(Error::io("create", &surroundings.temp))
    }

    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            search_path: &self.kit.search_path,
            home: self.site.dir.join("home"),
            temp: self.site.state("tmp"),
        }
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        for invocation in self.last.iter().flat_map(|plan| &plan.stop) {
            run::run_blocking(invocation, &self.surroundings());
        }
    }
}

/// Writes the files and links of a plan.
fn write(plan: &Plan) -> Result<(), Error> {
    for File { path, content, mode } in &plan.files {
        let write = || -> io::Result<()> {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            // An unchanged file keeps its time: tools that look at it shall see what a second build sees.
            if fs::read_to_string(path).is_ok_and(|current| current == *content) {
                return Ok(());
            }
            remove(path)?;
            let mut file = fs::File::options()
                .write(true)
                .create_new(true)
                .mode(*mode)
                .open(path)?;
            io::Write::write_all(&mut file, content.as_bytes())
        };
        write().map_err(Error::io("write", path))?;
    }
    for (target, link) in &plan.links {
        let make = || -> io::Result<()> {
            remove(link)?;
            symlink(target, link)
        };
        make().map_err(Error::io("link", link))?;
    }
    Ok(())
}

/// A file, a link or a folder; nothing is fine too.
fn remove(path: &Path) -> io::Result<()> {
    let gone = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match gone {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
