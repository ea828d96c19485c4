//! A request body as the handlers see it: pieces, in order, borrowed from whoever read them.

use bytes::BytesMut;
use std::future::Future;

/// Why a body did not arrive whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The chunked coding (or HTTP/2 framing) was violated.
    #[error("Malformed request body")]
    Broken,
    /// No byte came for too long.
    #[error("Request body stalled")]
    Stalled,
    /// The client went away in the middle.
    #[error("Request body ended early")]
    Gone,
    /// It does not hash to what its header says.
    #[error("Content-Digest does not match the body")]
    Mismatch,
}

/// A body being received.
pub trait Body: Send {
    /// Bytes still to come, if the framing says so.
    fn remaining(&self) -> Option<u64>;

    /// The bytes at hand, waiting for some if there are none; empty at the end of the body.
    fn chunk(&mut self) -> impl Future<Output = Result<&[u8], Error>> + Send;

    /// Marks the first `count` bytes of the last chunk as used.
    fn consume(&mut self, count: usize);

    /// Appends the whole body to `into`, but stops with `false` once it would exceed `limit` bytes.
    fn collect(&mut self, into: &mut BytesMut, limit: usize) -> impl Future<Output = Result<bool, Error>> + Send {
        async move {
            loop {
                let chunk = self.chunk().await?;
                let count = chunk.len();
                if count == 0 {
                    return Ok(true);
                }
                if into.len() + count > limit {
                    return Ok(false);
                }
                into.extend_from_slice(chunk);
                self.consume(count);
            }
        }
    }
}
