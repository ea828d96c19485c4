//! The rows every tool walks through.

use anyhow::{Result, ensure};
use russet_clients::{Counts, Exit, Tool};

use crate::expected::{self, Expected};
use crate::proxy::Fault;
use crate::stage::{Outputs, Seen, Stage, Who};

/// Bodies shorter than this occur by chance elsewhere in a segment.
const TELLING: usize = 8;

struct Walk {
    tool: Tool,
    expected: Expected,
    stage: Stage,
    /// What was uploaded by the cold build.
    uploads: Vec<Vec<u8>>,
    /// What the two sources give, built without any help.
    first: Outputs,
    second: Outputs,
    failures: Vec<String>,
}

/// All rows, in an order in which each finds what it needs; every failure is told.
pub(crate) async fn walk(tool: Tool) {
    let stage = Stage::open(tool).await.unwrap_or_else(|error| panic!("{error:#}"));
    let mut walk = Walk {
        tool,
        expected: expected::of(tool),
        stage,
        uploads: Vec::new(),
        first: Vec::new(),
        second: Vec::new(),
        failures: Vec::new(),
    };
    macro_rules! rows {
        ($($row:ident),* $(,)?) => {$(
            let outcome = walk.$row().await;
            walk.note(stringify!($row), outcome);
        )*};
    }
    rows!(a_cold_build_fills_the_cache);
    assert!(walk.failures.is_empty(), "{tool}: {}", walk.failures.join("\n\n"));
    rows!(
        a_warm_build_takes_everything_from_it,
        a_reader_may_read,
        a_stranger_gets_nothing,
        a_reader_stores_nothing,
        damage_on_disk_is_a_miss,
        a_server_killed_mid_build_costs_time_at_most,
        what_was_acknowledged_survives_the_kill,
        a_server_that_answers_503_is_done_without,
    );
    if walk.expected.checks_bodies {
        rows!(
            a_body_garbled_on_the_way_is_not_used,
            a_body_cut_short_on_the_way_is_not_used,
        );
    }
    assert!(walk.failures.is_empty(), "{tool}:\n{}", walk.failures.join("\n\n"));
}

impl Walk {
    fn note(&mut self, row: &str, outcome: Result<Seen>) {
        match outcome {
            Ok(seen) => eprintln!(
                "{:>10}  {:<46} {:>4.1} s  {}  {:?}  {:?}",
                self.tool.name(),
                row.replace('_', " "),
                seen.build.took.as_secs_f64(),
                seen.build.exit,
                seen.build.claim,
                seen.counted
            ),
            Err(error) => self.failures.push(format!("{}: {error:#}", row.replace('_', " "))),
        }
    }

    async fn a_cold_build_fills_the_cache(&mut self) -> Result<Seen> {
        let stored = Counts {
            stored: self.expected.hits,
            ..Counts::default()
        };
        let seen = self.stage.build(Who::Writer, Fault::None, stored).await?;
        built(&seen)?;
        ensure!(seen.counted.hits == 0, "hits in an empty cache: {}", seen.story());
        ensure!(seen.build.claim.hits.unwrap_or(0) == 0, "{}", seen.story());
        self.first.clone_from(&seen.outputs);
        self.uploads.clone_from(&seen.uploads);
        Ok(seen)
    }

    async fn a_warm_build_takes_everything_from_it(&mut self) -> Result<Seen> {
        self.warm(Who::Writer).await
    }

    async fn a_reader_may_read(&mut self) -> Result<Seen> {
        self.warm(Who::Reader).await
    }

    async fn warm(&mut self, who: Who) -> Result<Seen> {
        let hits = Counts {
            hits: self.expected.hits,
            ..Counts::default()
        };
        let seen = self.stage.build(who, Fault::None, hits).await?;
        built(&seen)?;
        let claimed = seen.build.claim.hits == self.expected.claims;
        ensure!(claimed, "claims: {}", seen.story());
        ensure!(seen.build.claim.misses.unwrap_or(0) == 0, "misses: {}", seen.story());
        let same = seen.outputs == self.first;
        ensure!(same, "other bytes than those stored: {}", seen.story());
        Ok(seen)
    }

    async fn a_stranger_gets_nothing(&mut self) -> Result<Seen> {
        let seen = self.stage.build(Who::Unknown, Fault::None, Counts::default()).await?;
        exits(&seen, self.expected.wrong_credentials)?;
        ensure!(seen.counted.hits == 0 && seen.counted.stored == 0, "{}", seen.story());
        ensure!(seen.build.claim.hits.unwrap_or(0) == 0, "{}", seen.story());
        self.right_if_built(&seen, &self.first.clone())?;
        Ok(seen)
    }

    async fn a_reader_stores_nothing(&mut self) -> Result<Seen> {
        self.stage.reseed("second");
        let seen = self.stage.build(Who::Reader, Fault::None, Counts::default()).await?;
        built(&seen)?;
        ensure!(seen.counted.stored == 0, "{}", seen.story());
        ensure!(seen.outputs != self.first, "another source gave the same bytes");
        self.second.clone_from(&seen.outputs);
        Ok(seen)
    }

    async fn damage_on_disk_is_a_miss(&mut self) -> Result<Seen> {
        self.stage.reseed("first");
        let mut needles: Vec<Vec<u8>> = self
            .uploads
            .iter()
            .filter(|body| body.len() >= TELLING)
            .cloned()
            .collect();
        let speaks_grpc = needles.is_empty();
        if speaks_grpc {
            needles.push(b"first one\nfirst one\n".to_vec());
            needles.push(b"first two\nfirst two\n".to_vec());
        }
        let flipped = self.stage.damage(&needles).await?;
        ensure!(flipped >= 1, "nothing of {} uploads was found on disk", needles.len());
        let again = Counts {
            stored: 1,
            ..Counts::default()
        };
        let seen = self.stage.build(Who::Writer, Fault::None, again).await?;
        built(&seen)?;
        ensure!(seen.outputs == self.first, "damaged bytes were used: {}", seen.story());
        // Over gRPC only the outputs were damaged: their action is found, and then done anew.
        let missed = speaks_grpc || seen.counted.hits == 0;
        ensure!(missed, "damage was served: {}", seen.story());
        ensure!(seen.build.claim.hits.unwrap_or(0) == 0, "{}", seen.story());
        Ok(seen)
    }

    async fn a_server_killed_mid_build_costs_time_at_most(&mut self) -> Result<Seen> {
        self.stage.reseed("second");
        let outcome = self
            .stage
            .build_while_killed(Who::Writer, self.expected.killed_at)
            .await;
        self.stage.start().await?;
        let seen = outcome?;
        exits(&seen, self.expected.killed)?;
        self.right_if_built(&seen, &self.second.clone())?;
        Ok(seen)
    }

    async fn what_was_acknowledged_survives_the_kill(&mut self) -> Result<Seen> {
        self.stage.reseed("first");
        self.warm(Who::Writer).await
    }

    async fn a_server_that_answers_503_is_done_without(&mut self) -> Result<Seen> {
        self.stage.reseed("second");
        let fault = Fault::Unavailable(self.tool);
        let seen = self.stage.build(Who::Writer, fault, Counts::default()).await?;
        exits(&seen, self.expected.unavailable)?;
        ensure!(seen.counted.hits == 0, "{}", seen.story());
        self.right_if_built(&seen, &self.second.clone())?;
        Ok(seen)
    }

    async fn a_body_garbled_on_the_way_is_not_used(&mut self) -> Result<Seen> {
        self.through(Fault::Garble).await
    }

    async fn a_body_cut_short_on_the_way_is_not_used(&mut self) -> Result<Seen> {
        self.through(Fault::Cut).await
    }

    async fn through(&mut self, fault: Fault) -> Result<Seen> {
        self.stage.reseed("first");
        let seen = self.stage.build(Who::Writer, fault, Counts::default()).await?;
        built(&seen)?;
        ensure!(seen.outputs == self.first, "wrong bytes were used: {}", seen.story());
        Ok(seen)
    }

    /// A build that says it succeeded has made what the source says, whatever happened on the way.
    fn right_if_built(&self, seen: &Seen, outputs: &Outputs) -> Result<()> {
        ensure!(
            !seen.build.exit.success() || seen.outputs == *outputs,
            "{} made other bytes: {}",
            self.tool,
            seen.story()
        );
        Ok(())
    }
}

fn built(seen: &Seen) -> Result<()> {
    exits(seen, 0)?;
    for (name, content) in &seen.outputs {
        ensure!(content.is_some(), "{name} was not made: {}", seen.story());
    }
    Ok(())
}

fn exits(seen: &Seen, code: i32) -> Result<()> {
    let right = seen.build.exit == Exit::Code(code);
    ensure!(right, "expected exit code {code}: {}", seen.story());
    Ok(())
}
