//! Conditions that the plumbing itself can tell about. Types and reasons are constants of `russet_api`.

pub use russet_api::conditions::*;

/// How many paths a message names; a pruned template may lose hundreds.
const NAMED: usize = 10;

/// Whether everything we wrote is stored. Paths come from [`crate::apply::Applied::pruned`] or
/// [`crate::apply::Synced::pruned`].
pub fn fields_stored(pruned: &[String]) -> Condition {
    if pruned.is_empty() {
        return Condition::new(types::FIELDS_STORED, true, reasons::SUCCEEDED);
    }
    fields_pruned(pruned)
}

/// The API server dropped these fields: the installed CRDs are older than this controller.
pub fn fields_pruned(paths: &[String]) -> Condition {
    let named = paths
        .iter()
        .take(NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    let more = match paths.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Condition::new(types::FIELDS_STORED, false, reasons::FIELDS_PRUNED)
        .message(format!(
            "the API server dropped {named}{more}; upgrade the CRDs (chart russet-crds)"
        ))
        .severity(Severity::Warning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pruned_field_is_named_in_the_condition() {
        let condition = fields_stored(&["spec.egress".to_owned()]);
        assert_eq!(condition.status, ConditionStatus::False);
        assert_eq!(condition.reason.as_deref(), Some(reasons::FIELDS_PRUNED));
        assert!(condition.message.unwrap().contains("spec.egress"));
        assert_eq!(fields_stored(&[]).status, ConditionStatus::True);
    }

    #[test]
    fn a_long_list_is_cut() {
        let paths: Vec<String> = (0..300).map(|index| format!("spec.f{index}")).collect();
        let message = fields_pruned(&paths).message.unwrap();
        assert!(message.contains("and 290 more") && message.len() < 300, "{message}");
    }
}
