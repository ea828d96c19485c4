//! The many options of `tart run`, and which of them exclude each other (facts 6.3).

use crate::arguments::{Opt, Parsed, Spec, flag, value};
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

const OPTIONS: &[Opt] = &[
    flag(&["--no-graphics"]),
    flag(&["--graphics"]),
    flag(&["--vnc"]),
    flag(&["--vnc-experimental"]),
    flag(&["--serial"]),
    value(&["--serial-path"], "serial-path"),
    flag(&["--no-audio"]),
    flag(&["--no-clipboard"]),
    flag(&["--recovery"]),
    value(&["--disk"], "path[:options]"),
    value(&["--rosetta"], "tag"),
    value(&["--dir"], "[name:]path[:options]"),
    flag(&["--nested"]),
    value(&["--net-bridged"], "interface name"),
    flag(&["--net-softnet"]),
    value(&["--net-softnet-allow"], "comma-separated CIDRs"),
    value(&["--net-softnet-block"], "comma-separated CIDRs"),
    value(&["--net-softnet-expose"], "comma-separated port specifications"),
    flag(&["--net-host"]),
    value(&["--root-disk-opts"], "options"),
    flag(&["--suspendable"]),
    flag(&["--capture-system-keys"]),
    flag(&["--no-trackpad"]),
    flag(&["--no-pointer"]),
    flag(&["--no-keyboard"]),
];

pub(crate) const SPEC: Spec = Spec {
    name: "run",
    usage: "tart run <name> [--no-graphics] [--dir <[name:]path[:options]> ...] [<options>]",
    positional: &["name"],
    repeats: false,
    passes: false,
    options: OPTIONS,
};

/// A folder of the host in the guest.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Share {
    /// Under `/Volumes/My Shared Files`; without one the share is that folder.
    pub(crate) name: Option<String>,
    pub(crate) path: PathBuf,
    pub(crate) read_only: bool,
    /// Another tag than macOS mounts by itself.
    pub(crate) tag: Option<String>,
}

/// `[name:]path[:ro,tag=T]`. Only `ro` and `tag=` are options: with `:rw`, that becomes part of the path.
pub(crate) fn share(text: &str) -> Share {
    let known = |options: &str| {
        options
            .split(',')
            .all(|option| option == "ro" || option.starts_with("tag="))
    };
    let (rest, options) = match text.rsplit_once(':') {
        Some((rest, options)) if known(options) => (rest, options),
        _ => (text, ""),
    };
    let (name, path) = match rest.split_once(':') {
        Some((name, path)) => (Some(name.to_owned()), path),
        None => (None, rest),
    };
    Share {
        name,
        path: PathBuf::from(path),
        read_only: options.split(',').any(|option| option == "ro"),
        tag: options
            .split(',')
            .find_map(|option| option.strip_prefix("tag="))
            .map(str::to_owned),
    }
}

/// Reads the shares and refuses what cannot be together.
pub(crate) fn validate(parsed: &Parsed) -> Result<Vec<Share>, Failure> {
    let nets = [
        parsed.has("--net-bridged"),
        parsed.has("--net-host"),
        [
            "--net-softnet",
            "--net-softnet-allow",
            "--net-softnet-block",
            "--net-softnet-expose",
        ]
        .iter()
        .any(|name| parsed.has(name)),
    ];
    if nets.iter().filter(|given| **given).count() > 1 {
        return Err(SPEC.wrong("--net-bridged, --net-softnet and --net-host are mutually exclusive"));
    }
    if parsed.has("--vnc") && parsed.has("--vnc-experimental") {
        return Err(SPEC.wrong("--vnc and --vnc-experimental are mutually exclusive"));
    }
    if parsed.has("--graphics") && parsed.has("--no-graphics") {
        return Err(SPEC.wrong("--graphics and --no-graphics are mutually exclusive"));
    }
    for options in parsed.all("--root-disk-opts") {
        for option in options.split(',') {
            let good = match option.split_once('=') {
                None => option == "ro",
                Some(("sync", mode)) => ["none", "fsync", "full"].contains(&mode),
                Some(("caching", mode)) => ["automatic", "cached", "uncached"].contains(&mode),
                Some(_) => false,
            };
            if !good {
                return Err(SPEC.wrong(format!("unsupported --root-disk-opts option: {option}"))); // text: guess
            }
        }
    }
    let shares: Vec<_> = parsed.all("--dir").iter().map(|text| share(text)).collect();
    let default: Vec<_> = shares.iter().filter(|share| share.tag.is_none()).collect();
    if default.len() > 1 && default.iter().any(|share| share.name.is_none()) {
        return Err(SPEC.wrong("invalid --dir syntax: for multiple directory shares each one of them should be named"));
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_a_name_a_path_and_only_two_options() {
        let full = share("env:/srv/env:ro");
        assert_eq!((full.name.as_deref(), full.read_only), (Some("env"), true));
        assert_eq!(full.path, PathBuf::from("/srv/env"));
        assert_eq!(share("/srv/env").name, None);
        assert_eq!(share("env:/srv:ro,tag=x").tag.as_deref(), Some("x"));
        // There is no `rw`: it becomes part of the path.
        assert_eq!(share("env:/srv:rw").path, PathBuf::from("/srv:rw"));
    }
}
