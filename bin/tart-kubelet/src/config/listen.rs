//! Where to listen.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::ConfigError;

/// Where to listen: a port, and an address unless that is left to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    address: Option<IpAddr>,
    port: u16,
}

impl Listen {
    /// Reads `:8080`, `127.0.0.1:8080` or `[::1]:8080`; `0` and nothing are nowhere.
    pub(super) fn parse(flag: &'static str, text: &str) -> Result<Option<Self>, ConfigError> {
        let bad = || ConfigError::Listen {
            flag,
            text: text.to_owned(),
        };
        if text.is_empty() || text == "0" {
            return Ok(None);
        }
        if let Some(port) = text.strip_prefix(':') {
            return Ok(Some(Self {
                address: None,
                port: port.parse().map_err(|_| bad())?,
            }));
        }
        let address: SocketAddr = text.parse().map_err(|_| bad())?;
        Ok(Some(Self {
            address: Some(address.ip()),
            port: address.port(),
        }))
    }

    /// The socket for metrics: on the tailnet if the host is on one, else everywhere, as scrapers expect.
    pub fn open(self, tailnet: Option<IpAddr>) -> SocketAddr {
        self.at(tailnet.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)))
    }

    /// The socket for probes: on the tailnet if the host is on one, else only for the host itself.
    pub fn private(self, tailnet: Option<IpAddr>) -> SocketAddr {
        self.at(tailnet.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)))
    }

    /// The port.
    pub fn port(self) -> u16 {
        self.port
    }

    fn at(self, otherwise: IpAddr) -> SocketAddr {
        SocketAddr::new(self.address.unwrap_or(otherwise), self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(text: &str) -> Listen {
        Listen::parse("--metrics-bind-address", text).unwrap().unwrap()
    }

    #[test]
    fn an_address_that_is_left_open_is_the_tailnet_where_there_is_one() {
        let tailnet = Some("100.64.0.7".parse().unwrap());
        assert_eq!(listen(":8080").open(tailnet).to_string(), "100.64.0.7:8080");
        assert_eq!(listen(":8080").open(None).to_string(), "[::]:8080");
        assert_eq!(listen(":8081").private(tailnet).to_string(), "100.64.0.7:8081");
        assert_eq!(listen(":8081").private(None).to_string(), "127.0.0.1:8081");
        assert_eq!(listen("0.0.0.0:9").open(tailnet).to_string(), "0.0.0.0:9");
    }

    #[test]
    fn nowhere_is_a_place_and_nonsense_is_not() {
        assert_eq!(Listen::parse("--x", "0").unwrap(), None);
        assert_eq!(Listen::parse("--x", "").unwrap(), None);
        for bad in ["8080", ":x", ":70000", "host:80"] {
            let said = Listen::parse("--x", bad).unwrap_err().to_string();
            assert!(said.contains("--x") && said.contains(bad), "{said}");
        }
    }
}
