//! First lines that are longer than the `http` crate can hold.
//!
//! A command comes in the query: `kubectl exec -- sh -c "$(cat script)"` makes a line of a hundred kilobytes, which a stock kubelet takes
//! and an [`http::Uri`] does not. The query of such a line is taken out before hyper sees it and put back when the request is performed.
//! Rights are decided by the path, which stays where it is. Only the first request of a connection is read so: every upgrade comes over a
//! connection of its own.

use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// As much as a stock kubelet takes.
const MOST: usize = 1024 * 1024;
/// What an [`http::Uri`] surely holds, with room for the method.
const PLAIN: usize = 60 * 1024;
/// Stands where the query was.
const ELSEWHERE: &str = "query=elsewhere";

/// The query of the first request, if it was taken out.
#[derive(Debug, Default)]
pub(super) struct Set(Mutex<Option<String>>);

impl Set {
    pub(super) fn aside(query: Option<String>) -> Self {
        Self(Mutex::new(query))
    }

    /// The query of a request, given what is left of it.
    pub(super) fn whole(&self, left: Option<&str>) -> Option<String> {
        let aside = || self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let taken = (left == Some(ELSEWHERE)).then(aside).flatten();
        taken.or_else(|| left.map(str::to_owned))
    }
}

/// Reads the first line, and what came with it. Says what hyper is to read in its place, and the query if it was too long for it.
pub(super) async fn first(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(Bytes, Option<String>)> {
    let mut read = BytesMut::with_capacity(4096);
    let mut looked = 0;
    while read.len() < MOST && stream.read_buf(&mut read).await? > 0 {
        let fresh = read.get(looked..).unwrap_or_default();
        if let Some(end) = fresh.iter().position(|byte| *byte == b'\n') {
            return Ok(shortened(read.freeze(), looked + end));
        }
        looked = read.len();
    }
    // No request at all, which hyper has an answer for.
    Ok((read.freeze(), None))
}

/// `read` begins with a line that ends at `end`.
fn shortened(read: Bytes, end: usize) -> (Bytes, Option<String>) {
    if end <= PLAIN {
        return (read, None);
    }
    let parts = || {
        let line = str::from_utf8(read.get(..end)?).ok()?;
        let (before, after) = line.split_once('?')?;
        let (query, version) = after.rsplit_once(' ')?;
        let mut left = BytesMut::from(format!("{before}?{ELSEWHERE} {version}").as_bytes());
        left.extend_from_slice(read.get(end..)?);
        Some((left.freeze(), Some(query.to_owned())))
    };
    parts().unwrap_or((read, None))
}

/// A stream of which the beginning was read.
#[derive(Debug)]
pub(super) struct Begun<S> {
    pub(super) read: Bytes,
    pub(super) rest: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.rest).poll_read(cx, buf);
        }
        let fits = self.read.len().min(buf.remaining());
        buf.put_slice(self.read.get(..fits).unwrap_or_default());
        self.read.advance(fits);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.rest.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &str) -> (String, Option<String>) {
        let (bytes, query) = first(&mut text.as_bytes()).await.unwrap();
        (String::from_utf8(bytes.to_vec()).unwrap(), query)
    }

    #[tokio::test]
    async fn a_line_of_ordinary_length_stays_as_it_is() {
        let request = "POST /exec/ci/job/main?command=ls HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(read(request).await, (request.to_owned(), None));
        assert_eq!(read("no line").await, ("no line".to_owned(), None));
        assert_eq!(read("").await, (String::new(), None));
    }

    #[tokio::test]
    async fn a_long_query_is_set_aside_and_found_again_once() {
        let query = format!("command={}&output=1", "x".repeat(100_000));
        let request = format!("POST /exec/ci/job/main?{query} HTTP/1.1\r\nHost: x\r\n\r\nmore");
        let (left, taken) = read(&request).await;
        assert_eq!(
            left,
            "POST /exec/ci/job/main?query=elsewhere HTTP/1.1\r\nHost: x\r\n\r\nmore"
        );
        let set = Set::aside(taken);
        assert_eq!(set.whole(Some("command=ls")).as_deref(), Some("command=ls"));
        assert_eq!(set.whole(None), None);
        assert_eq!(set.whole(Some(ELSEWHERE)), Some(query));
        assert_eq!(set.whole(Some(ELSEWHERE)).as_deref(), Some(ELSEWHERE));
    }

    #[tokio::test]
    async fn a_long_path_and_a_line_without_an_end_are_left_to_others() {
        let path = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
        assert_eq!(read(&path).await, (path, None));
        let endless = "x".repeat(MOST + 100);
        let (left, taken) = read(&endless).await;
        assert!(taken.is_none());
        assert!(left.len() >= MOST && left.len() < 2 * MOST, "{}", left.len());
    }

    #[tokio::test]
    async fn what_was_read_comes_before_the_rest() {
        let mut stream = Begun {
            read: Bytes::from_static(b"what was "),
            rest: &b"read"[..],
        };
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "what was read");
    }
}
