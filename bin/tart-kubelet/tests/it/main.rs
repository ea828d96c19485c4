//! The agent as launchd starts it, against a real API server with the Node authorizer and NodeRestriction.

mod flags;
mod harness;
mod joining;
mod refusing;
mod staying;
mod support;
mod way;
