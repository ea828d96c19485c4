//! HTTP probes: 200 to 399 is well. Redirects are followed on the same host; one that leads elsewhere counts as an answer.

use super::ask::{Target, place};
use super::{Answer, tls};
use crate::time::in_words;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::{ACCEPT, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Request, Uri, client::conn::http1};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Who asks. Servers treat probes apart by it.
pub(super) const AGENT: &str = "kube-probe/1.35";
/// The most redirects that are followed.
const REDIRECTS: usize = 10;

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    tls: bool,
    host: String,
    port: u16,
    path: String,
}

impl Place {
    fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", place(&self.host, self.port), self.path)
    }

    /// Where a `Location` leads from here.
    fn follow(&self, location: &str) -> Option<Self> {
        let uri: Uri = location.parse().ok()?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let Some(host) = uri.host() else {
            let path = if path.starts_with('/') {
                path.to_owned()
            } else {
                let folder = self.path.split('?').next().unwrap_or_default();
                format!("{}/{path}", folder.rsplit_once('/').map_or("", |(folder, _)| folder))
            };
            return Some(Self { path, ..self.clone() });
        };
        let tls = uri.scheme_str() == Some("https");
        Some(Self {
            tls,
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            path: path.to_owned(),
        })
    }
}

fn first_place(action: &HTTPGetAction, port: u16, target: Target<'_>) -> Place {
    let host = action.host.as_deref().filter(|host| !host.is_empty());
    let path = action.path.as_deref().unwrap_or("/");
    Place {
        tls: action
            .scheme
            .as_deref()
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
        host: host.map_or_else(|| target.address.to_string(), str::to_owned),
        port,
        path: if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        },
    }
}

pub(super) async fn probe(action: &HTTPGetAction, port: u16, timeout: Duration, target: Target<'_>) -> Answer {
    let first = first_place(action, port, target);
    let url = first.url();
    match tokio::time::timeout(timeout, get(action, first, target)).await {
        Err(_) => {
            let limit = in_words(timeout);
            Answer::Bad(format!(
                "Get \"{url}\": context deadline exceeded (no answer within {limit})"
            ))
        }
        Ok(Err(error)) => Answer::Bad(format!("Get \"{url}\": {error}")),
        Ok(Ok(code)) if (200..400).contains(&code) => Answer::Good,
        Ok(Ok(code)) => Answer::Bad(format!("HTTP probe failed with statuscode: {code}")),
    }
}

/// Calls it and does not care what it says.
pub(super) async fn call(action: &HTTPGetAction, port: u16, target: Target<'_>) -> Result<(), String> {
    let first = first_place(action, port, target);
    let url = first.url();
    get(action, first, target)
        .await
        .map(|_| ())
        .map_err(|error| format!("Get \"{url}\": {error}"))
}

async fn get(action: &HTTPGetAction, first: Place, target: Target<'_>) -> io::Result<u16> {
    let mut at = first.clone();
    for _ in 0..REDIRECTS {
        let stream = target.dial.dial(&at.host, at.port).await?;
        let (code, location) = if at.tls {
            once(action, &at, tls::connect(&at.host, stream).await?).await?
        } else {
            once(action, &at, stream).await?
        };
        let next = location
            .filter(|_| matches!(code, 301 | 302 | 303 | 307 | 308))
            .and_then(|to| at.follow(&to));
        match next {
            Some(next) if next.host == first.host => at = next,
            _ => return Ok(code),
        }
    }
    Err(io::Error::other(format!("stopped after {REDIRECTS} redirects")))
}

async fn once<S>(action: &HTTPGetAction, at: &Place, stream: S) -> io::Result<(u16, Option<String>)>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let mut request = Request::get(&at.path)
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    *request.headers_mut() = headers(action, at)?;
    // The connection lives as long as the question, so it is driven beside it rather than in a task of its own.
    let answer = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        Ok((response.status().as_u16(), location.map(str::to_owned)))
    };
    tokio::pin!(answer, connection);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // A server may close as soon as it has written; the answer is there then.
        _ = &mut connection => answer.await,
    }
}

fn headers(action: &HTTPGetAction, at: &Place) -> io::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(
        HOST,
        HeaderValue::from_str(&place(&at.host, at.port)).map_err(io::Error::other)?,
    );
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    let mut own: Vec<HeaderName> = Vec::new();
    for header in action.http_headers.iter().flatten() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(io::Error::other)?;
        let value = HeaderValue::from_str(&header.value).map_err(io::Error::other)?;
        let first = !own.contains(&name);
        if value.is_empty() && (name == ACCEPT || name == USER_AGENT) {
            headers.remove(&name);
        } else if first {
            headers.insert(name.clone(), value);
        } else {
            headers.append(name.clone(), value);
        }
        own.push(name);
    }
    Ok(headers)
}
