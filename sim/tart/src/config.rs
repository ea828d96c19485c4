//! What the environment says, read in one place.

use std::path::PathBuf;

/// The environment of one command.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) home: PathBuf,
    /// `CI` is set: no cursor tricks, and the VNC address is printed.
    pub(crate) ci: bool,
    /// `TART_NO_AUTO_PRUNE` is present, even if empty.
    pub(crate) no_auto_prune: bool,
    pub(crate) docker_file: Option<PathBuf>,
    pub(crate) registry_hostname: Option<String>,
    pub(crate) registry_username: Option<String>,
    pub(crate) registry_password: Option<String>,
    pub(crate) path: Vec<PathBuf>,
}

impl Config {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub(crate) fn from_env() -> Self {
        let text = |name: &str| std::env::var(name).ok();
        let user_home = text("HOME").map(PathBuf::from);
        let beside = |name: &str| user_home.as_ref().map(|home| home.join(name));
        Self {
            home: text("TART_HOME")
                .map(PathBuf::from)
                .or_else(|| beside(".tart"))
                .unwrap_or_else(|| PathBuf::from("/var/root/.tart")),
            ci: std::env::var_os("CI").is_some(),
            no_auto_prune: std::env::var_os("TART_NO_AUTO_PRUNE").is_some(),
            docker_file: beside(".docker/config.json"),
            registry_hostname: text("TART_REGISTRY_HOSTNAME"),
            registry_username: text("TART_REGISTRY_USERNAME"),
            registry_password: text("TART_REGISTRY_PASSWORD"),
            path: std::env::var_os("PATH")
                .map(|path| std::env::split_paths(&path).collect())
                .unwrap_or_default(),
        }
    }
}
