//! Every Kubernetes kind, name and constant of Russet, typed once.
//!
//! This crate is what the rest of the workspace agrees on: the custom resources, the labels and annotations that
//! travel between components, the condition types and their reasons. It has no client and no runtime, so a controller,
//! a command line and a test can all depend on it for the price of a few data types.
//!
//! Three rules shape the types:
//!
//! 1. **A field is never newly required.** Cluster API clones machine templates that may be months old, and Helm rolls
//!    back to objects written by older charts. Whatever an older release could write must still be admitted, unpruned.
//!    `fixtures/` holds such objects, `schema-history/` the schemas they were written under; `cargo run -p xtask -- check-crds`
//!    compares the two with what this crate generates.
//! 2. **What the API server admits, the types can read.** Closed sets that only we write are Rust enums and schema enums;
//!    everything an older release may have written freely is text on the wire and becomes a newtype of [`values`]
//!    through an accessor that can fail.
//! 3. **Doc comments are user documentation.** They become the descriptions in the CRDs, `kubectl explain` and
//!    `docs/reference/`, so they speak to the person who writes the YAML.

#![expect(
    clippy::duplicated_attributes,
    reason = "the columns of `#[kube(printcolumn(...))]` share types and priorities"
)]

mod open_enum;
mod schema;

pub mod annotations;
pub mod apple_silicon_cluster;
pub mod apple_silicon_machine;
pub mod audiences;
pub mod conditions;
pub mod crds;
pub mod elastic_metal_machine;
pub mod events;
pub mod finalizers;
pub mod groups;
pub mod instance_machine;
pub mod kura_instance;
pub mod labels;
pub mod machine;
pub mod ports;
pub mod runner_pool;
pub mod taints;
pub mod values;

pub use apple_silicon_cluster::{
    ScalewayAppleSiliconCluster, ScalewayAppleSiliconClusterSpec, ScalewayAppleSiliconClusterStatus,
};
pub use apple_silicon_machine::{
    ScalewayAppleSiliconMachine, ScalewayAppleSiliconMachineSpec, ScalewayAppleSiliconMachineStatus,
    ScalewayAppleSiliconMachineTemplate, ScalewayAppleSiliconMachineTemplateSpec,
};
pub use conditions::{Condition, ConditionStatus};
pub use crds::all_crds;
pub use elastic_metal_machine::{
    ScalewayElasticMetalMachine, ScalewayElasticMetalMachineSpec, ScalewayElasticMetalMachineStatus,
    ScalewayElasticMetalMachineTemplate, ScalewayElasticMetalMachineTemplateSpec,
};
pub use instance_machine::{
    ScalewayInstanceMachine, ScalewayInstanceMachineSpec, ScalewayInstanceMachineStatus,
    ScalewayInstanceMachineTemplate, ScalewayInstanceMachineTemplateSpec,
};
pub use kura_instance::{KuraInstance, KuraInstanceSpec, KuraInstanceStatus};
pub use runner_pool::{RunnerPool, RunnerPoolSpec, RunnerPoolStatus};
