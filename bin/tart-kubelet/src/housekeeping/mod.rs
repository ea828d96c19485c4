//! What keeps the host in order, beside everything else and never in its way.
//!
//! ```text
//!   examine ── tart, screen, tailnet; memory, processes ──▶ Board ──▶ the heartbeat
//!   watch the disk ─ nearly full ─▶ images go ─ still full ─▶ Board (DiskPressure), one Pod after the other goes
//!   watch the Pods ─ one uses more than it may ─▶ it goes
//!   every few minutes ─▶ images go that nobody has needed for a day; guests are asked how full they are
//!   the Node's annotation ─▶ images come before a Pod asks for them
//! ```

mod disk;
mod guests;
mod prepull;

use std::convert::Infallible;
use std::time::Duration;

use russet_vm::log::Rotation;
use tokio::time::MissedTickBehavior;

use crate::host::pressure::Tools;
use crate::host::{Board, Examiner, Gauge, Moved};
use crate::pods::Host;

/// How often images are looked at, and guests are asked.
const TIDY: Duration = Duration::from_mins(5);
const GUESTS: Duration = Duration::from_mins(1);
/// How often the disk and what Pods use of it are looked at, as kubelets do.
const DISK: Duration = Duration::from_secs(10);
/// How much longer macOS is left alone about memory and processes than about the rest: that costs three processes.
const PRESSURE: u32 = 2;
/// A host that is not well is looked at more often: it shall be of use again soon.
const UNWELL: Duration = Duration::from_secs(5);

/// How a host is kept in order. By default nothing is known of its disk.
#[derive(Clone, Debug)]
pub struct Keeping {
    /// How full the disk is.
    pub(crate) disk: Gauge,
    /// Where is written down what the heartbeat tells.
    pub(crate) board: Board,
    /// Builders keep what nobody seems to use.
    pub(crate) keep_unused: bool,
    /// How large logs of containers may become.
    pub(crate) logs: Rotation,
    /// How often the host is asked how it is.
    pub(crate) interval: Duration,
}

impl Default for Keeping {
    fn default() -> Self {
        Self {
            disk: Gauge::default(),
            board: Board::default(),
            keep_unused: false,
            logs: Rotation {
                bytes: 10 * 1024 * 1024,
                files: 5,
            },
            interval: Duration::from_secs(30),
        }
    }
}

/// Finds out again and again how the host is, until it has moved. Neither question waits for the other.
pub(crate) async fn examine(examiner: Examiner, tools: Tools, board: Board, interval: Duration) -> Moved {
    tokio::select! {
        moved = examine_health(examiner, &board, interval) => moved,
        never = examine_pressure(tools, &board, interval.saturating_mul(PRESSURE)) => match never {},
    }
}

async fn examine_pressure(tools: Tools, board: &Board, interval: Duration) -> Infallible {
    loop {
        board.set_pressure(tools.ask(board.pressure()).await);
        tokio::time::sleep(interval).await;
    }
}

async fn examine_health(mut examiner: Examiner, board: &Board, interval: Duration) -> Moved {
    loop {
        let before = board.health();
        let health = match examiner.look(&before).await {
            Ok(health) => health,
            Err(moved) => return moved,
        };
        let ready = health.ready();
        if before.ready() != ready {
            tracing::info!(ready = ready.holds, why = ready.message, "the host was looked at");
        }
        board.set_health(health);
        let pause = if ready.holds { interval } else { interval.min(UNWELL) };
        tokio::time::sleep(pause).await;
    }
}

/// Keeps the host in order until it is dropped.
pub(crate) async fn run(host: Host) -> Infallible {
    let every = |period: Duration| {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let interval = host.options.keeping.interval;
    let disk = async {
        let mut ticks = every(DISK.min(interval));
        loop {
            ticks.tick().await;
            disk::watch(&host).await;
        }
    };
    let limits = async {
        let mut ticks = every(DISK.min(interval));
        loop {
            ticks.tick().await;
            disk::limits(&host).await;
        }
    };
    let tidy = async {
        let mut ticks = every(TIDY.min(interval * 10));
        loop {
            ticks.tick().await;
            host.images().tidy().await;
        }
    };
    let guests = async {
        let mut ticks = every(GUESTS.min(interval * 2));
        loop {
            ticks.tick().await;
            guests::ask(&host).await;
        }
    };
    tokio::select! {
        never = disk => never,
        never = limits => never,
        never = tidy => never,
        never = guests => never,
        never = prepull::run(&host) => never,
    }
}
