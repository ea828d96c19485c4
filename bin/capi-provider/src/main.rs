//! `capi-provider`: the Cluster API infrastructure provider for Mac minis at Scaleway.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory as _, FromArgMatches as _};
use russet_capi_provider::bootstrap::Services;
use russet_capi_provider::clock::SystemClock;
use russet_capi_provider::config::{self, Cli, Ignored, Settings, lenient};
use russet_capi_provider::machine::Effects;
use russet_capi_provider::provider::{self, ABOUT, Companions, Outside};
use russet_controller::launch;
use tracing::warn;

#[tokio::main]
async fn main() -> ExitCode {
    let (args, ignored) = lenient(&Cli::command(), std::env::args_os());
    let parsed = Cli::command().try_get_matches_from(args);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let Cli {
        mut common,
        provider,
        bootstrap,
        host,
        identity,
        cluster,
        egress,
        github,
    } = cli;
    // A dry run writes nothing, the Lease included.
    common.leader_elect &= !provider.dry_run;
    let shown = serde_json::json!({
        "provider": &provider, "bootstrap": &bootstrap, "host": &host,
        "identity": &identity, "cluster": &cluster, "egress": &egress, "github": &github,
    });
    let companions = Companions {
        identity,
        cluster,
        egress,
        github,
        host,
    };
    launch(ABOUT, common, &shown, move |manager| {
        for Ignored(flag) in &ignored {
            warn!(flag, "a flag that this release does not know is ignored");
        }
        let settings = Settings::from_args(provider, bootstrap)?;
        if settings.effects == Effects::DryRun {
            warn!("dry run: nothing is written, what would be done is logged");
        }
        let outside = Outside {
            scaleway: config::scaleway(&settings)?,
            bootstrapper: provider::bootstrapper(&settings, &companions.host)?,
            services: Services::default(),
            linux_hosts: None,
            clock: Arc::new(SystemClock),
        };
        provider::all(manager, &settings, outside, &companions)
    })
    .await
}
