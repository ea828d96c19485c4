//! Flags of the rollout.

use std::time::Duration;

use russet_controller::duration;
use serde::Serialize;

use super::policy::{Policy, Share};

/// Flags of the rollout; flatten them into the provider's own.
#[derive(clap::Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Host update options")]
pub struct RolloutArgs {
    /// Failed updates with one configuration before a host gives up; 0 never gives up.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub tartkubelet_max_update_attempts: u32,

    /// How long a host that gave up is left alone, unless the configuration changes or somebody clears its failure first.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = duration::parse)]
    pub tartkubelet_terminal_retry_after: Duration,

    /// Hosts of a fleet that get a new configuration first, as a number or a part such as 5%; 0 for no canary.
    #[arg(long, value_name = "HOSTS", env = "CAPI_ROLLOUT_CANARY", default_value = "1")]
    pub rollout_canary: Share,

    /// How long canaries must be ready with a new configuration before other hosts get it.
    #[arg(long, value_name = "DURATION", env = "CAPI_ROLLOUT_SOAK", default_value = "10m", value_parser = duration::parse)]
    pub rollout_soak: Duration,

    /// Hosts of a fleet that may be out of service at once, as a number or a part; at least one is always allowed.
    #[arg(
        long,
        value_name = "HOSTS",
        env = "CAPI_ROLLOUT_MAX_UNAVAILABLE",
        default_value = "10%"
    )]
    pub rollout_max_unavailable: Share,

    /// Failing hosts of a fleet, as a number or a part, at which a configuration is pushed to no further host; 0 for never.
    #[arg(long, value_name = "HOSTS", env = "CAPI_ROLLOUT_PAUSE_FAILURES", default_value = "2")]
    pub rollout_pause_failures: Share,

    /// When the Nodes of all hosts that lack a new configuration are lost for this long, as after a move of the API server, it is
    /// neither tried on canaries first nor waited for Pods.
    #[arg(long, value_name = "DURATION", env = "CAPI_ROLLOUT_LOST_AFTER", default_value = "2m", value_parser = duration::parse)]
    pub rollout_lost_after: Duration,

    /// How long a host on which Pods run is waited for, once it is its turn, before it is updated under them; 0s for not at all.
    #[arg(long, value_name = "DURATION", env = "CAPI_ROLLOUT_BUSY_PATIENCE", default_value = "1h", value_parser = duration::parse)]
    pub rollout_busy_patience: Duration,

    /// Time between a failed update and the next try on the same host.
    #[arg(long, value_name = "DURATION", env = "CAPI_ROLLOUT_RETRY_DELAY", default_value = "1m", value_parser = duration::parse)]
    pub rollout_retry_delay: Duration,
}

impl RolloutArgs {
    /// The policy these flags describe.
    pub fn policy(&self) -> Policy {
        Policy {
            canary: self.rollout_canary,
            soak: self.rollout_soak,
            max_unavailable: self.rollout_max_unavailable,
            pause_failures: self.rollout_pause_failures,
            lost_after: self.rollout_lost_after,
            busy_patience: self.rollout_busy_patience,
            retry_delay: self.rollout_retry_delay,
            max_attempts: self.tartkubelet_max_update_attempts,
            terminal_retry_after: self.tartkubelet_terminal_retry_after,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        rollout: RolloutArgs,
    }

    fn policy(flags: &[&str]) -> Result<Policy, clap::Error> {
        let flags = std::iter::once("test").chain(flags.iter().copied());
        Cli::try_parse_from(flags).map(|cli| cli.rollout.policy())
    }

    #[test]
    fn without_flags_the_policy_is_the_default() {
        assert_eq!(policy(&[]).unwrap(), Policy::default());
    }

    #[test]
    fn the_flags_of_the_seeds_keep_their_names() {
        let flags = [
            "--tartkubelet-max-update-attempts=3",
            "--tartkubelet-terminal-retry-after=5m",
            "--rollout-canary=5%",
            "--rollout-pause-failures=0",
        ];
        let policy = policy(&flags).unwrap();
        assert_eq!(
            (policy.max_attempts, policy.terminal_retry_after),
            (3, Duration::from_mins(5))
        );
        assert_eq!(
            (policy.canary, policy.pause_failures),
            (Share::Percent(5), Share::Count(0))
        );
    }

    #[test]
    fn a_flag_that_makes_no_sense_is_refused_with_an_example() {
        let error = policy(&["--rollout-max-unavailable=many"]).unwrap_err().to_string();
        assert!(error.contains("10%"), "{error}");
        assert!(policy(&["--rollout-soak=soon"]).is_err());
    }
}
