//! Filters of the API match parts of names and do not agree on tags, and lists may show more than our project. What they let
//! through is looked at again here.

use crate::call::Endpoint;
use crate::ids::ProjectId;

/// Whether the name is exactly the wanted one, if one is wanted.
pub(crate) fn is_named(name: &str, wanted: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| name == wanted)
}

/// Whether all wanted tags are there.
pub(crate) fn has_tags(tags: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|tag| tags.contains(tag))
}

/// Leaves out rows of other projects: they are not ours to count, to use or to delete.
pub(crate) fn only_ours<T>(
    endpoint: &Endpoint,
    project: &ProjectId,
    rows: &mut Vec<T>,
    project_of: impl Fn(&T) -> &ProjectId,
) {
    let all = rows.len();
    rows.retain(|row| project_of(row) == project);
    if rows.len() < all {
        tracing::warn!(
            endpoint = endpoint.name,
            foreign = all - rows.len(),
            "the API listed things of other projects; they are left alone"
        );
    }
}
