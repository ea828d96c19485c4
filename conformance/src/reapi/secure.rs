//! A connection of the suite through TLS, which must agree on HTTP/2.

use std::task::{Context, Poll};

use anyhow::{Context as _, Result, ensure};
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use russet_reapi::client::tonic::codegen::Service;
use russet_reapi::client::tonic::codegen::http::Uri;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::http::server::tls;

/// Connects to one server, whose certificate must come from an authority of ours.
#[derive(Clone)]
pub(super) struct Secure {
    tls: TlsConnector,
    host: String,
    port: u16,
}

impl Secure {
    pub(super) fn new(host: &str, port: u16, trust: &[CertificateDer<'static>]) -> Result<Self> {
        Ok(Self {
            tls: tls(trust, b"h2")?,
            host: host.to_owned(),
            port,
        })
    }

    async fn connect(self) -> Result<TokioIo<TlsStream<TcpStream>>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(self.host).context("not a name for TLS")?;
        let stream = self.tls.connect(name, stream).await?;
        let agreed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        ensure!(agreed, "the server did not agree on HTTP/2");
        Ok(TokioIo::new(stream))
    }
}

impl Service<Uri> for Secure {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = anyhow::Error;
    type Future = BoxFuture<'static, Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}
