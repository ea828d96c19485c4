//! Programs of the distribution, unpacked into the cache: `apt-get download` and `dpkg -x`. Nothing is installed, no maintainer
//! script runs, no service starts. apt checks the signatures and checksums of what it downloads.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    Activity, Error, Options, Origin, Part, Progress, SourceError,
    attempt::Failure,
    cache::{self, Cache},
    command::{run, text},
    download::blocking,
    manifest::Debian,
    tree,
};

pub(crate) async fn unpack(
    cache: &Cache,
    options: &Options,
    part: &Part,
    source: &Debian,
    tools: &[&str],
    progress: &dyn Progress,
) -> Result<(), Failure> {
    let apt = options
        .which("apt-get")
        .ok_or(SourceError::NotDebian { command: "apt-get" })?;
    let dpkg = options
        .which("dpkg")
        .ok_or(SourceError::NotDebian { command: "dpkg" })?;
    let dpkg_deb = options
        .which("dpkg-deb")
        .ok_or(SourceError::NotDebian { command: "dpkg-deb" })?;
    progress.start(
        &part.name,
        &Activity::Unpacking {
            packages: source.packages.clone(),
        },
    );
    let staging = cache.stage(part)?;
    let packages = if source.tree {
        with_dependencies(options, part, &apt, &source.packages, staging.path(), progress).await?
    } else {
        source.packages.clone()
    };
    download(options, part, &apt, &packages, staging.path(), progress).await?;

    let root = staging.path().join("root");
    let mut versions = Vec::new();
    for deb in debs(staging.path())? {
        run(
            options,
            part,
            &dpkg,
            &["-x", &text(&deb), &text(&root)],
            staging.path(),
            progress,
        )
        .await?;
        let described = run(
            options,
            part,
            &dpkg_deb,
            &["-f", &text(&deb), "Package", "Version"],
            staging.path(),
            progress,
        )
        .await?;
        versions.extend(described_package(&described));
    }
    // The first package is the part; what else was unpacked are its libraries.
    let version = source
        .packages
        .first()
        .and_then(|name| versions.iter().find(|(package, _)| package == name))
        .map_or_else(|| part.version.clone(), |(_, version)| version.clone());

    if source.tree {
        let root = root.clone();
        blocking(move || tree::mend(&root)).await?;
    }
    for tool in tools {
        let Some(inside) = source.paths.get(*tool) else {
            continue;
        };
        let from = tree::inside(&root, inside);
        let package = source.packages.join(", ");
        if !from.exists() {
            return Err(SourceError::NotInside {
                from: package,
                what: inside.clone(),
            }
            .into());
        }
        let staged = staging.path().join(format!("{tool}.staged"));
        let (cache, part, tool, version) = (cache.clone(), part.clone(), (*tool).to_owned(), version.clone());
        let inside = inside.clone();
        blocking(move || {
            // Copied, not moved: two tools of a package may be links to one file. A whole tree keeps its links.
            if inside == "." {
                fs::rename(&from, &staged).map_err(Error::io("move", &from))?;
            } else if from.is_dir() {
                cache::copy_folder(&from, &staged)?;
            } else {
                fs::copy(&from, &staged).map_err(Error::io("copy", &from))?;
            }
            cache.install(
                &part,
                &tool,
                &staged,
                &version,
                Origin::Debian,
                &format!("{package} {version}"),
            )
        })
        .await?;
    }
    Ok(())
}

/// The packages and what they need that is not installed, as apt would install it. Simulated: that needs no rights and changes nothing.
async fn with_dependencies(
    options: &Options,
    part: &Part,
    apt: &Path,
    packages: &[String],
    folder: &Path,
    progress: &dyn Progress,
) -> Result<Vec<String>, Failure> {
    let mut args = vec!["-qq", "install", "--simulate", "--no-install-recommends", "--reinstall"];
    args.extend(packages.iter().map(String::as_str));
    let simulated = with_fresh_lists(options, part, apt, &args, folder, progress).await?;
    Ok(installed_by(&simulated))
}

/// The names in the `Inst` lines of a simulation.
fn installed_by(simulated: &str) -> Vec<String> {
    simulated
        .lines()
        .filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

async fn download(
    options: &Options,
    part: &Part,
    apt: &Path,
    packages: &[String],
    folder: &Path,
    progress: &dyn Progress,
) -> Result<(), Failure> {
    let mut args = vec!["-qq", "download"];
    args.extend(packages.iter().map(String::as_str));
    with_fresh_lists(options, part, apt, &args, folder, progress)
        .await
        .map(drop)
}

/// Fresh containers come without package lists; as root they can be had.
async fn with_fresh_lists(
    options: &Options,
    part: &Part,
    apt: &Path,
    args: &[&str],
    folder: &Path,
    progress: &dyn Progress,
) -> Result<String, Failure> {
    let first = run(options, part, apt, args, folder, progress).await;
    if !matches!(first, Err(Failure::Next(_))) || !rustix::process::geteuid().is_root() {
        return first;
    }
    progress.note(
        &part.name,
        "apt-get failed; updating the package lists and trying once more",
    );
    run(options, part, apt, &["-qq", "update"], folder, progress).await?;
    run(options, part, apt, args, folder, progress).await
}

fn debs(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .and_then(|entries| {
            entries
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<Result<_, _>>()
        })
        .map_err(Error::io("read", folder))?;
    found.retain(|path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb"));
    found.sort();
    Ok(found)
}

/// `Package: x` and `Version: y`, as `dpkg-deb -f` prints them.
fn described_package(text: &str) -> Option<(String, String)> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(|value| value.trim().to_owned())
    };
    Some((field("Package:")?, field("Version:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_names_what_would_be_installed() {
        let text = "NOTE: simulation\nInst libx-java (1.0-1 Debian:12 [all])\nInst gradle [4.4.1-13] (4.4.1-18 Debian:12 [all])\nConf gradle (4.4.1-18)\n";
        assert_eq!(installed_by(text), ["libx-java", "gradle"]);
    }

    #[test]
    fn the_fields_of_a_package_are_read() {
        let text = "Package: runc\nVersion: 1.1.5+ds1-1+deb12u1\n";
        let described = described_package(text);
        assert_eq!(described, Some(("runc".to_owned(), "1.1.5+ds1-1+deb12u1".to_owned())));
        assert_eq!(described_package("Package: runc\n"), None);
    }
}
