//! Why a write failed, and who stands in the way.

use super::Target;
use crate::error::{Class, Classify};
use crate::leader::NotLeading;

/// Why a write failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object cannot be rendered.
    #[error("failed to render {what}: {problem}")]
    Render {
        /// Which object.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Other field managers own fields we want to write.
    #[error("failed to apply {what}: {}", describe(conflicts))]
    Owned {
        /// Which object.
        what: Target,
        /// Who owns which field.
        conflicts: Vec<FieldConflict>,
    },
    /// An object of that name exists and belongs to somebody else.
    #[error("refusing to touch {what}: it exists and is not owned by {owner}; rename or delete it")]
    NotOurs {
        /// Which object.
        what: Target,
        /// Who wanted to write it.
        owner: String,
    },
    /// Somebody else won every round of an optimistic update.
    #[error("failed to update {what}: {attempts} attempts in a row met another writer")]
    Contended {
        /// Which object.
        what: Target,
        /// How often it was tried.
        attempts: u32,
    },
    /// We do not lead.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// The API server refused or could not be reached.
    #[error("failed to {verb} {what}: {}", brief(source))]
    Request {
        /// What was attempted.
        verb: &'static str,
        /// On which object.
        what: Target,
        /// Why it failed.
        source: Box<kube::Error>,
    },
}

/// A field that somebody else owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldConflict {
    /// The other field manager.
    pub manager: String,
    /// The field, as the API server names it.
    pub field: String,
}

fn describe(conflicts: &[FieldConflict]) -> String {
    let each: Vec<String> = conflicts
        .iter()
        .map(|c| format!("{} is owned by {:?}", c.field, c.manager))
        .collect();
    each.join(", ")
}

/// What the API server said, without the rest of its answer.
fn brief(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => format!("{} (HTTP {})", status.message, status.code),
        other => other.to_string(),
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Render { .. } => Class::Invalid,
            // The other manager has to let go first; asking at once again would only repeat the answer.
            Self::Owned { .. } | Self::NotOurs { .. } | Self::NotLeading(_) => Class::Transient,
            Self::Contended { .. } => Class::Conflict,
            Self::Request { source, .. } => source.class(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Render { .. } => "RenderFailed",
            Self::Owned { .. } => "FieldOwnedByAnother",
            Self::NotOurs { .. } => "NameTaken",
            Self::Contended { .. } => "Conflict",
            Self::NotLeading(_) => "NotLeading",
            Self::Request { source, .. } => source.reason(),
        }
    }
}

/// Whether an undeclared field may be behind a failed apply. Only a guess by code: it decides whether a dry run is worth
/// making, and the dry run decides the rest.
pub(super) fn maybe_undeclared(error: &Error) -> bool {
    matches!(error, Error::Request { source, .. }
        if matches!(&**source, kube::Error::Api(status) if matches!(status.code, 400 | 422 | 500)))
}

/// The owners of fields, when that is why an apply was refused.
pub(super) fn conflicts(error: &kube::Error) -> Option<Vec<FieldConflict>> {
    let kube::Error::Api(status) = error else { return None };
    let causes = &status.details.as_ref()?.causes;
    let found: Vec<FieldConflict> = causes
        .iter()
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| FieldConflict {
            // The manager is given only inside the sentence: conflict with "name" using v1. It is shown to people, nothing is
            // decided by it; if the sentence changes, they read all of it.
            manager: cause.message.split('"').nth(1).unwrap_or(&cause.message).to_owned(),
            field: cause.field.clone(),
        })
        .collect();
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    #[test]
    fn a_conflict_names_the_other_manager_and_the_field() {
        let cause = StatusCause {
            reason: "FieldManagerConflict".into(),
            message: "conflict with \"kubectl-edit\" using v1".into(),
            field: ".data.key".into(),
        };
        let details = StatusDetails {
            name: "x".into(),
            group: String::new(),
            kind: "configmaps".into(),
            uid: String::new(),
            causes: vec![cause],
            retry_after_seconds: 0,
        };
        let status = Status::failure("Apply failed with 1 conflict", "Conflict")
            .with_code(409)
            .with_details(details);
        let found = conflicts(&kube::Error::Api(status.boxed())).unwrap();
        assert_eq!(
            found,
            [FieldConflict {
                manager: "kubectl-edit".into(),
                field: ".data.key".into()
            }]
        );
        assert_eq!(describe(&found), ".data.key is owned by \"kubectl-edit\"");
        let plain = Status::failure("the object has been modified", "Conflict").with_code(409);
        assert_eq!(conflicts(&kube::Error::Api(plain.boxed())), None);
    }
}
