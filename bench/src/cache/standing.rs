//! What is not per request: memory at rest, start-up with a million entries, a thousand readers in little memory, and uploads over a
//! long link.

use super::group::Group;
use super::http::{Known, Order, Uploads};
use super::key::Bodies;
use super::kura::{Launch, Limits};
use super::loader::{self, Ask, Drive, Load, Source};
use super::meter::{cpu, memory};
use super::pages::{Dropped, drop_cached};
use super::report::{Fact, Limit};
use super::system::{System, wait};
use super::zipf::Random;
use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const STOP: Duration = Duration::from_mins(1);
const PATIENCE: Duration = Duration::from_mins(2);
/// Time to come to rest before memory is read.
const REST: Duration = Duration::from_secs(2);
/// From Europe to Australia, about.
const ROUND_TRIP: Duration = Duration::from_millis(192);

/// Names for `--only`.
pub(crate) const NAMES: [&str; 4] = ["idle", "million", "pressure", "link"];

/// What these measurements share.
pub(crate) struct Stand<'a> {
    pub(crate) launch: &'a Launch,
    pub(crate) dir: &'a Path,
    pub(crate) bodies: &'a Bodies,
    pub(crate) runs: u32,
    pub(crate) quick: bool,
    pub(crate) facts: Vec<Fact>,
    pub(crate) notes: Vec<String>,
}

#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
fn mib(bytes: u64) -> f64 {
    (bytes as f64 / MIB as f64 * 10.0).round() / 10.0
}

fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

fn rest() -> Result<()> {
    wait(REST, || Ok(None::<()>)).map(drop)
}

impl Stand<'_> {
    /// Measures what one of [`NAMES`] stands for.
    pub(crate) fn measure(&mut self, name: &str) -> Result<()> {
        match name {
            "idle" => self.idle(),
            "million" => self.million(),
            "pressure" => self.pressure(),
            _ => self.link(),
        }
    }

    fn fact(&mut self, what: impl Into<String>, unit: &'static str, values: Vec<f64>, limit: Limit) {
        self.facts.push(Fact {
            what: what.into(),
            unit,
            values,
            limit,
        });
    }

    /// Asks until the source has no more.
    fn drive(&self, system: &System, connections: usize, source: &mut dyn Source) -> Result<Load> {
        let drive = Drive {
            address: system.address,
            connections,
            time: None,
        };
        loader::run(drive, self.bodies, source)
    }

    /// Memory of a node that has nothing and does nothing.
    fn idle(&mut self) -> Result<()> {
        let mut values = Vec::new();
        for run in 0..self.runs {
            let data = self.dir.join(format!("idle-{run}"));
            let mut kura = self.launch.start(&data, &Limits::default())?;
            kura.up(PATIENCE)?;
            rest()?;
            values.push(mib(memory(kura.process.child.id())?.now));
            kura.process.stop(STOP)?;
            std::fs::remove_dir_all(&data)?;
        }
        self.fact("idle memory (RSS)", "MiB", values, Limit::Most(20.0));
        Ok(())
    }

    /// Start-up with many small entries, after both ways to end, with and without a page cache.
    fn million(&mut self) -> Result<()> {
        let count: u32 = if self.quick { 100_000 } else { 1_000_000 };
        let data = self.dir.join("million");
        let mut kura = self.launch.start(&data, &Limits::default())?;
        kura.up(PATIENCE)?;
        let mut source = Uploads::new(&kura.system, "million", 1024, u64::from(count));
        let load = self.drive(&kura.system, 256, &mut source)?.clean("filling the store")?;
        let stored = load.requests;
        ensure!(stored == u64::from(count), "only {stored} entries were stored");
        kura.process.stop(STOP)?;
        let mut resident = Vec::new();
        let mut round = 0;
        let ends = [
            (End::Clean, false),
            (End::Clean, true),
            (End::Killed, false),
            (End::Killed, true),
        ];
        for (end, cold) in ends {
            let (mut times, mut work) = (Vec::new(), Vec::new());
            for _ in 0..self.runs {
                round += 1;
                if end == End::Killed {
                    self.kill_under_load(&data, round)?;
                }
                if cold && drop_cached(&data)? == Dropped::Data {
                    self.note("Cold: only the data was dropped from the page cache, since this was not run as root.");
                }
                let mut kura = self.launch.start(&data, &Limits::default())?;
                let random = Random::new(u64::from(round)).below(u64::from(count));
                let request = kura.system.space("million").get(random);
                times.push(seconds(kura.first_success(&request, PATIENCE)?));
                work.push(seconds(cpu(kura.process.child.id())?.total()));
                rest()?;
                resident.push(memory(kura.process.child.id())?);
                self.read_some(&kura.system, count)?;
                kura.process.stop(STOP)?;
            }
            let how = match end {
                End::Clean => "a clean stop",
                End::Killed => "kill -9 under 32 writers",
            };
            let pages = if cold { "cold page cache" } else { "warm" };
            let what = format!("{count} × 1 KiB: start to first hit after {how}, {pages}");
            self.fact(what, "s", times, Limit::Most(1.0));
            self.fact("— of which processor time", "s", work, Limit::None);
        }
        let most = if self.quick { Limit::None } else { Limit::Most(120.0) };
        let now = resident.iter().map(|memory| memory.now).max().map(mib);
        let peak = resident.iter().map(|memory| memory.peak).max().map(mib);
        let (highest, starting) = ("memory (RSS), highest", "peak memory while starting");
        for (what, value, limit) in [(highest, now, most), (starting, peak, Limit::None)] {
            let what = format!("{count} × 1 KiB: {what}");
            self.fact(what, "MiB", value.into_iter().collect(), limit);
        }
        std::fs::remove_dir_all(&data)?;
        Ok(())
    }

    fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.to_owned());
        }
    }

    /// The index must really hold what was stored, not only answer.
    fn read_some(&self, system: &System, count: u32) -> Result<()> {
        let mut source = Known::new(system, "million", 1024, count.min(10_000), Order::Once);
        let load = self.drive(system, 32, &mut source)?;
        load.clean("reading after a restart").map(drop)
    }

    /// Starts, writes, and kills in the middle of it.
    fn kill_under_load(&self, data: &Path, round: u32) -> Result<()> {
        let mut kura = self.launch.start(data, &Limits::default())?;
        kura.up(PATIENCE)?;
        let mut source = Deadly {
            uploads: Uploads::new(&kura.system, &format!("killed-{round}"), 1024, u64::MAX),
            left: 20_000,
            pid: rustix::process::Pid::from_child(&kura.process.child),
        };
        // The answers that the kill cut off are no surprise.
        self.drive(&kura.system, 32, &mut source)?;
        kura.process.kill()
    }

    /// More readers than the memory could ever buffer for.
    fn pressure(&mut self) -> Result<()> {
        const LIMIT: u64 = 512 * MIB;
        const SIZE: usize = 48 << 20;
        const BLOBS: u32 = 16;
        let readers: u32 = if self.quick { 100 } else { 1000 };
        let data = self.dir.join("pressure");
        let mut kura = self.launch.start(&data, &Limits::default())?;
        kura.up(PATIENCE)?;
        let mut source = Uploads::new(&kura.system, "pressure", SIZE, u64::from(BLOBS));
        self.drive(&kura.system, 4, &mut source)?
            .clean("storing 48 MiB blobs")?;
        kura.process.stop(STOP)?;
        let group = match Group::new(LIMIT) {
            Ok(group) => Some(group),
            Err(error) => {
                self.note(&format!(
                    "No control group could be made ({error:#}); only kura's own limit was set."
                ));
                None
            }
        };
        drop_cached(&data)?;
        let limits = Limits {
            memory: Some(LIMIT),
            group: group.as_ref().map(|group| group.path.clone()),
        };
        let mut kura = self.launch.start(&data, &limits)?;
        kura.up(PATIENCE)?;
        let mut source = Readers {
            known: Known::new(&kura.system, "pressure", SIZE, BLOBS, Order::Random(Random::new(5))),
            left: readers,
        };
        let load = self.drive(&kura.system, readers as usize, &mut source);
        let load = load.with_context(|| kura.last_words())?;
        let alive = kura.process.check();
        let killed = match (&alive, group.as_ref().and_then(Group::killed)) {
            (Ok(()), count) => count.unwrap_or(0),
            (Err(_), count) => count.unwrap_or(0).max(1),
        };
        let refused: u64 = load.surprises.values().sum();
        for (surprise, count) in &load.surprises {
            self.note(&format!(
                "Of {readers} reads in 512 MiB, {count} ended with {surprise}."
            ));
        }
        #[expect(clippy::cast_precision_loss, reason = "counts are small")]
        let counts = (refused as f64, killed as f64, load.bytes as f64 / 1e9);
        let mut facts = vec![
            ("refused or cut off", "", counts.0, Limit::Most(0.0)),
            ("killed", "", counts.1, Limit::Most(0.0)),
        ];
        if alive.is_ok() {
            let used = memory(kura.process.child.id())?;
            facts.push(("peak memory (RSS)", "MiB", mib(used.peak), Limit::None));
        }
        if let Some(peak) = group.as_ref().and_then(Group::peak) {
            facts.push((
                "peak of the control group, page cache included",
                "MiB",
                mib(peak),
                Limit::None,
            ));
        }
        let rate = (counts.2 / load.wall.as_secs_f64() * 100.0).round() / 100.0;
        facts.push(("all of it", "GB/s", rate, Limit::None));
        for (what, unit, value, limit) in facts {
            let what = format!("{readers} readers of 48 MiB at once in 512 MiB: {what}");
            self.fact(what, unit, vec![value], limit);
        }
        let _ = kura.process.stop(STOP);
        std::fs::remove_dir_all(&data)?;
        Ok(())
    }

    /// One upload at a time over a link as long as that from another continent.
    fn link(&mut self) -> Result<()> {
        const SIZE: usize = super::http::LARGEST;
        let data = self.dir.join("link");
        let mut kura = self.launch.start(&data, &Limits::default())?;
        kura.up(PATIENCE)?;
        let delay = super::link::Delay::start(kura.system.address, ROUND_TRIP / 2)?;
        let far = System {
            address: delay.address,
            ..kura.system.clone()
        };
        let (mut puts, mut writes) = (Vec::new(), Vec::new());
        for run in 0..self.runs {
            let mut source = Uploads::new(&far, &format!("link-{run}"), SIZE, 1);
            let load = self.drive(&far, 1, &mut source)?.clean("one PUT over the link")?;
            puts.push(megabytes_per_second(SIZE, load.wall));
            let wall = super::reapi::upload_once(&far, &format!("link-write-{run}"), self.bodies, SIZE)?;
            writes.push(megabytes_per_second(SIZE, wall));
        }
        let what = |how| format!("one {how} of 48 MiB over a round trip of {} ms", ROUND_TRIP.as_millis());
        self.fact(what("HTTP PUT"), "MB/s", puts, Limit::Least(12.0));
        self.fact(what("ByteStream write"), "MB/s", writes, Limit::Least(12.0));
        drop(delay);
        kura.process.stop(STOP)?;
        std::fs::remove_dir_all(&data)?;
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a body is far below 2^52 bytes")]
fn megabytes_per_second(bytes: usize, time: Duration) -> f64 {
    (bytes as f64 / 1e5 / time.as_secs_f64()).round() / 10.0
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Clean,
    Killed,
}

/// Each reader reads once.
struct Readers {
    known: Known,
    left: u32,
}

impl Source for Readers {
    fn next(&mut self, head: &mut Vec<u8>) -> Option<Ask> {
        self.left = self.left.checked_sub(1)?;
        self.known.next(head)
    }
}

/// Writes, and kills the server at the end instead of stopping.
struct Deadly<'a> {
    uploads: Uploads<'a>,
    left: u32,
    pid: rustix::process::Pid,
}

impl Source for Deadly<'_> {
    fn next(&mut self, head: &mut Vec<u8>) -> Option<Ask> {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return self.uploads.next(head);
        }
        // Once would do; the others find it dead already.
        let _ = rustix::process::kill_process(self.pid, rustix::process::Signal::KILL);
        None
    }
}
