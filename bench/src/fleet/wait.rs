//! Waiting for a fleet: as long as something moves, however long that takes.

use super::count::Count;
use super::writes::Writes;
use super::{LOOK_EVERY, say};
use anyhow::{Result, bail};
use russet_stages::macs::Fleet;
use std::time::{Duration, Instant};

const TELL_EVERY: Duration = Duration::from_secs(10);

/// Waits for a number to be reached, and goes on waiting as long as it moves.
pub(crate) struct Wait<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) writes: &'a mut Writes,
    pub(crate) patience: Duration,
}

impl Wait<'_> {
    /// Waits until `look` sees `wanted`. `besides` moves earlier: core counts what is available only when it has made all
    /// Machines, which takes minutes.
    pub(crate) async fn until(
        self,
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
                let count = Count::take(self.fleet, self.writes)?;
                say(&format!(
                    "{:5.0} s: {shown} of {wanted} {what}, {others} {beside}; provider: {}",
                    began.elapsed().as_secs_f64(),
                    count.sentence()
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Waits until the provider has written nothing for a while.
pub(crate) async fn settle(fleet: &Fleet, writes: &mut Writes) -> Result<()> {
    let mut last = Count::take(fleet, writes)?.provider_writes();
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        let now = Count::take(fleet, writes)?.provider_writes();
        if now == last {
            return Ok(());
        }
        say(&format!("{} writes in 20 s", now - last));
        last = now;
    }
    say("the provider still writes after ten minutes; measuring all the same");
    Ok(())
}
