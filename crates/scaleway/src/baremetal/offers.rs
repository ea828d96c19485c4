//! What can be ordered.

use serde::Deserialize;

use crate::ids::OfferId;
use crate::money::Money;
use crate::wire::null_is_default;

words! {
    /// How many Scaleway has.
    pub enum Stock {
        /// None.
        Empty = "empty",
        /// Few.
        Low = "low",
        /// Enough.
        Available = "available",
    }
}

words! {
    /// How a server is paid for. A name has an offer of each kind, with ids of their own.
    pub enum Subscription {
        /// By the hour.
        Hourly = "hourly",
        /// By the month, with a fee at the start.
        Monthly = "monthly",
    }
}

/// Hardware, and how it is paid for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Offer {
    /// Its id.
    pub id: OfferId,
    /// Such as `EM-B220E-NVME`; an hourly and a monthly offer share it.
    pub name: String,
    /// How many Scaleway has.
    pub stock: Stock,
    /// How it is paid for.
    pub subscription_period: Subscription,
    /// It can be ordered at all.
    #[serde(default = "yes")]
    pub enable: bool,
    /// What an hour costs.
    #[serde(default)]
    pub price_per_hour: Option<Money>,
    /// What a month costs.
    #[serde(default)]
    pub price_per_month: Option<Money>,
    /// What is paid once.
    #[serde(default)]
    pub fee: Option<Money>,
    /// The images it cannot run.
    #[serde(default, deserialize_with = "null_is_default")]
    pub incompatible_os_ids: Vec<String>,
}

fn yes() -> bool {
    true
}

impl Offer {
    /// What an hour costs in euros.
    pub fn euros_per_hour(&self) -> Option<f64> {
        self.price_per_hour.as_ref()?.euros()
    }
}

/// Which offers. Everything named here must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferFilter {
    /// Exactly this name.
    pub name: Option<String>,
    /// Paid for like this.
    pub subscription: Option<Subscription>,
}
