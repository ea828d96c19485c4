//! Macs under real Cluster API core: the contract rule by rule, and the life of Machines from adoption to the pool.
//!
//! All tests share one cluster, one provider and one emulated account; each has a namespace and a pool of its own. Rules are named as in Cluster API's
//! contract for infrastructure providers, version v1beta2.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod bad_input;
mod cluster_rules;
mod kinds;
mod lifecycle;
mod machine_rules;
mod rights;
