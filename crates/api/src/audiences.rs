//! For whom tokens of ServiceAccounts are.

/// Dispatch, which hands jobs to runners. A runner shows it a token of its Pod.
pub const RUNNERS_DISPATCH: &str = "tuist-runners-dispatch";
