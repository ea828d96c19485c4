//! The agent as launchd starts it, against a real API server with the Node authorizer and NodeRestriction.

#[expect(dead_code, reason = "the other tests of this package need more of it")]
mod harness;
mod joining;
mod refusing;
mod staying;
mod support;
