//! The programs of the operating system a node is made with, and how they are run.
//!
//! The search path is fixed rather than inherited: a node must not come out different because the caller's shell
//! lacks `/usr/sbin`, which is where Debian keeps `ip`, `nft` and `iptables`.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::Error;

/// Where system programs are looked for, and the `PATH` of everything that runs in a node.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Each program with the Debian package that holds it.
const NEEDED: [(&str, &str); 10] = [
    ("cat", "coreutils"),
    ("env", "coreutils"),
    ("find", "findutils"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("mount", "mount"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
];

/// Says whether a node can run here, without starting anything. Tests use it to tell why they are skipped.
pub fn check() -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    match missing(|program| find(program).is_some()) {
        None => Ok(()),
        Some((programs, packages)) => Err(Error::MissingPrograms { programs, packages }),
    }
}

fn missing(exists: impl Fn(&str) -> bool) -> Option<(String, String)> {
    let absent: Vec<_> = NEEDED.into_iter().filter(|(program, _)| !exists(program)).collect();
    if absent.is_empty() {
        return None;
    }
    let programs: Vec<_> = absent.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<_> = absent.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    Some((programs.join(", "), packages.join(" ")))
}

pub fn find(program: &str) -> Option<PathBuf> {
    PATH.split(':')
        .map(|directory| Path::new(directory).join(program))
        .find(|path| path.is_file())
}

/// Runs a program to its end and returns what it printed; the attempt names the step in errors.
pub async fn run<S: AsRef<str>>(attempt: impl Into<String>, program: &str, args: &[S]) -> Result<String, Error> {
    let attempt = attempt.into();
    let output = Command::new(program)
        .args(args.iter().map(AsRef::as_ref))
        .env("PATH", PATH)
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|source| Error::Spawn {
            attempt: attempt.clone(),
            program: program.to_owned(),
            source,
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Command {
        attempt,
        program: program.to_owned(),
        status: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_machine_misses_nothing() {
        assert_eq!(missing(|_| true), None);
    }

    #[test]
    fn missing_programs_are_named_with_each_package_once() {
        let (programs, packages) = missing(|program| !["nft", "nsenter", "unshare"].contains(&program)).unwrap();
        assert_eq!(programs, "nft, nsenter, unshare");
        assert_eq!(packages, "nftables util-linux");
    }

    #[tokio::test]
    async fn a_failing_program_is_reported_with_its_own_words() {
        let error = run("say why", "sh", &["-c", "echo because >&2; exit 3"])
            .await
            .unwrap_err()
            .to_string();
        let told = error.contains("say why") && error.contains("because") && error.contains('3');
        assert!(told, "{error}");
    }
}
