//! The bill: who pays for what since when.
//!
//! Every order opens a line, every deletion closes it. A line is a row of plans: by the started hour with a minimum, or by
//! the started month. What is owed is computed from the plans and the clock, never accumulated, so it cannot drift.

use crate::ids::{Id, Zone};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::fmt;

/// An amount in millionths of a euro.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct MicroEuro(pub u64);

impl MicroEuro {
    /// From thousandths of a euro.
    pub const fn from_milli(milli: u64) -> Self {
        Self(milli * 1000)
    }

    fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }
}

impl std::iter::Sum for MicroEuro {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        Self(amounts.fold(0, |sum, amount| sum.saturating_add(amount.0)))
    }
}

impl fmt::Display for MicroEuro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "€{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// A month of commitment.
pub(crate) const MONTH: SignedDuration = SignedDuration::from_hours(730);

/// How a stretch of time is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "plan", rename_all = "snake_case")]
pub enum Plan {
    /// Per started hour, and at least `minimum_hours`.
    Hourly {
        /// Price of an hour.
        price: MicroEuro,
        /// Hours owed in any case.
        minimum_hours: u64,
    },
    /// Per started month of 730 hours.
    Monthly {
        /// Price of a month.
        price: MicroEuro,
    },
}

impl Plan {
    /// Units paid and what they cost for a stretch of this length.
    fn owed(self, length: SignedDuration) -> (u64, MicroEuro) {
        match self {
            Self::Hourly { price, minimum_hours } => {
                let hours = started(length, SignedDuration::from_hours(1)).max(minimum_hours);
                (hours, price.times(hours))
            }
            Self::Monthly { price } => {
                let months = started(length, MONTH).max(1);
                (months.saturating_mul(730), price.times(months))
            }
        }
    }

    /// What an hour costs.
    fn per_hour(self) -> MicroEuro {
        match self {
            Self::Hourly { price, .. } => price,
            Self::Monthly { price } => MicroEuro(price.0 / 730),
        }
    }
}

/// How many units of time have begun.
fn started(length: SignedDuration, unit: SignedDuration) -> u64 {
    let units = length
        .as_nanos()
        .max(0)
        .unsigned_abs()
        .div_ceil(unit.as_nanos().unsigned_abs().max(1));
    u64::try_from(units).unwrap_or(u64::MAX)
}

/// A stretch of time under one plan.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stretch {
    /// How it is paid.
    #[serde(flatten)]
    pub plan: Plan,
    /// Since when.
    pub from: Timestamp,
    /// Until when; none while it runs.
    pub until: Option<Timestamp>,
}

/// One paid thing.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Line {
    /// The thing.
    pub resource_id: Id,
    /// What kind of thing, for example `apple_silicon_server`.
    pub resource: String,
    /// Its commercial type.
    pub commercial_type: String,
    pub zone: Zone,
    /// Who pays.
    pub project_id: Id,
    /// How, over time.
    pub stretches: Vec<Stretch>,
}

impl Line {
    /// Whether it still costs.
    pub fn running(&self) -> bool {
        self.stretches.last().is_some_and(|stretch| stretch.until.is_none())
    }

    /// Hours paid and what they cost, as of `now`.
    pub fn owed(&self, now: Timestamp) -> (u64, MicroEuro) {
        self.stretches.iter().fold((0, MicroEuro(0)), |(hours, sum), stretch| {
            let (more, amount) = stretch
                .plan
                .owed(stretch.until.unwrap_or(now).duration_since(stretch.from));
            (hours.saturating_add(more), MicroEuro(sum.0.saturating_add(amount.0)))
        })
    }
}

/// All lines ever opened.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Ledger {
    lines: BTreeMap<Id, Line>,
}

impl Ledger {
    pub(crate) fn open(&mut self, line: Line) {
        self.lines.insert(line.resource_id.clone(), line);
    }

    /// Ends the running plan and starts another.
    pub(crate) fn switch(&mut self, id: &Id, at: Timestamp, plan: Plan) {
        if let Some(line) = self.lines.get_mut(id) {
            end(line, at);
            line.stretches.push(Stretch {
                plan,
                from: at,
                until: None,
            });
        }
    }

    pub(crate) fn close(&mut self, id: &Id, at: Timestamp) {
        if let Some(line) = self.lines.get_mut(id) {
            end(line, at);
        }
    }

    pub(crate) fn bill(&self, now: Timestamp) -> Bill {
        let lines: Vec<BilledLine> = self
            .lines
            .values()
            .map(|line| {
                let (hours, amount) = line.owed(now);
                BilledLine {
                    line: line.clone(),
                    running: line.running(),
                    hours,
                    amount,
                }
            })
            .collect();
        let per_hour = lines
            .iter()
            .filter_map(|line| line.line.stretches.last().filter(|stretch| stretch.until.is_none()))
            .map(|stretch| stretch.plan.per_hour())
            .sum();
        Bill {
            at: now,
            total: lines.iter().map(|line| line.amount).sum(),
            per_hour,
            lines,
        }
    }
}

fn end(line: &mut Line, at: Timestamp) {
    if let Some(stretch) = line.stretches.last_mut() {
        stretch.until.get_or_insert(at);
    }
}

/// A line with its sum.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BilledLine {
    /// What is paid.
    #[serde(flatten)]
    pub line: Line,
    /// Whether it still costs.
    pub running: bool,
    /// Paid hours so far.
    pub hours: u64,
    /// What they cost.
    #[serde(rename = "amount_micro_eur")]
    pub amount: MicroEuro,
}

/// What is owed at a moment.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Bill {
    /// When it was drawn up.
    pub at: Timestamp,
    /// All of it.
    #[serde(rename = "total_micro_eur")]
    pub total: MicroEuro,
    /// What the next hour costs.
    #[serde(rename = "per_hour_micro_eur")]
    pub per_hour: MicroEuro,
    /// Every thing ever paid for, by id.
    pub lines: Vec<BilledLine>,
}

impl Bill {
    /// The ids of what still costs.
    pub fn running(&self) -> impl Iterator<Item = &Id> {
        self.lines
            .iter()
            .filter(|line| line.running)
            .map(|line| &line.line.resource_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOURLY: Plan = Plan::Hourly {
        price: MicroEuro::from_milli(210),
        minimum_hours: 24,
    };

    #[test]
    fn started_hours_are_paid_and_the_minimum_is_owed_from_the_start() {
        let owed = |seconds| HOURLY.owed(SignedDuration::from_secs(seconds));
        assert_eq!(owed(0).0, 24);
        assert_eq!(owed(24 * 3600).0, 24);
        assert_eq!(owed(24 * 3600 + 1), (25, MicroEuro::from_milli(5250)));
        assert_eq!(owed(25 * 3600).0, 25);
    }

    #[test]
    fn started_months_are_paid() {
        let plan = Plan::Monthly {
            price: MicroEuro::from_milli(139_000),
        };
        assert_eq!(plan.owed(SignedDuration::ZERO), (730, MicroEuro::from_milli(139_000)));
        assert_eq!(plan.owed(MONTH).0, 730);
        assert_eq!(plan.owed(MONTH + SignedDuration::from_nanos(1)).0, 1460);
    }

    #[test]
    fn amounts_read_as_euros() {
        assert_eq!(MicroEuro::from_milli(5250).to_string(), "€5.250000");
    }
}
