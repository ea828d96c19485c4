//! HTTP/2, by `hyper`: what matters there is what the server does, not how its frames lie.

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::server::Server;
use super::wire::{Response, Stream};

/// One request on a connection of its own.
pub(super) async fn send(
    server: &Server,
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> Result<Response> {
    let stream = server.dial().await?;
    let stream: Box<dyn Stream> = if server.transport.is_tls() {
        Box::new(server.secure(stream, b"h2").await?)
    } else {
        Box::new(stream)
    };
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .context("the HTTP/2 handshake failed")?;
    let driver = tokio::spawn(connection);
    let scheme = if server.transport.is_tls() { "https" } else { "http" };
    let mut request = http::Request::builder()
        .method(method)
        .uri(format!("{scheme}://{}:{}{target}", server.host, server.port));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body)))?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok::<_, anyhow::Error>((parts, body))
    };
    let answer = tokio::time::timeout(server.patience, exchange).await;
    driver.abort();
    let (parts, body) = answer.context("no whole answer in time")??;
    let fields = parts.headers.iter().map(|(name, value)| {
        (
            name.as_str().to_owned(),
            String::from_utf8_lossy(value.as_bytes()).into_owned(),
        )
    });
    Ok(Response {
        asked: String::new(),
        status: parts.status.as_u16(),
        fields: fields.collect(),
        body: body.to_vec(),
    })
}
