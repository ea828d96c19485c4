//! `kubectl logs`, by the clock.

use crate::reaching::Reached;
use crate::stage::PATIENCE;
use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use russet_testkit::wait;
use serde_json::json;

/// A line of a log: when it was written, and what it says.
fn stamped(line: &str) -> Result<(Timestamp, &str)> {
    let (at, text) = line.split_once(' ').with_context(|| format!("no time in {line:?}"))?;
    Ok((at.parse().with_context(|| format!("no time in {line:?}"))?, text))
}

pub(crate) async fn a_log_is_read_from_a_moment_on_and_with_its_times() -> Result<()> {
    let there = Reached::new("moment", "127.77.10.11").await?;
    let mac = &there.mac;
    let begun = Timestamp::now();
    let script = "echo early; until [ -e /opt/work/go ]; do sleep 0.1; done; echo late; sleep 1000";
    let pod = mac.run("job", script, json!({})).await?;
    mac.until_running("job").await?;
    let until = async |all: &str| {
        let what = format!("the log {all:?}");
        wait::until_true(&what, PATIENCE, || async {
            Ok(there.says(&["logs", "job"]).await? == all)
        })
        .await?;
        there.says(&["logs", "--timestamps", "job"]).await
    };
    let first = until("early\n").await?;
    let (early, _) = stamped(first.trim_end())?;
    // kubectl asks for whole seconds, so there has to be one between the lines.
    let between = Timestamp::from_second(early.as_second() + 1)?;
    crate::stage::until("another second", || Ok(Timestamp::now() > between)).await?;
    mac.go(&pod)?;
    let both = until("early\nlate\n").await?;
    let lines = both.lines().map(stamped).collect::<Result<Vec<_>>>()?;
    let [(first, "early"), (late, "late")] = lines[..] else {
        bail!("{both}");
    };
    ensure!(first == early, "a time is that of its line, whenever it is read");
    ensure!(begun < early && between < late && late < Timestamp::now(), "{both}");

    ensure!(there.says(&["logs", "--since=1h", "job"]).await? == "early\nlate\n");
    let since = |second: i64| Ok::<_, anyhow::Error>(format!("--since-time={}", Timestamp::from_second(second)?));
    ensure!(there.says(&["logs", &since(early.as_second())?, "job"]).await? == "early\nlate\n");
    let after = there
        .says(&["logs", "--timestamps", &since(between.as_second())?, "job"])
        .await?;
    ensure!(
        after == format!("{}\n", both.lines().last().context("a line")?),
        "{after}"
    );
    ensure!(
        there
            .says(&["logs", &since(late.as_second() + 1)?, "job"])
            .await?
            .is_empty()
    );
    crate::stage::until("two seconds without a line", || {
        Ok(Timestamp::now().as_second() > late.as_second() + 2)
    })
    .await?;
    ensure!(there.says(&["logs", "--since=1s", "job"]).await?.is_empty());
    Ok(())
}
