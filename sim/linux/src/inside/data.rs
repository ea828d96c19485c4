//! Disks: their first boot, and `mount`, `findmnt` and `xfs_quota` for kernels without XFS quotas.
//!
//! File systems are made and mounted for real, on files behind loop devices. Where the kernel has no quotas for XFS, the option that switches them on is taken off
//! and remembered, and shown again to whoever looks; limits are then written down and not enforced.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use super::protocol::Blank;
use super::reply::Reply;

const REAL_MOUNT: &str = "/usr/lib/russet-box/real/mount";
const MKFS_XFS: &str = "/usr/lib/russet-box/real/mkfs.xfs";
const REAL_FINDMNT: &str = "/usr/lib/russet-box/real/findmnt";
/// Mount points whose quotas are pretended, one per line.
const PRETENDED: &str = "/run/russet-box/quotas";
/// What was set on them.
const LIMITS: &str = "/run/russet-box/limits";
const OPTION: &str = "prjquota";

/// Enough for the images and volumes of a test, and never taken as a whole: the file has holes.
const SIZE: u64 = 8 << 30;

/// Makes the file systems that are not there yet. A file has its name only when it is whole.
pub(super) async fn make(disks: &[Blank]) -> Result<(), String> {
    for disk in disks {
        let said = |error: std::io::Error| format!("{}: {error}", disk.file);
        std::fs::create_dir_all(&disk.mountpoint).map_err(said)?;
        let (file, fresh) = (Path::new(&disk.file), format!("{}.new", disk.file));
        if file.exists() {
            continue;
        }
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).map_err(said)?;
        }
        std::fs::File::create(&fresh)
            .and_then(|made| made.set_len(SIZE))
            .map_err(said)?;
        let program = match disk.format.as_str() {
            "xfs" => MKFS_XFS,
            _ => "/usr/sbin/mkfs.ext4",
        };
        let reply = real(program, &["-q".to_owned(), fresh.clone()]).await;
        if reply.status != 0 {
            return Err(format!("{program}: {}", reply.stderr.trim()));
        }
        std::fs::rename(&fresh, file).map_err(said)?;
    }
    Ok(())
}

/// A line of `/etc/fstab`.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    source: String,
    target: String,
    kind: String,
    options: String,
}

fn fstab(text: &str) -> Vec<Entry> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            Some(Entry {
                source: words.next()?,
                target: words.next()?,
                kind: words.next()?,
                options: words.next()?,
            })
        })
        .collect()
}

/// What a boot mounts.
pub(super) async fn mount_all() {
    for entry in fstab(&std::fs::read_to_string("/etc/fstab").unwrap_or_default()) {
        if entry.kind != "swap" {
            let reply = mount(&[entry.target]).await;
            let _ = std::io::stderr().write_all(reply.stderr.as_bytes());
        }
    }
}

/// `mount ARGS`; `mount TARGET` is by `/etc/fstab`.
pub(super) async fn mount(args: &[String]) -> Reply {
    let [target] = args else {
        return real(REAL_MOUNT, args).await;
    };
    let table = fstab(&std::fs::read_to_string("/etc/fstab").unwrap_or_default());
    let Some(entry) = table.into_iter().find(|entry| entry.target == *target) else {
        return Reply::failure(1, format!("mount: {target}: can't find in /etc/fstab."));
    };
    // What systemd and fsck read is nothing for the kernel.
    let options: Vec<&str> = entry
        .options
        .split(',')
        .filter(|option| !option.starts_with("x-") && *option != "nofail")
        .collect();
    let words = |options: &[&str]| {
        let options = options.join(",");
        ["-t", &entry.kind, "-o", &options, &entry.source, &entry.target].map(str::to_owned)
    };
    let reply = real(REAL_MOUNT, &words(&options)).await;
    if reply.status == 0 || entry.kind != "xfs" || !options.contains(&OPTION) {
        return reply;
    }
    let plain: Vec<&str> = options.into_iter().filter(|option| *option != OPTION).collect();
    let reply = real(REAL_MOUNT, &words(&plain)).await;
    if reply.status == 0 {
        let mut pretended = pretended();
        pretended.insert(entry.target);
        let text: Vec<String> = pretended.into_iter().collect();
        let _ = std::fs::write(PRETENDED, text.join("\n"));
    }
    reply
}

fn pretended() -> BTreeSet<String> {
    let text = std::fs::read_to_string(PRETENDED).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// `findmnt ARGS`: options of a mount point show the quotas that are pretended.
pub(super) async fn findmnt(args: &[String]) -> Reply {
    let mut reply = real(REAL_FINDMNT, args).await;
    let asks_options = args
        .windows(2)
        .any(|pair| matches!(pair, [flag, what] if flag == "--output" && what == "OPTIONS"));
    if reply.status == 0 && asks_options && args.last().is_some_and(|target| pretended().contains(target)) {
        reply.stdout = format!("{},{OPTION}\n", reply.stdout.trim_end().replace(",noquota", ""));
    }
    reply
}

/// `xfs_quota -x -c COMMAND TARGET`: written down where quotas are pretended, refused where they are not.
pub(super) fn xfs_quota(args: &[String]) -> Reply {
    let [expert, flag, command, target] = args else {
        return Reply::failure(1, "xfs_quota: the emulated server knows -x -c COMMAND PATH".to_owned());
    };
    if expert != "-x" || flag != "-c" {
        return Reply::failure(1, "xfs_quota: the emulated server knows -x -c COMMAND PATH".to_owned());
    }
    if !pretended().contains(target) {
        return Reply::failure(1, format!("xfs_quota: quotas are off for {target}"));
    }
    let words: Vec<&str> = command.split_whitespace().collect();
    let known = match words.as_slice() {
        ["project", "-s", "-p", path, id] => Path::new(path).is_dir() && id.parse::<u32>().is_ok(),
        ["limit", "-p", limit, id] => limit.starts_with("bhard=") && id.parse::<u32>().is_ok(),
        _ => false,
    };
    if !known {
        return Reply::failure(1, format!("xfs_quota: the emulated server cannot do {command:?}"));
    }
    let mut noted = std::fs::read_to_string(LIMITS).unwrap_or_default();
    noted.push_str(command);
    noted.push('\n');
    match std::fs::write(LIMITS, noted) {
        Ok(()) => Reply::success(),
        Err(error) => Reply::failure(1, format!("xfs_quota: {error}")),
    }
}

async fn real(program: &str, args: &[String]) -> Reply {
    match Command::new(program).args(args).stdin(Stdio::null()).output().await {
        Ok(output) => Reply {
            status: output.status.code().unwrap_or(1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        },
        Err(error) => Reply::failure(1, format!("{program}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_file_systems_is_read() {
        let read = fstab("# c\n/a.img /data xfs defaults,loop 0 0\n\n/data/x /x none bind,nofail 0 0\nshort line\n");
        assert_eq!(read.len(), 2);
        assert_eq!(
            (read[0].source.as_str(), read[0].options.as_str()),
            ("/a.img", "defaults,loop")
        );
        assert_eq!(read[1].target, "/x");
    }
}
