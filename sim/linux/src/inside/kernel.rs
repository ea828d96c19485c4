//! `modprobe`, `sysctl` and `swapoff`: what reaches into the kernel that all emulated servers and the host share.
//!
//! Settings of the network belong to the machine and are made. All others belong to the host: they are read, checked and
//! written down, and the host stays as it is.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::reply::Reply;

/// Modules a node asks for. Whether the host's kernel has them is another matter.
const MODULES: [&str; 6] = ["8021q", "br_netfilter", "nf_conntrack", "overlay", "xfs", "xt_socket"];
/// What would have been set.
const NOTED: &str = "/run/russet-box/sysctl";
const FOLDERS: [&str; 3] = ["/usr/lib/sysctl.d", "/run/sysctl.d", "/etc/sysctl.d"];

/// `modprobe MODULE...`.
pub(super) fn modprobe(args: &[String]) -> Reply {
    for module in args
        .iter()
        .filter(|arg| !matches!(arg.as_str(), "-a" | "-q" | "--quiet"))
    {
        if !MODULES.contains(&module.as_str()) {
            return Reply::failure(
                1,
                format!("modprobe: FATAL: Module {module} not found in the emulated server"),
            );
        }
    }
    Reply::success()
}

/// `swapoff -a`: the host's swap is not ours.
pub(super) fn swapoff(args: &[String]) -> Reply {
    match args {
        [all] if all == "-a" || all == "--all" => Reply::success(),
        _ => Reply::failure(
            1,
            "swapoff: the emulated server has no swap; only -a is known".to_owned(),
        ),
    }
}

/// `sysctl ARGS`.
pub(super) fn sysctl(args: &[String]) -> Reply {
    let (mut quiet, mut assignments, mut files) = (false, String::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-q" | "--quiet" => quiet = true,
            "-w" | "--write" => {}
            "-p" | "--load" => match args.next() {
                Some(file) => files.push(PathBuf::from(file)),
                None => files.push(PathBuf::from("/etc/sysctl.conf")),
            },
            load if load.starts_with("--load=") => files.extend(load.strip_prefix("--load=").map(PathBuf::from)),
            "--system" => files.extend(system_files()),
            assignment if assignment.contains('=') && !assignment.starts_with('-') => {
                assignments.push_str(assignment);
                assignments.push('\n');
            }
            other => return Reply::failure(1, format!("sysctl: the emulated server does not know {other}")),
        }
    }
    for file in files {
        match std::fs::read_to_string(&file) {
            Ok(text) => {
                assignments.push_str(&text);
                assignments.push('\n');
            }
            Err(error) => return Reply::failure(255, format!("sysctl: cannot open {}: {error}", file.display())),
        }
    }
    apply(&assignments, quiet)
}

fn system_files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = FOLDERS
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
        .collect();
    files.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    files
}

fn apply(text: &str, quiet: bool) -> Reply {
    let mut reply = Reply::success();
    let mut noted = std::fs::read_to_string(NOTED).unwrap_or_default();
    for setting in parse(text) {
        let Setting { key, value, tolerant } = setting;
        if Target::of(&key) == Target::Host {
            let _ = writeln!(noted, "{key} = {value}");
        } else {
            let path = Path::new("/proc/sys").join(key.replace('.', "/"));
            if let Err(error) = std::fs::write(&path, &value) {
                // The module may not be in this kernel; on a server it would be.
                let _ = writeln!(noted, "{key} = {value}");
                if !tolerant && !key.starts_with("net.bridge.") {
                    reply.status = 1;
                    let _ = writeln!(reply.stderr, "sysctl: cannot write {}: {error}", path.display());
                }
                continue;
            }
        }
        if !quiet {
            let _ = writeln!(reply.stdout, "{key} = {value}");
        }
    }
    if let Err(error) = std::fs::write(NOTED, noted) {
        return Reply::failure(1, format!("sysctl: {NOTED}: {error}"));
    }
    reply
}

/// Whose setting it is.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Machine,
    Host,
}

impl Target {
    fn of(key: &str) -> Self {
        if key.starts_with("net.") {
            Self::Machine
        } else {
            Self::Host
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Setting {
    key: String,
    value: String,
    tolerant: bool,
}

fn parse(text: &str) -> Vec<Setting> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.starts_with(['#', ';']))
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| {
            let key = key.trim();
            Setting {
                key: key.trim_start_matches('-').to_owned(),
                value: value.trim().to_owned(),
                tolerant: key.starts_with('-'),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_of_the_network_are_the_machines_own() {
        assert_eq!(Target::of("net.ipv4.ip_forward"), Target::Machine);
        assert_eq!(Target::of("kernel.panic"), Target::Host);
        assert_eq!(Target::of("vm.overcommit_memory"), Target::Host);
    }

    #[test]
    fn a_leading_minus_means_that_failing_is_fine() {
        let read = parse("# c\nnet.a = 1\n-kernel.panic=10\n\n;x=y\n");
        assert_eq!(read.len(), 2);
        assert!(!read[0].tolerant && read[1].tolerant);
        assert_eq!((read[1].key.as_str(), read[1].value.as_str()), ("kernel.panic", "10"));
    }

    #[test]
    fn unknown_modules_are_not_found() {
        assert_eq!(modprobe(&["br_netfilter".to_owned()]).status, 0);
        assert_eq!(modprobe(&["ip_vs".to_owned()]).status, 1);
        assert_eq!(swapoff(&["/dev/sda2".to_owned()]).status, 1);
    }
}
