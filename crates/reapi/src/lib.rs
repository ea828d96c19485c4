//! The Remote Execution API as bytes: what a build cache and its clients send each other.
//!
//! No sockets, no store, no policy. Messages that are rare are ordinary protobuf types ([`proto`]); those a server decodes by
//! the thousand have readers that borrow from the received bytes and allocate nothing per entry.
//!
//! - [`digest`]: digest functions, digests, hashing.
//! - [`name`]: resource names of ByteStream.
//! - [`wire`]: protobuf without types. [`request`]: requests read in place. [`upload`]: `WriteRequest` as a stream of events.
//! - [`result`]: what an action result, a tree or a directory refers to.
//! - [`pack`]: zstd, bounded. [`snapshot`]: the action-cache snapshot extension.
//! - `client` (feature): stubs.
//!
//! Everything that takes `&[u8]` may be fed hostile bytes: it answers with an error, in time and memory linear in its input.

pub mod digest;
pub mod name;
pub mod pack;
pub mod proto;
pub mod request;
pub mod result;
pub mod snapshot;
pub mod upload;
pub mod wire;

/// Stubs for talking to a server.
#[cfg(feature = "client")]
pub mod client {
    pub use crate::proto::bytestream::byte_stream_client::ByteStreamClient;
    pub use crate::proto::health::health_client::HealthClient;
    pub use crate::proto::reapi::action_cache_client::ActionCacheClient;
    pub use crate::proto::reapi::capabilities_client::CapabilitiesClient;
    pub use crate::proto::reapi::content_addressable_storage_client::ContentAddressableStorageClient;
    pub use tonic;
}

pub use digest::{Digest, Function};
