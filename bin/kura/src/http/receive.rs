//! Bodies on their way into the store.
//!
//! A small body is read into memory and joins a group commit; a large one is streamed once, straight into the extent the store
//! reserved for it. Either way the bytes it holds in memory are reserved from the [budget](crate::budget) first.

use super::body::Body;
use super::reply::{Error, Reply};
use super::routes;
use super::service::Service;
use crate::blob::{Blobs, Kind, Put, Target};
use crate::metrics::Outcome;
use crate::multipart::Upload;
use crate::usage::Direction;
use bytes::BytesMut;
use std::sync::Arc;

/// Bodies up to this size are held in memory.
const SMALL: usize = 128 * 1024;
/// What a streamed body holds in memory at a time.
const WINDOW: u64 = 512 * 1024;

/// A body that is wanted, and what for.
#[derive(Debug)]
pub enum Receive {
    /// Becomes a blob.
    Blob(Incoming),
    /// A key-value document for that namespace.
    KeyValue {
        /// The namespace.
        namespace: Box<str>,
    },
    /// A part of an upload.
    Part {
        /// The upload.
        upload: Arc<Upload>,
        /// Which part.
        number: u16,
    },
    /// The list of parts that ends an upload.
    Complete {
        /// The upload.
        upload: Arc<Upload>,
    },
    /// No body is wanted, but the work takes time: a namespace is emptied.
    Clean {
        /// The namespace.
        namespace: Box<str>,
    },
}

/// A blob that is being sent to us.
#[derive(Debug)]
pub struct Incoming {
    /// Where it goes.
    pub target: Target,
    /// Most bytes accepted.
    pub limit: u64,
    /// Status if it is new.
    pub created: u16,
    /// Status if it was there.
    pub existing: u16,
}

impl Service {
    /// Reads the body and does what it is for.
    pub async fn receive<B: Body>(&self, receive: Receive, body: &mut B) -> Reply {
        let result = match receive {
            Receive::Blob(incoming) => self.blob(incoming, body).await,
            Receive::KeyValue { namespace } => routes::keyvalue::store(self, &namespace, body).await,
            Receive::Part { upload, number } => routes::module::store_part(self, &upload, number, body).await,
            Receive::Complete { upload } => routes::module::finish(self, upload, body).await,
            Receive::Clean { namespace } => routes::clean::run(self, &namespace).await,
        };
        result.unwrap_or_else(Reply::from)
    }

    async fn blob<B: Body>(&self, incoming: Incoming, body: &mut B) -> Result<Reply, Error> {
        let kind = incoming.target.kind;
        match self.store_blob(&incoming, body).await {
            Ok((Put::Created, length)) => {
                self.stored(&incoming.target, length);
                Ok(Reply::empty(incoming.created))
            }
            Ok((Put::Existing, _)) => {
                self.shard.write(kind, Outcome::Known, 0);
                Ok(Reply::empty(incoming.existing))
            }
            Err(error) => {
                self.shard.write(kind, Outcome::Error, 0);
                Err(error)
            }
        }
    }

    /// Counts a blob that is new. One that was there before is not billed.
    pub fn stored(&self, target: &Target, length: u64) {
        self.shard.write(target.kind, Outcome::Ok, length);
        self.shared
            .usage
            .add(Direction::Upload, target.kind, &target.namespace, length);
    }

    async fn store_blob<B: Body>(&self, incoming: &Incoming, body: &mut B) -> Result<(Put, u64), Error> {
        let shared = &self.shared;
        let announced = body.remaining();
        if announced.is_some_and(|length| length > incoming.limit) {
            return Err(too_large());
        }
        let small_limit = usize::try_from(incoming.limit).unwrap_or(SMALL).min(SMALL);
        let mut start = BytesMut::new();
        if announced.is_none_or(|length| length <= SMALL as u64) {
            let _held = shared.budget.reserve(announced.unwrap_or(SMALL as u64)).await?;
            if body.collect(&mut start, small_limit).await? {
                let length = start.len() as u64;
                let put = shared.blobs.put(&incoming.target, start.into()).await?;
                return Ok((put, length));
            }
        }
        let _held = shared.budget.reserve(WINDOW).await?;
        let mut writer = shared.blobs.writer(&incoming.target, announced)?;
        writer.write(&start)?;
        let mut length = start.len() as u64;
        drop(start);
        loop {
            let chunk = body.chunk().await?;
            let count = chunk.len();
            if count == 0 {
                break;
            }
            length += count as u64;
            if length > incoming.limit {
                return Err(too_large());
            }
            writer.write(chunk)?;
            body.consume(count);
        }
        Ok((Blobs::commit(writer).await?, length))
    }
}

fn too_large() -> Error {
    Error::TooLarge("Request body exceeded allowed size")
}

/// The target of a request whose namespace is known.
pub fn target(kind: Kind, namespace: &str, key: &[u8]) -> Target {
    Target {
        kind,
        namespace: namespace.into(),
        key: key.into(),
    }
}
