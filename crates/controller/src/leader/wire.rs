//! The fence at the wire: after the lease has passed, not one more byte leaves this process.
//!
//! [`Fence`](super::Fence) looks before a request enters the client. Between that look and the system call lie the client's own queue and its
//! connection task, and a process can be paused (SIGSTOP, a frozen VM) in that gap: woken up after the lease has passed, it would still send what
//! it had queued. So the socket itself looks once more, at the last moment there is.
//!
//! What remains is a pause between this look and the system call behind it, a few instructions; nothing short of a fencing token at the
//! server could close that.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::TryFutureExt as _;
use futures::future::MapOk;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tower::{BoxError, Service, ServiceBuilder};

use super::Leadership;

/// A client that writes only while this process leads; see the module documentation and [`super::Fence`].
///
/// Built by hand because the connector has to be ours. A cluster behind a proxy is reached through the client library's own
/// connectors, with the fence before the client only.
pub(crate) fn client(config: Config, leadership: &Leadership) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        return Ok(ClientBuilder::try_from(config)?.with_layer(&leadership.fence()).build());
    }
    let mut tcp = HttpConnector::new();
    // TLS is the next layer's business.
    tcp.enforce_http(false);
    let fenced = Connector {
        inner: tcp,
        leadership: leadership.clone(),
    };
    let mut connector = hyper_timeout::TimeoutConnector::new(config.rustls_https_connector_with_connector(fenced)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let client: HyperClient<_, Body> = HyperClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(leadership.fence())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// Connects like the connector it wraps, and fences what comes out.
#[derive(Debug, Clone)]
struct Connector<C> {
    inner: C,
    leadership: Leadership,
}

impl<C> Service<Uri> for Connector<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
{
    type Response = Fenced<C::Response>;
    type Error = C::Error;
    type Future = MapOk<C::Future, Box<dyn FnOnce(C::Response) -> Fenced<C::Response> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let leadership = self.leadership.clone();
        self.inner
            .call(uri)
            .map_ok(Box::new(move |io| Fenced { io, leadership }))
    }
}

/// A connection that breaks instead of sending anything once the lease has passed.
#[derive(Debug)]
struct Fenced<T> {
    io: T,
    leadership: Leadership,
}

impl<T: Unpin> Fenced<T> {
    fn open(&mut self) -> io::Result<Pin<&mut T>> {
        if self.leadership.has_ended() {
            let why = "the Lease has passed, so nothing is sent any more";
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
        }
        Ok(Pin::new(&mut self.io))
    }
}

impl<T: Write + Unpin> Write for Fenced<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.open() {
            Ok(io) => io.poll_write(cx, bytes),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.open() {
            Ok(io) => io.poll_write_vectored(cx, slices),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<T: Read + Unpin> Read for Fenced<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: Connection> Connection for Fenced<T> {
    fn connected(&self) -> Connected {
        self.io.connected()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::{Duration, Instant};

    use hyper_util::rt::TokioIo;

    use super::*;

    async fn send(connection: &mut Fenced<TokioIo<tokio::io::DuplexStream>>) -> io::Result<usize> {
        poll_fn(|cx| Pin::new(&mut *connection).poll_write(cx, b"PATCH")).await
    }

    /// The story: a leader was paused after its request had passed the fence and before the bytes had left, and a new leader took over.
    #[tokio::test]
    async fn what_was_queued_before_a_pause_is_not_sent_after_it() {
        let leadership = Leadership::standby("a");
        let (near, far) = tokio::io::duplex(64);
        let mut connection = Fenced {
            io: TokioIo::new(near),
            leadership: leadership.clone(),
        };
        assert_eq!(send(&mut connection).await.unwrap(), 5, "a standby may still ask");
        leadership.extend(Instant::now() + Duration::from_mins(1));
        assert_eq!(send(&mut connection).await.unwrap(), 5);
        leadership.extend(Instant::now());
        let error = send(&mut connection).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        drop(far);
    }
}
