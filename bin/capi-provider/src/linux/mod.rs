//! Linux cache nodes: `ScalewayInstanceMachine` and `ScalewayElasticMetalMachine`.
//!
//! Both kinds are decided about by one pure function, [`decide`], and worked by one shell, [`machine`].
//!
//! ```text
//!   object, Machine, Cluster, Node ──view──▶ decide::Machine ─┐
//!   zones, server, network, catalog, IPAM ──look────────────▶ decide ─▶ act   one write to Kubernetes
//!                                                               │   ├──▶ fly   one call to Scaleway, written down before and after
//!                                                               └───┴──▶ rest  conditions for people, and when to look again
//!   pool ◀── act: what is done over SSH
//! ```

pub mod call;
pub mod cloud;
pub mod decide;
pub mod hosts;
pub mod journal;
pub mod kind;
mod local_volumes;
pub mod machine;
pub mod metrics;
pub mod plan;
pub(crate) mod provider;
pub mod report;
pub mod script;
pub mod server;
pub mod sightings;
pub mod situation;
pub mod spend;
pub mod wanted;
pub mod zones;
