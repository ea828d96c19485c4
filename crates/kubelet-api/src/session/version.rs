//! Which subprotocol is spoken: pure choices from what the client offers.

/// A version of the remote command protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// Errors as plain text.
    V1,
    /// As 1, with streams created in any order.
    V2,
    /// Terminal sizes.
    V3,
    /// The outcome as a Status object.
    V4,
    /// Over WebSocket: channels can be closed one by one.
    V5,
}

impl Version {
    /// Terminal sizes have a stream of their own.
    pub(crate) fn resizes(self) -> bool {
        self >= Self::V3
    }

    /// The outcome is a Status object.
    pub(crate) fn status_object(self) -> bool {
        self >= Self::V4
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1 => "channel.k8s.io",
            Self::V2 => "v2.channel.k8s.io",
            Self::V3 => "v3.channel.k8s.io",
            Self::V4 => "v4.channel.k8s.io",
            Self::V5 => "v5.channel.k8s.io",
        }
    }
}

/// What a stock kubelet takes over SPDY, in the order it lists them.
const SPDY: [Version; 4] = [Version::V4, Version::V3, Version::V2, Version::V1];

/// The name of the port-forward protocol over SPDY.
const PORT_FORWARD: &str = "portforward.k8s.io";

/// There is only the one.
pub(crate) fn choose_port_forward(
    offered: &mut dyn Iterator<Item = &str>,
) -> Result<((), &'static str), Vec<&'static str>> {
    for name in offered {
        if name == PORT_FORWARD {
            return Ok(((), PORT_FORWARD));
        }
    }
    Err(vec![PORT_FORWARD])
}

/// The first of the client's that we speak; else the names of ours.
pub(crate) fn choose_spdy<'a>(offered: impl Iterator<Item = &'a str>) -> Result<Version, Vec<&'static str>> {
    let mut offered = offered;
    offered
        .find_map(|name| SPDY.into_iter().find(|version| version.name() == name))
        .ok_or_else(|| SPDY.map(Version::name).to_vec())
}

/// How bytes travel in WebSocket messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WebSocketFlavour {
    pub(crate) version: Version,
    /// Text messages: the channel as a digit, the bytes as base64.
    pub(crate) base64: bool,
}

impl WebSocketFlavour {
    const ALL: [Self; 5] = [
        Self::of(Version::V5, false),
        Self::of(Version::V4, false),
        Self::of(Version::V4, true),
        Self::of(Version::V1, false),
        Self::of(Version::V1, true),
    ];

    const fn of(version: Version, base64: bool) -> Self {
        Self { version, base64 }
    }

    pub(crate) fn name(self) -> &'static str {
        match (self.version, self.base64) {
            (Version::V5, _) => "v5.channel.k8s.io",
            (Version::V4, true) => "v4.base64.channel.k8s.io",
            (Version::V4, false) => "v4.channel.k8s.io",
            (_, true) => "base64.channel.k8s.io",
            (_, false) => "channel.k8s.io",
        }
    }
}

/// The first of the client's that we speak. A client that names none speaks the oldest and is answered with no name.
pub(crate) fn choose_websocket<'a>(
    offered: impl Iterator<Item = &'a str>,
) -> Result<(WebSocketFlavour, Option<&'static str>), Vec<&'static str>> {
    let mut offered = offered.peekable();
    if offered.peek().is_none() {
        return Ok((WebSocketFlavour::of(Version::V1, false), None));
    }
    offered
        .find_map(|name| WebSocketFlavour::ALL.into_iter().find(|flavour| flavour.name() == name))
        .map(|flavour| (flavour, Some(flavour.name())))
        .ok_or_else(|| WebSocketFlavour::ALL.map(WebSocketFlavour::name).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_clients_protocols_that_is_known_wins() {
        let stock = [
            "v5.channel.k8s.io",
            "v4.channel.k8s.io",
            "v3.channel.k8s.io",
            "v2.channel.k8s.io",
            "channel.k8s.io",
        ];
        assert_eq!(choose_spdy(stock.into_iter()), Ok(Version::V4));
        let found = choose_spdy(["channel.k8s.io", "v4.channel.k8s.io"].into_iter());
        assert_eq!(found, Ok(Version::V1));
        let refused = choose_spdy(["v9.channel.k8s.io"].into_iter()).unwrap_err();
        assert_eq!(refused.first(), Some(&"v4.channel.k8s.io"));
    }

    #[test]
    fn a_browser_without_a_protocol_gets_the_oldest() {
        let (flavour, name) = choose_websocket(std::iter::empty()).unwrap();
        assert_eq!((flavour.version, flavour.base64, name), (Version::V1, false, None));
        let (flavour, name) = choose_websocket(["x", "v4.base64.channel.k8s.io"].into_iter()).unwrap();
        assert!(flavour.base64);
        assert_eq!(name, Some("v4.base64.channel.k8s.io"));
        assert!(choose_websocket(["x"].into_iter()).is_err());
    }
}
