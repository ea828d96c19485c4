//! Flags of `sim-scaleway`, and the seed file.

use crate::deed::{Deed, Minis};
use crate::host::AddressPlan;
use crate::settings::Settings;
use crate::sim::Options;
use anyhow::Context as _;
use russet_sim_kit::clock::Factor;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A strict emulator of the Scaleway API
///
/// Speaks Apple silicon, Instances, Elastic Metal, block storage, the marketplace, VPC, IPAM, IAM (SSH keys), account
/// projects and the price list. Everything else answers 501. The world behind it is controlled under /_sim/: clock, faults,
/// bill, journal, machines.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "sim-scaleway", version, after_help = EXAMPLES)]
pub struct Cli {
    /// Where to listen; port 0 takes a free one and prints it
    #[arg(long, default_value = "127.0.0.1:4280")]
    pub listen: SocketAddr,
    /// Keep the state in this file and go on from it at the next start
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Start with what this JSON file says: {"settings": {…}, "deeds": [{"deed": "add_minis", "count": 3}]}
    #[arg(long, value_name = "FILE")]
    pub seed_file: Option<PathBuf>,
    /// Start with this many minis in the pool, named tuist-pool-1 and so on
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub pool: u32,
    /// How fast emulated time runs; 0 means only by POST /_sim/clock
    #[arg(long, value_name = "FACTOR", default_value = "1", allow_negative_numbers = true)]
    pub clock_factor: Factor,
    /// Which ids, passwords and keys there will be
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Put all machines on 127.0.0.1 with SSH ports from here on, instead of one loopback address each
    #[arg(long, value_name = "PORT")]
    pub first_ssh_port: Option<u16>,
    /// The SSH port of machines that have an address of their own
    #[arg(long, value_name = "PORT", default_value_t = 22, conflicts_with = "first_ssh_port")]
    pub ssh_port: u16,
}

const EXAMPLES: &str = "\
Examples:
  A pool of five minis, an hour per minute, kept over restarts:
    sim-scaleway --pool 5 --clock-factor 60 --state .russet/scaleway.json

  What a client needs:
    SCW_API_URL=http://127.0.0.1:4280
    SCW_SECRET_KEY=5ca1ab1e-0000-4000-a000-000000000001
    SCW_DEFAULT_PROJECT_ID=0a11ce00-0000-4000-a000-000000000002

  The next reinstallation is carried out, but the client hears nothing of it:
    curl -d '{\"method\":\"POST\",\"path\":\"/apple-silicon/v1alpha1/zones/*/servers/*/reinstall\",
              \"when\":\"after_effect\",\"act\":{\"status\":502}}' http://127.0.0.1:4280/_sim/faults

  What is paid for right now:
    curl http://127.0.0.1:4280/_sim/bill";

/// What a seed file says.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Seed {
    settings: Settings,
    deeds: Vec<Deed>,
}

impl Seed {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a seed", path.display()))
    }
}

impl Cli {
    /// What to start.
    pub fn options(self) -> anyhow::Result<Options> {
        let mut seed = match &self.seed_file {
            Some(path) => Seed::read(path)?,
            None => Seed::default(),
        };
        // A deed numbers its minis only if it makes several, and a pool of one is a pool.
        let minis = Minis::default();
        seed.deeds.extend((1..=self.pool).map(|number| {
            Deed::AddMinis(Minis {
                name: format!("{}-{number}", minis.name),
                ..minis.clone()
            })
        }));
        let addresses = match self.first_ssh_port {
            Some(first_port) => AddressPlan::OneAddress { first_port },
            None => AddressPlan::LoopbackEach {
                ssh_port: self.ssh_port,
            },
        };
        Ok(Options {
            listen: self.listen,
            clock_factor: self.clock_factor,
            start: None,
            seed: self.seed,
            settings: seed.settings,
            addresses,
            deeds: seed.deeds,
            state: self.state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser as _};

    #[test]
    fn the_flags_are_consistent_and_the_help_has_examples() {
        Cli::command().debug_assert();
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("SCW_API_URL"), "{help}");
    }

    /// A single mini was called `tuist-pool`, which is in no pool: nobody ever adopted it.
    #[test]
    fn a_pool_of_one_is_a_pool() {
        let options = Cli::parse_from(["sim-scaleway", "--pool", "1"]).options().unwrap();
        let names: Vec<String> = options
            .deeds
            .iter()
            .filter_map(|deed| match deed {
                Deed::AddMinis(minis) => Some(minis.name.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(names, ["tuist-pool-1"]);
    }

    #[test]
    fn a_seed_with_a_misspelt_word_is_refused() {
        assert!(serde_json::from_str::<Seed>(r#"{"deeds": [{"deed": "add_minis", "counts": 3}]}"#).is_err());
        assert!(serde_json::from_str::<Seed>(r#"{"setings": {}}"#).is_err());
        let seed: Seed =
            serde_json::from_str(r#"{"settings": {"page_cap": 1}, "deeds": [{"deed": "add_minis", "count": 3}]}"#)
                .unwrap();
        assert_eq!((seed.settings.page_cap, seed.deeds.len()), (Some(1), 1));
    }
}
