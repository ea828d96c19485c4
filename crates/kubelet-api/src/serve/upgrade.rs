//! The handshakes: what a request must say to become a session, and what it is answered.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::answer::{Body, full, plain};

const SPDY: &str = "SPDY/3.1";
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED_PROTOCOLS: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");
/// From RFC 6455.
const WEBSOCKET_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// What the request wants to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Spdy,
    WebSocket,
}

pub(super) fn kind(headers: &HeaderMap) -> Option<Kind> {
    let asked = words(headers, &CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"));
    let mut protocols = words(headers, &UPGRADE).filter(|_| asked);
    protocols.find_map(|protocol| match protocol {
        _ if protocol.eq_ignore_ascii_case(SPDY) => Some(Kind::Spdy),
        _ if protocol.eq_ignore_ascii_case("websocket") => Some(Kind::WebSocket),
        _ => None,
    })
}

/// Values of a header that may be repeated, or a list, or both.
fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> + use<'a> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|word| !word.is_empty())
}

/// A refusal of the handshake.
pub(super) type Refused = Box<Response<Body>>;

/// Chooses the protocol over SPDY and answers 101.
pub(super) fn spdy<P>(
    headers: &HeaderMap,
    choose: impl FnOnce(&mut dyn Iterator<Item = &str>) -> Result<(P, &'static str), Vec<&'static str>>,
) -> Result<(P, Response<Body>), Refused> {
    let mut offered = words(headers, &STREAM_PROTOCOL).peekable();
    if offered.peek().is_none() {
        let text = "unable to upgrade: X-Stream-Protocol-Version is required";
        return Err(Box::new(plain(StatusCode::BAD_REQUEST, text)));
    }
    match choose(&mut offered) {
        Ok((chosen, name)) => {
            let mut response = switching(SPDY);
            response
                .headers_mut()
                .insert(STREAM_PROTOCOL, HeaderValue::from_static(name));
            Ok((chosen, response))
        }
        Err(ours) => {
            let offered: Vec<&str> = words(headers, &STREAM_PROTOCOL).collect();
            let text = format!(
                "unable to upgrade: unable to negotiate protocol: client supports {offered:?}, server accepts {ours:?}"
            );
            let mut response = plain(StatusCode::FORBIDDEN, text);
            for name in ours {
                response
                    .headers_mut()
                    .append(ACCEPTED_PROTOCOLS, HeaderValue::from_static(name));
            }
            Err(Box::new(response))
        }
    }
}

/// Chooses the protocol over WebSocket and answers 101.
pub(super) fn websocket<P>(
    headers: &HeaderMap,
    choose: impl FnOnce(&mut dyn Iterator<Item = &str>) -> Result<(P, Option<&'static str>), Vec<&'static str>>,
) -> Result<(P, Response<Body>), Refused> {
    let bad = |text: String| Box::new(plain(StatusCode::BAD_REQUEST, text));
    if words(headers, &SEC_WEBSOCKET_VERSION).next() != Some("13") {
        return Err(bad("unable to upgrade: Sec-WebSocket-Version must be 13".to_owned()));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
    let key = key.ok_or_else(|| bad("unable to upgrade: Sec-WebSocket-Key is required".to_owned()))?;
    let (chosen, name) = choose(&mut words(headers, &SEC_WEBSOCKET_PROTOCOL)).map_err(|ours| {
        bad(format!(
            "unable to upgrade: none of the offered protocols is known; known are {ours:?}"
        ))
    })?;
    let mut response = switching("websocket");
    let accept = digest::digest(
        &digest::SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}{WEBSOCKET_GUID}").as_bytes(),
    );
    // Base64 is always a header value; were it not, the client would refuse the answer without it.
    if let Ok(accept) = HeaderValue::from_str(&STANDARD.encode(accept)) {
        response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(name) = name {
        response
            .headers_mut()
            .insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Ok((chosen, response))
}

fn switching(protocol: &'static str) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response
        .headers_mut()
        .insert(UPGRADE, HeaderValue::from_static(protocol));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn an_upgrade_needs_both_headers() {
        let both = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "SPDY/3.1")]);
        assert_eq!(kind(&both), Some(Kind::Spdy));
        assert_eq!(kind(&headers(&[("upgrade", "websocket")])), None);
        assert_eq!(kind(&headers(&[("connection", "upgrade"), ("upgrade", "h2c")])), None);
    }

    #[test]
    fn separate_lines_and_a_list_offer_the_same() {
        let lines = headers(&[
            ("x-stream-protocol-version", "a"),
            ("x-stream-protocol-version", "b, c"),
        ]);
        let (all, response) = spdy(&lines, |offered| {
            Ok((offered.map(str::to_owned).collect::<Vec<_>>(), "b"))
        })
        .unwrap();
        assert_eq!(all, ["a", "b", "c"]);
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(response.headers()["x-stream-protocol-version"], "b");
    }

    #[test]
    fn no_common_protocol_is_refused_with_ours() {
        let offered = headers(&[("x-stream-protocol-version", "v9")]);
        let refused = spdy::<()>(&offered, |_| Err(vec!["v4", "v3"])).unwrap_err();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        let ours: Vec<_> = refused.headers().get_all(ACCEPTED_PROTOCOLS).iter().collect();
        assert_eq!(ours, ["v4", "v3"]);
        let missing = spdy::<()>(&HeaderMap::new(), |_| Err(vec![])).unwrap_err();
        assert_eq!(missing.status(), StatusCode::BAD_REQUEST);
    }

    /// The example of RFC 6455, section 1.3.
    #[test]
    fn the_websocket_answer_is_the_one_of_the_standard() {
        let request = headers(&[
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ]);
        let ((), response) = websocket(&request, |_| Ok(((), None))).unwrap();
        assert_eq!(response.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
