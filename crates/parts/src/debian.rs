//! Programs of the distribution, unpacked into the cache: `apt-get download` and `dpkg -x`. Nothing is installed, no maintainer
//! script runs, no service starts. apt checks the signatures and checksums of what it downloads.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tokio::process::Command;

use crate::{
    Activity, Error, Options, Origin, Part, Progress, SourceError,
    attempt::Failure,
    cache::{self, Cache},
    download::blocking,
    golang,
    manifest::Debian,
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
    download(options, part, &apt, &source.packages, staging.path(), progress).await?;

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

    for tool in tools {
        let Some(inside) = source.paths.get(*tool) else {
            continue;
        };
        let from = root.join(inside);
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
        blocking(move || {
            // Copied, not moved: two tools of a package may be links to one file.
            if from.is_dir() {
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

/// Fresh containers come without package lists; as root they can be had.
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
    let first = run(options, part, apt, &args, folder, progress).await;
    let Err(Failure::Next(_)) = first else {
        return first.map(drop);
    };
    if !rustix::process::geteuid().is_root() {
        return first.map(drop);
    }
    progress.note(
        &part.name,
        "apt-get download failed; updating the package lists and trying once more",
    );
    run(options, part, apt, &["-qq", "update"], folder, progress).await?;
    run(options, part, apt, &args, folder, progress).await.map(drop)
}

async fn run(
    options: &Options,
    part: &Part,
    program: &Path,
    args: &[&str],
    folder: &Path,
    progress: &dyn Progress,
) -> Result<String, Failure> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let shown = format!(
        "{name} {}",
        args.iter().find(|arg| **arg != "-qq").copied().unwrap_or_default()
    );
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(folder)
        .env("PATH", options.path())
        .env("LC_ALL", "C")
        .env("DEBIAN_FRONTEND", "noninteractive");
    let (status, stdout, tail) = golang::stream(command, |line| progress.advance(&part.name, 0, line))
        .await
        .map_err(|source| SourceError::Spawn {
            command: shown.clone(),
            source,
        })?;
    if status.success() {
        Ok(stdout)
    } else {
        Err(SourceError::Command {
            command: shown,
            status,
            tail,
        }
        .into())
    }
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

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_package_are_read() {
        let text = "Package: runc\nVersion: 1.1.5+ds1-1+deb12u1\n";
        assert_eq!(
            described_package(text),
            Some(("runc".to_owned(), "1.1.5+ds1-1+deb12u1".to_owned()))
        );
        assert_eq!(described_package("Package: runc\n"), None);
    }
}
