//! What can be found wrong with a change of a schema, and what to do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Change {
    CrdRemoved,
    NameChanged,
    ShortNameRemoved,
    CategoryRemoved,
    LabelRemoved,
    VersionRemoved,
    SubresourceRemoved,
    PropertyRemoved,
    NewlyRequired,
    TypeChanged,
    FormatChanged,
    EnumNarrowed,
    PatternChanged,
    LimitTightened,
    RuleAdded,
    DefaultChanged,
    PreserveUnknownLost,
    NullableLost,
    ListTypeChanged,
    ListMapKeysChanged,
    MapTypeChanged,
    MapClosed,
}

impl Change {
    /// What to do about it.
    fn advice(self) -> &'static str {
        match self {
            Self::CrdRemoved => "keep the kind; stored objects would become unreadable",
            Self::NameChanged => "keep the name; make a new kind beside the old one instead",
            Self::ShortNameRemoved | Self::CategoryRemoved => "keep it; scripts use it",
            Self::LabelRemoved => "keep it; Cluster API core stalls without it",
            Self::VersionRemoved => "keep the version; objects are stored in it",
            Self::SubresourceRemoved => "keep the subresource; clients write through it",
            Self::PropertyRemoved => "keep the field as optional and document that it is not used; it would be pruned",
            Self::NewlyRequired => "make the field optional and let the controller apply a default",
            Self::TypeChanged | Self::FormatChanged => "add a new field beside the old one",
            Self::EnumNarrowed => "keep the old values",
            Self::PatternChanged | Self::LimitTightened | Self::RuleAdded => {
                "loosen it, or report the problem as a condition"
            }
            Self::DefaultChanged => "keep the default; objects that leave the field out would change their meaning",
            Self::PreserveUnknownLost | Self::MapClosed => "keep it; unknown fields would be pruned",
            Self::NullableLost => "keep it; objects with an explicit null would be refused",
            Self::ListTypeChanged | Self::ListMapKeysChanged | Self::MapTypeChanged => {
                "keep it; it decides who owns which entry, and whether duplicates are refused"
            }
        }
    }
}

/// One change that could hurt a stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) crd: String,
    pub(crate) path: String,
    pub(crate) change: Change,
    pub(crate) detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = serde_json::to_value(self.change).ok();
        let change = change.as_ref().and_then(|c| c.as_str()).unwrap_or_default();
        let path = if self.path.is_empty() {
            "(the CRD itself)"
        } else {
            &self.path
        };
        write!(
            f,
            "{} {path}\n  {change}: {}\n  {}",
            self.crd,
            self.detail,
            self.change.advice()
        )
    }
}
