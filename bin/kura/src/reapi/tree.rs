//! `GetTree`

use super::actions::read;
use super::body::Body;
use super::call::Call;
use super::message::{self, begin, seal};
use super::status::Status;
use crate::blob::Blobs;
use bytes::Bytes;
use hyper::body::Incoming;
use prost::Message as _;
use russet_identity::Access;
use russet_reapi::proto::reapi;
use russet_reapi::result::{Node, of_directory};
use russet_reapi::wire::put_bytes;
use russet_reapi::{Digest, Function};
use std::collections::{HashSet, VecDeque};
use tokio::sync::mpsc;

/// Directories of one message, unless the client wants fewer.
const PAGE: usize = 1000;
/// Bytes of one message, about: clients accept 4 MiB.
const BYTES: usize = 1 << 20;
/// Most directories of one tree.
const MOST: usize = 1 << 20;

/// Sends a directory and all below it, breadth first, each once. A page token is the number of directories already sent: the
/// order is the same every time.
pub(super) async fn get(call: &Call<'_>, incoming: Incoming) -> Result<Body, Status> {
    let shared = &call.service.shared;
    let message = message::only(incoming, 64 * 1024, call.stall, &shared.budget).await?;
    let request =
        reapi::GetTreeRequest::decode(message.bytes).map_err(|_| Status::invalid("the message cannot be decoded"))?;
    let function = u64::try_from(request.digest_function).ok().and_then(Function::of_value);
    let function = function.ok_or(russet_reapi::wire::BadDigest::Function)?;
    let root = request
        .root_digest
        .ok_or_else(|| Status::invalid("there is no root_digest"))?
        .encode_to_vec();
    let root = russet_reapi::wire::RawDigest::read(&root)?.digest(function)?;
    let page = usize::try_from(request.page_size).map_err(|_| Status::invalid("page_size must not be negative"))?;
    let skip = match request.page_token.as_str() {
        "" => 0,
        token => token
            .parse()
            .map_err(|_| Status::invalid("this page_token is not ours"))?,
    };
    let scope = call.scope(&request.instance_name, Access::Read).await?;
    let (blobs, namespace) = (shared.blobs.clone(), Box::<str>::from(scope.namespace()));
    let held = shared.budget.reserve(2 * BYTES as u64).await?;
    let (send, receive) = mpsc::channel(2);
    let walk = Walk {
        blobs,
        namespace,
        page: if page == 0 { PAGE } else { page.min(PAGE) },
        send,
    };
    // The root is looked for before the answer begins, so that its absence is a plain error.
    if !walk.blobs.has(&walk.namespace, &root)? {
        return Err(Status::not_found("the root directory is not here"));
    }
    tokio::task::spawn_blocking(move || {
        let _held = held;
        if let Err(status) = walk.run(root, skip) {
            // Whoever asked may be gone.
            let _ = walk.send.blocking_send(Err(status));
        }
    });
    Ok(Body::Stream(receive))
}

struct Walk {
    blobs: Blobs,
    namespace: Box<str>,
    page: usize,
    send: mpsc::Sender<Result<Bytes, Status>>,
}

impl Walk {
    fn run(&self, root: Digest, skip: usize) -> Result<(), Status> {
        let mut seen = HashSet::from([root]);
        let mut queue = VecDeque::from([root]);
        let (mut number, mut count) = (0_usize, 0);
        let mut out = begin(0);
        while let Some(digest) = queue.pop_front() {
            // What is not here is left out, and so is all below it.
            let Some(bytes) = read(&self.blobs, &self.namespace, &digest)? else {
                continue;
            };
            of_directory(&bytes, |node| {
                if let Node::Directory(raw) = node
                    && let Ok(child) = raw.digest(digest.function)
                    && seen.insert(child)
                {
                    queue.push_back(child);
                }
            })
            .map_err(|_| Status::invalid("a blob of the tree is not a directory"))?;
            if seen.len() > MOST {
                return Err(Status::exhausted("the tree has too many directories"));
            }
            number += 1;
            if number <= skip {
                continue;
            }
            put_bytes(&mut out, 1, &bytes);
            count += 1;
            if count >= self.page || out.len() >= BYTES {
                if !queue.is_empty() {
                    put_bytes(&mut out, 2, number.to_string().as_bytes());
                }
                if !self.send(&mut out) {
                    return Ok(());
                }
                count = 0;
            }
        }
        if count > 0 {
            self.send(&mut out);
        }
        Ok(())
    }

    /// Sends a message; `false` when nobody wants it any more.
    fn send(&self, out: &mut Vec<u8>) -> bool {
        let message = seal(std::mem::replace(out, begin(0)), 0);
        self.send.blocking_send(Ok(message)).is_ok()
    }
}
