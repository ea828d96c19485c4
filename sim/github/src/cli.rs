//! Flags of `sim-github`.

use crate::deed::Deed;
use crate::key::AppKey;
use crate::settings::Settings;
use crate::sim::Options;
use anyhow::Context as _;
use russet_sim_kit::clock::Factor;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A strict emulator of GitHub Apps and self-hosted runners
///
/// Starts with one App, installed in one organisation. Its credentials are written to a folder, in the form in which a
/// Secret takes them. The world behind it is controlled under /_sim/: clock, faults, deeds, journal.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "sim-github", version, after_help = EXAMPLES)]
pub struct Cli {
    /// Where to listen; port 0 takes a free one and prints it
    #[arg(long, default_value = "127.0.0.1:4281")]
    pub listen: SocketAddr,
    /// Folder for the files app-id, installation-id and private-key; a key that is there is used again
    #[arg(long, value_name = "FOLDER")]
    pub credentials: PathBuf,
    /// The organisation
    #[arg(long, default_value = "tuist")]
    pub org: String,
    /// Number of the App
    #[arg(long, value_name = "NUMBER", default_value_t = 1001)]
    pub app_id: u64,
    /// Number of its installation
    #[arg(long, value_name = "NUMBER", default_value_t = 2002)]
    pub installation_id: u64,
    /// How fast emulated time runs; 0 means only by POST /_sim/clock
    #[arg(long, value_name = "FACTOR", default_value = "1", allow_negative_numbers = true)]
    pub clock_factor: Factor,
}

const EXAMPLES: &str = "\
Examples:
  An App, and the Secret that a machine's ghActionsRunner names:
    sim-github --credentials .russet/github &
    kubectl create secret generic builders-github-app --from-file=.russet/github

  The next registration token is made, but the client hears nothing of it:
    curl -d '{\"method\":\"POST\",\"path\":\"/orgs/*/actions/runners/registration-token\",
              \"when\":\"after_effect\",\"act\":{\"status\":502}}' http://127.0.0.1:4281/_sim/faults

  GitHub's clock is two minutes ahead:
    curl -X PATCH -d '{\"skew_seconds\":120}' http://127.0.0.1:4281/_sim/settings";

impl Cli {
    /// What to start. Writes the credentials.
    pub fn options(self) -> anyhow::Result<Options> {
        let folder = &self.credentials;
        let shown = folder.display();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("could not make {shown}"))?;
        let file = folder.join("private-key");
        let key = match std::fs::read_to_string(&file) {
            Ok(text) => AppKey::from_pkcs1_pem(&text).with_context(|| format!("{}", file.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let key = AppKey::generate()?;
                write(&file, &key.pkcs1_pem())?;
                key
            }
            Err(error) => return Err(error).with_context(|| format!("could not read {}", file.display())),
        };
        write(&folder.join("app-id"), &self.app_id.to_string())?;
        write(&folder.join("installation-id"), &self.installation_id.to_string())?;
        Ok(Options {
            listen: self.listen,
            clock_factor: self.clock_factor,
            start: None,
            seed: jiff::Timestamp::now().as_microsecond().unsigned_abs(),
            settings: Settings::default(),
            deeds: vec![
                Deed::AddApp {
                    app: self.app_id,
                    public_key: key.public_pem(),
                },
                Deed::install(self.app_id, self.installation_id, &self.org),
            ],
        })
    }
}

/// Nobody else may read a key, not even for a moment.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("could not write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_flags_are_consistent_and_the_help_has_examples() {
        Cli::command().debug_assert();
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("kubectl create secret"), "{help}");
    }
}
