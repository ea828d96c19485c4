//! Waiting for a fleet: as long as something moves, however long that takes.

use super::count::{Count, Stage};
use super::writes::Writes;
use super::{LOOK_EVERY, say};
use anyhow::{Context as _, Result, bail};
use russet_stages::macs::Fleet;
use std::time::{Duration, Instant};

const TELL_EVERY: Duration = Duration::from_secs(10);

/// Watches a fleet and what its provider writes.
pub(crate) struct Watch<'a> {
    fleet: &'a Fleet,
    writes: Writes,
    /// How long nothing may move.
    patience: Duration,
}

impl<'a> Watch<'a> {
    pub(crate) fn begin(fleet: &'a Fleet, patience: Duration) -> Result<Self> {
        let log = fleet.cluster.control_plane().audit_log();
        let writes = Writes::follow(log.context("there is no audit log")?, &fleet.provider_user)?;
        Ok(Self {
            fleet,
            writes,
            patience,
        })
    }

    pub(crate) fn count(&mut self) -> Result<Count> {
        Count::take(self.fleet, &mut self.writes)
    }

    /// Waits until `look` sees `wanted`, and goes on waiting as long as it moves. `besides` moves earlier: core counts what is
    /// available only when it has made all Machines, which takes minutes.
    pub(crate) async fn until(
        &mut self,
        (wanted, what): (u64, &str),
        look: impl AsyncFn() -> Result<u64>,
        (beside, besides): (&str, impl Fn() -> u64),
    ) -> Result<()> {
        let began = Instant::now();
        let (mut last, mut moved) = ((0, 0), Instant::now());
        let mut told = Instant::now();
        loop {
            // An API server under load may be late with an answer; that alone is no reason to give up.
            let seen = look().await;
            if seen.as_ref().is_ok_and(|now| *now == wanted) {
                return Ok(());
            }
            let now = (seen.as_ref().map_or(last.0, |now| *now), besides());
            if last != now {
                (last, moved) = (now, Instant::now());
            }
            let (shown, others) = now;
            if moved.elapsed() > self.patience {
                let seconds = self.patience.as_secs();
                let cause = seen.err().map(|error| format!(": {error:#}")).unwrap_or_default();
                bail!("{shown} of {wanted} {what}, {others} {beside}, and nothing moved for {seconds} s{cause}");
            }
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                let (seconds, provider) = (began.elapsed().as_secs_f64(), self.count()?.sentence());
                say(&format!(
                    "{seconds:5.0} s: {shown} of {wanted} {what}, {others} {beside}; provider: {provider}"
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the provider has written nothing for a while.
    async fn settle(&mut self) -> Result<()> {
        let mut last = self.count()?.provider_writes();
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_secs(20)).await;
            let now = self.count()?.provider_writes();
            if now == last {
                return Ok(());
            }
            say(&format!("{} writes in 20 s", now - last));
            last = now;
        }
        say("the provider still writes after ten minutes; measuring all the same");
        Ok(())
    }

    /// What so many seconds at rest take.
    pub(crate) async fn rest(&mut self, window: u64) -> Result<Stage> {
        say("waiting for the provider to come to rest");
        self.settle().await?;
        say(&format!("at rest for {window} s"));
        let before = self.count()?;
        tokio::time::sleep(Duration::from_secs(window)).await;
        Ok(Stage::between(&before, &self.count()?))
    }
}
