//! Options, and the one place of this crate that reads the environment.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::space::FreeSpace;

/// How tools are found and obtained.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folders searched first, in this order. Each holds tools by their names.
    pub given: Vec<PathBuf>,
    /// Russet's cache folder.
    pub cache: PathBuf,
    /// Whether the network may be used, for releases, packages and Go modules. Default: yes.
    pub download: bool,
    /// Base URL of a mirror of the releases: `https://host/path` is fetched from `<mirror>/host/path`.
    pub mirror: Option<String>,
    /// Whether missing tools may be built. Default: yes.
    pub build: bool,
    /// Where `go`, `apt-get` and tools of the system are looked for. Default: this process's PATH.
    pub search_path: Option<OsString>,
    /// How free disk space is measured.
    pub free_space: FreeSpace,
    /// A host that takes longer to answer is given up for this run. Default: 5 s.
    pub connect_timeout: Duration,
    /// A download that sends nothing for this long is given up. Default: 30 s.
    pub stall_timeout: Duration,
}

impl Options {
    /// The defaults with this cache folder and without given folders.
    pub fn new(cache: impl Into<PathBuf>) -> Self {
        Self {
            given: Vec::new(),
            cache: cache.into(),
            download: true,
            mirror: None,
            build: true,
            search_path: None,
            free_space: FreeSpace::default(),
            connect_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(30),
        }
    }

    /// What the environment says:
    ///
    /// | Variable | Meaning |
    /// | --- | --- |
    /// | `RUSSET_PARTS_DIR` | folders with tools, separated as in PATH |
    /// | `KUBEBUILDER_ASSETS` | one more such folder, searched after those |
    /// | `RUSSET_CACHE_DIR` | the cache folder |
    /// | `RUSSET_PARTS_MIRROR` | base URL of a release mirror |
    /// | `RUSSET_PARTS_OFFLINE` | anything but empty, `0` or `false`: do not use the network |
    pub fn from_env() -> Self {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let cache = set("RUSSET_CACHE_DIR").map_or_else(
            || {
                default_cache_dir(
                    set("HOME").as_deref().map(Path::new),
                    set("XDG_CACHE_HOME").as_deref().map(Path::new),
                )
            },
            PathBuf::from,
        );
        let given = set("RUSSET_PARTS_DIR")
            .iter()
            .flat_map(std::env::split_paths)
            .chain(set("KUBEBUILDER_ASSETS").map(PathBuf::from))
            .filter(|folder| !folder.as_os_str().is_empty())
            .collect();
        Self {
            given,
            download: !set("RUSSET_PARTS_OFFLINE").is_some_and(|value| means_yes(&value)),
            mirror: set("RUSSET_PARTS_MIRROR").map(|url| url.to_string_lossy().trim_end_matches('/').to_owned()),
            search_path: set("PATH"),
            ..Self::new(cache)
        }
    }

    /// The PATH to search.
    pub(crate) fn path(&self) -> OsString {
        self.search_path
            .clone()
            .or_else(|| std::env::var_os("PATH"))
            .unwrap_or_default()
    }

    /// The first executable of that name on the search path.
    pub(crate) fn which(&self, program: &str) -> Option<PathBuf> {
        std::env::split_paths(&self.path())
            .map(|folder| folder.join(program))
            .find(|path| crate::executable::may_execute(path))
    }
}

fn means_yes(value: &OsStr) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

/// `$XDG_CACHE_HOME/russet`, else `~/.cache/russet`; on macOS `~/Library/Caches/russet`. Outside the source tree, so that it
/// survives `cargo clean` and a fresh clone. Without a home folder it is `russet-cache` in the temporary folder.
pub fn default_cache_dir(home: Option<&Path>, xdg_cache: Option<&Path>) -> PathBuf {
    // The XDG specification has relative paths ignored.
    if let Some(folder) = xdg_cache.filter(|folder| folder.is_absolute()) {
        return folder.join("russet");
    }
    match home {
        Some(home) if cfg!(target_os = "macos") => home.join("Library/Caches/russet"),
        Some(home) => home.join(".cache/russet"),
        None => std::env::temp_dir().join("russet-cache"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Options {
        Options::from_lookup(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn xdg_wins_over_home_if_it_is_absolute() {
        let dir = default_cache_dir(Some(Path::new("/h")), Some(Path::new("/x")));
        assert_eq!(dir, Path::new("/x/russet"));
        assert!(default_cache_dir(Some(Path::new("/h")), Some(Path::new("x"))).starts_with("/h"));
    }

    #[test]
    fn given_folders_keep_their_order_and_kubebuilder_comes_last() {
        let options = options(&[
            ("RUSSET_PARTS_DIR", "/a:/b"),
            ("KUBEBUILDER_ASSETS", "/k"),
            ("HOME", "/h"),
        ]);
        assert_eq!(options.given, ["/a", "/b", "/k"].map(PathBuf::from));
    }

    #[test]
    fn offline_is_said_with_any_value_but_no() {
        for (value, download) in [("1", false), ("yes", false), ("0", true), ("False", true), ("", true)] {
            let ours = options(&[("RUSSET_PARTS_OFFLINE", value)]).download;
            assert_eq!(ours, download, "{value:?}");
        }
    }

    #[test]
    fn a_cache_folder_and_a_mirror_are_taken_as_they_are() {
        let options = options(&[("RUSSET_CACHE_DIR", "/c"), ("RUSSET_PARTS_MIRROR", "http://m/x/")]);
        assert_eq!(options.cache, Path::new("/c"));
        assert_eq!(options.mirror.as_deref(), Some("http://m/x"));
    }
}
