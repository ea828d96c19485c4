//! Finalizers. Each is added before the first paid or external act for an object, and removed when all of it is undone.

/// On a [`crate::ScalewayAppleSiliconMachine`]: the Mac still has to go back to its pool.
pub const APPLE_SILICON_MACHINE: &str = "scalewayapplesilicon.cluster.x-k8s.io/finalizer";
/// On a [`crate::ScalewayElasticMetalMachine`].
pub const ELASTIC_METAL_MACHINE: &str = "scalewayelasticmetal.cluster.x-k8s.io/finalizer";
/// On a [`crate::ScalewayInstanceMachine`].
pub const INSTANCE_MACHINE: &str = "scalewayinstance.cluster.x-k8s.io/finalizer";
/// On a [`crate::KuraInstance`].
pub const KURA_INSTANCE: &str = "kurainstances.kura.tuist.dev/finalizer";
/// On a [`crate::RunnerPool`]: busy runners still have to finish.
pub const RUNNER_POOL: &str = "tuist.dev/runner-pool-drain";
/// On a Pod of a Mac: the virtual machine still has to be removed.
pub const VM_CLEANUP: &str = "tuist.dev/vm-cleanup";
