//! What is taken from the environment, read in one place.

use std::{
    ffi::OsString,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// How tools are found and obtained.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where parts are cached and how they are fetched.
    pub parts: russet_parts::Options,
    /// Where toolchains are looked for.
    pub search_path: OsString,
    /// The `kura` program, which Go's cache is spoken through.
    pub kura: Option<PathBuf>,
}

impl Settings {
    /// As `russet parts` reads it, and `PATH`.
    pub fn from_env(kura: Option<PathBuf>) -> Self {
        Self {
            parts: russet_parts::Options::from_env(),
            search_path: std::env::var_os("PATH").unwrap_or_default(),
            kura,
        }
    }

    pub(crate) fn which(&self, program: &str) -> Option<PathBuf> {
        std::env::split_paths(&self.search_path)
            .map(|folder| folder.join(program))
            .find(|path| is_executable(path))
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
