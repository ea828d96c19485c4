//! Bodies on their way into the store.
//!
//! A small body is read into memory and joins a group commit; a large one is streamed once, straight into the extent the store
//! reserved for it. Either way the bytes it holds in memory are reserved from the [budget](crate::budget) first.

use super::body::Body;
use super::check::Check;
use super::head::Method;
use super::reply::{Error, Reply};
use super::route::Route;
use super::routes;
use super::service::Service;
use crate::analytics::Action;
use crate::blob::{Blobs, Kind, Put, Target};
use crate::budget::Overloaded;
use crate::metrics::Outcome;
use crate::multipart::Upload;
use crate::tools::Event;
use crate::usage::{Direction, Protocol};
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
    /// An action result.
    Action(Box<routes::bazel::Result>),
    /// No body is wanted: what an action result refers to is looked for on disk.
    Look(Box<routes::bazel::Look>),
    /// What a Go action produced.
    Go(Box<routes::go::Output>),
    /// The hashes Turborepo asks about, in that namespace.
    Query {
        /// The namespace.
        namespace: Box<str>,
    },
    /// A body nobody will ever read: taken, because refusing it would upset the client, and dropped.
    Discard {
        /// Whose it is.
        route: Route,
        /// The namespace.
        namespace: Box<str>,
    },
    /// No body is wanted, but the work takes time: a namespace is emptied.
    Clean {
        /// The namespace.
        namespace: Box<str>,
    },
}

impl Receive {
    /// The route the body comes on.
    fn route(&self) -> Route {
        match self {
            Self::Blob(incoming) => incoming.route,
            Self::KeyValue { .. } => Route::KeyValuePut,
            Self::Part { .. } => Route::ModulePart,
            Self::Complete { .. } => Route::ModuleComplete,
            Self::Action(_) | Self::Look(_) => Route::BazelAction,
            Self::Go(_) => Route::Go,
            Self::Query { .. } => Route::TurboQuery,
            Self::Discard { route, .. } => *route,
            Self::Clean { .. } => Route::Clean,
        }
    }
}

/// A blob that is being sent to us.
#[derive(Debug)]
pub struct Incoming {
    /// On which route it comes, which decides how refusals are worded.
    pub route: Route,
    /// Where it goes.
    pub target: Target,
    /// As what it is counted.
    pub counted: Kind,
    /// Most bytes accepted.
    pub limit: u64,
    /// Status if it is new.
    pub created: u16,
    /// Status if it was there.
    pub existing: u16,
    /// What happens to a body beyond the limit.
    pub oversize: Oversize,
    /// What must be true of the body.
    pub check: Check,
    /// What is stored in front of it.
    pub envelope: Box<[u8]>,
}

/// What happens to a body beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oversize {
    /// 413.
    Refuse,
    /// Taken like any other, and not stored.
    Drop,
}

impl Service {
    /// Reads the body and does what it is for.
    pub async fn receive<B: Body>(&self, receive: Receive, body: &mut B) -> Reply {
        let route = receive.route();
        let result = match receive {
            Receive::Blob(incoming) => self.blob(incoming, body).await,
            Receive::KeyValue { namespace } => routes::keyvalue::store(self, &namespace, body).await,
            Receive::Part { upload, number } => routes::module::store_part(self, &upload, number, body).await,
            Receive::Complete { upload } => routes::module::finish(self, upload, body).await,
            Receive::Action(result) => routes::bazel::store(self, *result, body).await,
            Receive::Look(look) => return routes::bazel::look(self, *look).await,
            Receive::Go(output) => routes::go::store(self, *output, body).await,
            Receive::Query { namespace } => routes::turborepo::answer(self, &namespace, body).await,
            Receive::Discard { route, namespace } => self.discard(route, &namespace, body).await,
            Receive::Clean { namespace } => routes::clean::run(self, &namespace).await,
        };
        result.unwrap_or_else(|error| self.refuse(route, route.asked(Method::Post), error))
    }

    async fn blob<B: Body>(&self, incoming: Incoming, body: &mut B) -> Result<Reply, Error> {
        let (route, oversize) = (incoming.route, incoming.oversize);
        let (created, existing) = (incoming.created, incoming.existing);
        let namespace = incoming.target.namespace.clone();
        match self.take_blob(incoming, body).await {
            Ok(Put::Created) => Ok(Reply::empty(created)),
            Ok(Put::Existing) => Ok(Reply::empty(existing)),
            Err(Error::TooLarge(_)) if oversize == Oversize::Drop => self.discard(route, &namespace, body).await,
            Err(error) => Err(error),
        }
    }

    /// Stores a blob and counts it.
    pub(super) async fn take_blob<B: Body>(&self, incoming: Incoming, body: &mut B) -> Result<Put, Error> {
        let (route, target, counted) = (incoming.route, incoming.target.clone(), incoming.counted);
        match self.store_blob(incoming, body).await {
            Ok((Put::Created, length)) => {
                self.stored(counted, &target, length);
                self.count(route, &target.namespace, Event::Stored, length);
                Ok(Put::Created)
            }
            Ok((Put::Existing, _)) => {
                self.shard.write(counted, Outcome::Known, 0);
                self.count(route, &target.namespace, Event::Known, 0);
                Ok(Put::Existing)
            }
            Err(error) => {
                self.shard.write(counted, Outcome::Error, 0);
                Err(error)
            }
        }
    }

    async fn discard<B: Body>(&self, route: Route, namespace: &str, body: &mut B) -> Result<Reply, Error> {
        let _held = self.shared.budget.reserve(WINDOW).await?;
        loop {
            let count = body.chunk().await?.len();
            if count == 0 {
                self.count(route, namespace, Event::Dropped, 0);
                return Ok(Reply::empty(200));
            }
            body.consume(count);
        }
    }

    /// Counts a blob that is new. One that was there before is not billed.
    pub fn stored(&self, counted: Kind, target: &Target, length: u64) {
        self.shard.write(counted, Outcome::Ok, length);
        self.shared
            .usage
            .add(Direction::Upload, Protocol::Http, counted, &target.namespace, length);
        self.shared
            .analytics
            .tell(Action::Upload, counted, &target.namespace, &target.key, length);
    }

    async fn store_blob<B: Body>(&self, incoming: Incoming, body: &mut B) -> Result<(Put, u64), Error> {
        let shared = &self.shared;
        let Incoming {
            target,
            limit,
            check,
            envelope,
            ..
        } = incoming;
        let announced = body.remaining();
        if announced.is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let small_limit = usize::try_from(limit).unwrap_or(SMALL).min(SMALL);
        let mut start = BytesMut::new();
        let mut checking = check.begin(announced)?;
        if announced.is_none_or(|length| length <= SMALL as u64) {
            let _held = shared.budget.reserve(announced.unwrap_or(SMALL as u64)).await?;
            start.extend_from_slice(&envelope);
            if body.collect(&mut start, small_limit + envelope.len()).await? {
                let received = start.get(envelope.len()..).unwrap_or_default();
                checking.update(received);
                checking.finish()?;
                let length = received.len() as u64;
                let put = shared.blobs.put(&target, start.into()).await?;
                return Ok((put, length));
            }
        } else {
            start.extend_from_slice(&envelope);
        }
        if shared.pressure.refuses_streams() {
            return Err(Overloaded.into());
        }
        let _held = shared.budget.reserve(WINDOW).await?;
        let whole = announced.map(|length| length + envelope.len() as u64);
        let mut writer = shared.blobs.writer(&target, whole)?;
        writer.write(&start)?;
        let received = start.get(envelope.len()..).unwrap_or_default();
        checking.update(received);
        let mut length = received.len() as u64;
        drop(start);
        loop {
            let chunk = body.chunk().await?;
            let count = chunk.len();
            if count == 0 {
                break;
            }
            length += count as u64;
            if length > limit {
                return Err(too_large());
            }
            checking.update(chunk);
            writer = shared.blobs.pace().write(writer, chunk).await?;
            body.consume(count);
        }
        // A writer that is dropped leaves nothing behind.
        checking.finish()?;
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
