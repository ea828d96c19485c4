//! The name and the tags of a thing, as a PATCH changes them: what is not given stays.

use crate::refusal::Reason;
use crate::strict::Fields;

/// What a PATCH says about name and tags.
pub(crate) struct Labels {
    name: Option<String>,
    tags: Option<Vec<String>>,
}

impl Labels {
    pub(crate) fn read(fields: &mut Fields) -> Self {
        Self {
            name: fields.text("name"),
            tags: fields.some_texts("tags"),
        }
    }

    /// For what cannot be without a name.
    pub(crate) fn read_named(fields: &mut Fields) -> Self {
        let labels = Self::read(fields);
        if labels.name.as_deref() == Some("") {
            fields.refuse("name", Reason::Constraint, "cannot be empty");
        }
        labels
    }

    pub(crate) fn put(self, name: &mut String, tags: &mut Vec<String>) {
        if let Some(new) = self.name {
            *name = new;
        }
        if let Some(new) = self.tags {
            *tags = new;
        }
    }
}
