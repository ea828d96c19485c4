//! Sums as the API writes them.

use serde::Deserialize;

use crate::wire::null_is_default;

/// An amount: whole units and billionths.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Money {
    /// Such as `EUR`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub currency_code: String,
    /// Whole units.
    #[serde(default)]
    pub units: u32,
    /// Billionths of a unit.
    #[serde(default)]
    pub nanos: u32,
}

impl Money {
    /// The amount, if it is in euros.
    pub fn euros(&self) -> Option<f64> {
        (self.currency_code == "EUR").then(|| f64::from(self.units) + f64::from(self.nanos) / 1e9)
    }
}
