//! The generated types, under shorter names, and their descriptors for reflection.

#![allow(
    clippy::pedantic,
    clippy::doc_lazy_continuation,
    missing_debug_implementations,
    unreachable_pub,
    reason = "generated code"
)]

/// The modules as their packages nest, since generated code refers to other packages by relative paths.
mod packages {
    pub mod build {
        pub mod bazel {
            pub mod remote {
                pub mod execution {
                    pub mod v2 {
                        include!(concat!(env!("OUT_DIR"), "/build.bazel.remote.execution.v2.rs"));
                    }
                }
            }
            pub mod semver {
                include!(concat!(env!("OUT_DIR"), "/build.bazel.semver.rs"));
            }
        }
    }
    pub mod google {
        pub mod bytestream {
            include!(concat!(env!("OUT_DIR"), "/google.bytestream.rs"));
        }
        pub mod rpc {
            include!(concat!(env!("OUT_DIR"), "/google.rpc.rs"));
        }
    }
    pub mod grpc {
        pub mod health {
            pub mod v1 {
                include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.rs"));
            }
        }
    }
}

/// `build.bazel.remote.execution.v2`
pub use packages::build::bazel::remote::execution::v2 as reapi;
/// `build.bazel.semver`
pub use packages::build::bazel::semver;
/// `google.bytestream`
pub use packages::google::bytestream;
/// `google.rpc`
pub use packages::google::rpc;
/// `grpc.health.v1`
pub use packages::grpc::health::v1 as health;

/// All of the above as a serialized `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
