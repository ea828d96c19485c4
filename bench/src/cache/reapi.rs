//! Rows over gRPC: the calls of the Remote Execution API, counted in nginx's hits of 4 KiB.
//!
//! nginx speaks no gRPC. It takes its turn in each of these rows all the same, with the request that is the unit, so that unit and call
//! are measured in the same minutes on the same machine.

mod client;
mod content;

use super::http::{self, HttpRow};
use super::key::Bodies;
use super::loader::Load;
use super::row::{Row, Target};
use super::system::System;
use anyhow::{Context as _, Result, ensure};
use client::{Amount, Client, Moved, repeat};
use content::{Blob, action_of, blob, outputs, text};
use russet_reapi::name::Encoding;
use russet_reapi::proto::reapi;
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Digests of one question.
const ASKED: u64 = 1000;
/// Blobs of one batch.
const BATCH: u64 = 100;
const ACTIONS: u64 = 100;
const SMALL: usize = 4 * KIB;
const LARGE: usize = 16 * MIB;
/// As many as a build has at once; the connections are those of one client with a small pool.
const WORKERS: usize = 16;
const CONNECTIONS: usize = 4;
/// No goal.
const ANY: f64 = 0.0;

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// Whether the digests are there.
    Find {
        there: bool,
    },
    BatchRead,
    BatchUpdate,
    /// A blob that is stored in one encoding and asked for in another.
    Read {
        stored: Encoding,
        asked: Encoding,
    },
    Write,
    /// A result with three files and what it printed, all of which must be there.
    Action,
}

#[derive(Debug)]
pub(crate) struct ReapiRow {
    name: &'static str,
    title: &'static str,
    call: Call,
    amount: Amount,
    target: Target,
    unit: HttpRow,
}

pub(crate) fn rows(quick: bool) -> Vec<ReapiRow> {
    let time = Amount::Time(Duration::from_secs(if quick { 1 } else { 3 }));
    let count = |count: u64| Amount::Count(if quick { count / 4 } else { count });
    let read = |stored, asked| Call::Read { stored, asked };
    let (as_is, as_zstd) = (Encoding::Identity, Encoding::Zstd);
    let (plain, zstd) = (read(as_is, as_is), read(as_zstd, as_zstd));
    let (pack, unpack) = (read(as_is, as_zstd), read(as_zstd, as_is));
    let (present, absent) = (Call::Find { there: true }, Call::Find { there: false });
    let rows = [
        ("find-present", "FindMissing of 1,000, all there", present, 25.0),
        ("find-absent", "FindMissing of 1,000, none there", absent, 25.0),
        ("batch-read", "BatchRead of 100 × 4 KiB", Call::BatchRead, 50.0),
        ("batch-update", "BatchUpdate of 100 × 4 KiB", Call::BatchUpdate, 200.0),
        ("read-16m", "ByteStream read of 16 MiB", plain, 800.0),
        ("read-16m-zstd", "the same, stored and asked for as zstd", zstd, 800.0),
        ("read-16m-deflate", "the same, compressed on its way out", pack, ANY),
        ("read-16m-inflate", "the same, decompressed on its way out", unpack, ANY),
        ("write-16m", "ByteStream write of 16 MiB", Call::Write, 2500.0),
        ("action", "GetActionResult, 4 blobs looked for", Call::Action, 2.2),
    ];
    let row = |(name, title, call, ratio)| ReapiRow {
        name,
        title,
        call,
        amount: match call {
            Call::BatchUpdate => count(400),
            Call::Write => count(60),
            _ => time,
        },
        target: Target {
            ratio: (ratio > ANY).then_some(ratio),
            rate: None,
        },
        unit: http::unit(name, quick),
    };
    rows.map(row).into()
}

/// One upload of that many bytes in one stream on a connection of its own; how long it took from the first byte to the answer.
pub(crate) fn upload_once(system: &System, space: &str, bodies: &Bodies, size: usize) -> Result<Duration> {
    let blob = blob(bodies, 0, size);
    block_on(async {
        let client = Client::connect(system, space, 1).await?;
        let began = Instant::now();
        client.write(0, &blob.digest, &blob.parts, Encoding::Identity).await?;
        Ok(began.elapsed())
    })
}

fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(future)
}

fn is_yardstick(system: &System) -> bool {
    system.name == "nginx"
}

impl ReapiRow {
    /// The instance of new blobs of a round.
    fn fresh(&self, round: u32) -> String {
        format!("{}-{round}", self.name)
    }

    fn writes(&self) -> bool {
        matches!(self.call, Call::BatchUpdate | Call::Write)
    }

    async fn store(&self, client: &Client, bodies: &Bodies) -> Result<()> {
        match self.call {
            Call::Find { there: true } => store_small(client, bodies, ASKED).await,
            Call::BatchRead => store_small(client, bodies, BATCH).await,
            Call::Read { stored, .. } => store_large(client, stored).await,
            Call::Action => {
                store_small(client, bodies, ACTIONS * 4).await?;
                for number in 0..ACTIONS {
                    let result = outputs(bodies, number * 4, SMALL);
                    client.update_action(&action_of(number), result).await?;
                }
                Ok(())
            }
            Call::Find { there: false } | Call::BatchUpdate | Call::Write => Ok(()),
        }
    }

    async fn run(&self, client: &Client, amount: Amount, bodies: &Bodies) -> Result<Load> {
        match self.call {
            Call::Find { there } => {
                let digests: Vec<_> = (0..ASKED).map(|number| blob(bodies, number, SMALL).digest).collect();
                let missing = if there { 0 } else { digests.len() };
                let digests: Vec<_> = digests.iter().map(client::wire).collect();
                let ask = async |worker, _| {
                    let found = client.find_missing(worker, &digests).await?;
                    let right = found == missing;
                    ensure!(right, "{found} of 1,000 were said to be missing, not {missing}");
                    Ok(Moved::Read(0))
                };
                repeat(WORKERS, amount, ask).await
            }
            Call::BatchRead => {
                let digests: Vec<_> = (0..BATCH)
                    .map(|number| client::wire(&blob(bodies, number, SMALL).digest))
                    .collect();
                let ask = async |worker, _| {
                    let bytes = client.batch_read(worker, &digests).await?;
                    ensure!(bytes == digests.len() * SMALL, "a batch had {bytes} bytes");
                    Ok(Moved::Read(bytes))
                };
                repeat(WORKERS, amount, ask).await
            }
            Call::BatchUpdate => {
                let put = async |worker, number: u64| {
                    let blobs = (0..BATCH).map(|place| blob(bodies, number * BATCH + place, SMALL));
                    let sent = client.batch_update(worker, blobs.collect()).await?;
                    Ok(Moved::Written(sent))
                };
                repeat(WORKERS, amount, put).await
            }
            Call::Read { asked, .. } => {
                let digest = large().digest;
                let least = if asked == Encoding::Identity { LARGE } else { 1 };
                let read = async |worker, _| {
                    let bytes = client.read(worker, &digest, asked).await?;
                    ensure!((least..=LARGE).contains(&bytes), "{bytes} bytes came");
                    Ok(Moved::Read(bytes))
                };
                repeat(WORKERS, amount, read).await
            }
            Call::Write => {
                let write = async |worker, number| {
                    let blob = blob(bodies, number, LARGE);
                    client
                        .write(worker, &blob.digest, &blob.parts, Encoding::Identity)
                        .await?;
                    Ok(Moved::Written(LARGE))
                };
                repeat(WORKERS, amount, write).await
            }
            Call::Action => {
                let actions: Vec<_> = (0..ACTIONS).map(|number| client::wire(&action_of(number))).collect();
                let ask = async |worker, number: u64| {
                    let place = usize::try_from(number % ACTIONS)?;
                    let action = actions.get(place).context("no such action")?;
                    let files = client.get_action(worker, action).await?;
                    ensure!(files == 3, "a result had {files} files");
                    Ok(Moved::Read(0))
                };
                repeat(WORKERS, amount, ask).await
            }
        }
    }
}

async fn store_small(client: &Client, bodies: &Bodies, count: u64) -> Result<()> {
    for first in (0..count).step_by(usize::try_from(BATCH)?) {
        let share = (first..count.min(first + BATCH)).map(|number| blob(bodies, number, SMALL));
        client.batch_update(0, share.collect()).await?;
    }
    Ok(())
}

/// The blob all reads of 16 MiB are about: text, which compresses as outputs of builds do.
fn large() -> Blob {
    Blob::of(text(LARGE).into())
}

async fn store_large(client: &Client, stored: Encoding) -> Result<()> {
    let blob = large();
    let parts = match stored {
        Encoding::Identity => blob.parts,
        Encoding::Zstd => vec![russet_reapi::pack::deflate(&blob.parts.concat(), 3)?.into()],
    };
    client.write(0, &blob.digest, &parts, stored).await?;
    // What is read for the first time is compared as a whole; that is no part of the figures.
    client.read(0, &blob.digest, stored).await?;
    Ok(())
}

impl Row for ReapiRow {
    fn name(&self) -> &str {
        self.name
    }

    fn title(&self) -> String {
        self.title.to_owned()
    }

    fn target(&self) -> Target {
        self.target
    }

    fn unit(&self) -> Option<&'static str> {
        Some(http::UNIT)
    }

    /// Peers are known by URLs of HTTP; which of them speak gRPC, and where, is not known.
    fn suits(&self, system: &System) -> bool {
        is_yardstick(system) || system.name == "kura"
    }

    fn prepare(&self, system: &System, bodies: &Bodies) -> Result<()> {
        if is_yardstick(system) {
            return self.unit.prepare(system, bodies);
        }
        block_on(async {
            let client = Client::connect(system, self.name, 1).await?;
            self.store(&client, bodies).await
        })
        .with_context(|| format!("failed to store what {} needs", self.name))
    }

    fn drive(&self, system: &System, round: u32, bodies: &Bodies) -> Result<Load> {
        if is_yardstick(system) {
            return self.unit.drive(system, round, bodies);
        }
        let space = if self.writes() {
            self.fresh(round)
        } else {
            self.name.to_owned()
        };
        block_on(async {
            let client = Client::connect(system, &space, CONNECTIONS).await?;
            self.run(&client, self.amount, bodies).await
        })
        .with_context(|| format!("failed to measure {}", self.name))
    }

    fn spaces(&self, rounds: u32) -> Vec<String> {
        let fresh = if self.writes() { rounds } else { 0 };
        let own = std::iter::once(self.name.to_owned());
        own.chain((0..fresh).map(|round| self.fresh(round))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_have_distinct_names_and_say_what_they_are_counted_in() {
        let rows = rows(false);
        let names: BTreeSet<_> = rows.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), rows.len());
        assert!(rows.iter().all(|row| row.unit() == Some("GET 4 KiB")));
    }

    #[test]
    fn rounds_write_into_instances_of_their_own() {
        let rows = rows(true);
        let spaces = |name| rows.iter().find(|row| row.name == name).unwrap().spaces(2);
        assert_eq!(spaces("write-16m"), ["write-16m", "write-16m-0", "write-16m-1"]);
        assert_eq!(spaces("read-16m"), ["read-16m"]);
    }
}
