//! Values with a meaning, parsed once at the edge.
//!
//! Objects in the cluster hold plain text, since an older release may have written anything there. A spec hands out these
//! types through accessors that can fail; past that point nobody has to wonder whether a string is a zone.

mod cidr;
mod dns_label;
mod mbps;
mod pool_prefix;
mod provider_id;
mod server_id;
mod text;
mod zone;

pub use cidr::CidrBlock;
pub use dns_label::{AccountHandle, CacheRegion, FleetName, TenantId};
pub use mbps::Mbps;
pub use pool_prefix::PoolPrefix;
pub use provider_id::{ProviderId, ProviderKind};
pub use server_id::ServerId;
pub use zone::{Region, Zone};

/// A text that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a valid {what}: {rule}")]
pub struct Invalid {
    /// What the text should have been.
    pub what: &'static str,
    /// The text.
    pub value: String,
    /// What would be valid.
    pub rule: &'static str,
}

impl Invalid {
    pub(crate) fn new(what: &'static str, value: impl Into<String>, rule: &'static str) -> Self {
        Self {
            what,
            value: value.into(),
            rule,
        }
    }
}

/// Text that is there and not empty: an empty value in a spec has always meant "not set".
pub(crate) fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|t| !t.is_empty())
}
