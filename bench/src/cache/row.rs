//! A row of the table: one kind of request, asked of every system in turn.
//!
//! Rows know nothing of how they are timed, and the timing knows nothing of protocols: a row of another protocol implements
//! [`Row`] with a client of its own and joins the list in [`all`].

use super::key::Bodies;
use super::loader::Load;
use super::system::System;
use anyhow::Result;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Target {
    /// Processor time per request, as a multiple of nginx's.
    pub(crate) ratio: Option<f64>,
    /// Requests per second at least.
    pub(crate) rate: Option<f64>,
}

pub(crate) trait Row {
    /// For `--only`.
    fn name(&self) -> &str;

    /// For the table.
    fn title(&self) -> String;

    fn target(&self) -> Target;

    /// What nginx is asked instead, where it cannot be asked the same; then its cost is the unit of the row.
    fn unit(&self) -> Option<&'static str> {
        None
    }

    /// Whether the system can be asked this at all.
    fn suits(&self, _system: &System) -> bool {
        true
    }

    /// Stores what is going to be read, and reads it once.
    fn prepare(&self, system: &System, bodies: &Bodies) -> Result<()>;

    /// The measured part. `round` counts from 0; new keys of one round are never those of another.
    fn drive(&self, system: &System, round: u32, bodies: &Bodies) -> Result<Load>;

    /// What to remove when the row is done.
    fn spaces(&self, rounds: u32) -> Vec<String>;
}

/// All rows, in the order of the table.
pub(crate) fn all(quick: bool) -> Vec<Box<dyn Row>> {
    let http = super::http::rows(quick).into_iter();
    let reapi = super::reapi::rows(quick).into_iter();
    http.map(|row| Box::new(row) as Box<dyn Row>)
        .chain(reapi.map(|row| Box::new(row) as Box<dyn Row>))
        .collect()
}
