//! A server under measurement, as the loader sees it: where it is, how its paths look, which process it is.

use super::key::key;
use anyhow::{Context as _, Result, ensure};
use std::fmt::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::Child;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How paths are made of a space and a key. A space is a set of entries that can be removed together.
#[derive(Debug, Clone)]
pub(crate) enum Paths {
    /// One folder per space.
    Folders,
    /// kura's Gradle route, one namespace per space.
    Gradle,
    /// The path of a peer's URL, with `{key}` replaced or the key appended.
    Template(String),
}

#[derive(Debug, Clone)]
pub(crate) struct System {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) address: SocketAddr,
    pub(crate) paths: Paths,
    /// Makes the token for a space, if one is needed.
    pub(crate) token: Option<fn(&str) -> String>,
    pub(crate) pid: u32,
}

impl System {
    /// Name and version.
    pub(crate) fn version(&self) -> (String, String) {
        (self.name.clone(), self.version.clone())
    }

    /// A set of entries, and the right to use it.
    pub(crate) fn space(&self, name: &str) -> Space<'_> {
        let mut fields = format!(" HTTP/1.1\r\nhost: {}\r\n", self.address);
        if let Some(token) = self.token {
            // Writing into a string cannot fail.
            let _ = write!(fields, "authorization: Bearer {}\r\n", token(name));
        }
        Space {
            system: self,
            name: name.to_owned(),
            fields,
        }
    }
}

/// Makes requests for the entries of one space.
#[derive(Debug)]
pub(crate) struct Space<'a> {
    pub(crate) system: &'a System,
    name: String,
    fields: String,
}

impl Space<'_> {
    fn path(&self, number: u64) -> String {
        let (space, key) = (&self.name, key(&self.name, number));
        match &self.system.paths {
            Paths::Folders => format!("/{space}/{key}"),
            Paths::Gradle => format!("/api/cache/gradle/{key}?tenant_id=default&namespace_id={space}"),
            Paths::Template(template) if template.contains("{key}") => template.replace("{key}", &key),
            Paths::Template(prefix) => format!("{}/{key}", prefix.trim_end_matches('/')),
        }
    }

    /// A request without a body.
    pub(crate) fn request(&self, method: &str, path: &str) -> Vec<u8> {
        format!("{method} {path}{}\r\n", self.fields).into_bytes()
    }

    /// Reads one entry.
    pub(crate) fn get(&self, number: u64) -> Vec<u8> {
        self.request("GET", &self.path(number))
    }

    /// The head of a request that stores an entry of that length.
    pub(crate) fn put(&self, number: u64, length: usize) -> Vec<u8> {
        format!(
            "PUT {}{}content-length: {length}\r\n\r\n",
            self.path(number),
            self.fields
        )
        .into_bytes()
    }
}

/// A server that somebody else runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) name: String,
    authority: String,
    path: String,
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected name=http://host:port/path, got {text:?}");
        let (name, url) = text.split_once('=').ok_or_else(expected)?;
        let rest = url.strip_prefix("http://").ok_or_else(expected)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if name.is_empty() || authority.is_empty() {
            return Err(expected());
        }
        let port = if authority.contains(':') { "" } else { ":80" };
        Ok(Self {
            name: name.to_owned(),
            authority: format!("{authority}{port}"),
            path: format!("/{path}"),
        })
    }
}

impl Peer {
    /// Finds its process, unless that is given.
    pub(crate) fn system(&self, pid: Option<u32>) -> Result<System> {
        let address = self
            .authority
            .to_socket_addrs()
            .ok()
            .and_then(|mut addresses| addresses.next())
            .with_context(|| format!("{} is not an address", self.authority))?;
        let pid = pid.or_else(|| super::meter::listener(address.port())).with_context(|| {
            format!(
                "no process on this machine listens on {address}; is {} running? Name its process with --peer-pid {}=<pid>",
                self.name, self.name
            )
        })?;
        Ok(System {
            name: self.name.clone(),
            version: "version unknown".to_owned(),
            address,
            paths: Paths::Template(self.path.clone()),
            token: None,
            pid,
        })
    }
}

/// `name=pid`.
pub(crate) fn peer_pid(text: &str) -> Result<(String, u32), String> {
    text.split_once('=')
        .and_then(|(name, pid)| Some((name.to_owned(), pid.parse().ok()?)))
        .ok_or_else(|| format!("expected name=pid, got {text:?}"))
}

/// A port nobody listens on.
pub(crate) fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("failed to find a free port")?;
    Ok(listener.local_addr()?.port())
}

/// A process of ours, which ends with its owner.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) name: &'static str,
}

impl Process {
    /// Takes charge of a child.
    pub(crate) fn new(child: Child, name: &'static str) -> Self {
        super::ending::add_server(child.id());
        Self { child, name }
    }

    /// Asks it to end, and waits.
    pub(crate) fn stop(&mut self, within: Duration) -> Result<()> {
        if let Ok(None) = self.child.try_wait() {
            let pid = rustix::process::Pid::from_child(&self.child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
            let ended = wait(within, || Ok(self.child.try_wait()?.map(|_| ())))?;
            ensure!(
                ended.is_some(),
                "{} did not end within {} s",
                self.name,
                within.as_secs()
            );
        }
        Ok(())
    }

    /// Ends it without a warning.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Fails when it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "{} has ended: {:?}", self.name, ended);
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.stop(Duration::from_secs(20)).is_err() {
            let _ = self.kill();
        }
        super::ending::forget_server(self.child.id());
    }
}

/// Looks again and again, a fraction of a millisecond apart, until there is something to see or the time is over.
pub(crate) fn wait<T>(within: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(seen) = look()? {
            return Ok(Some(seen));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::park_timeout(Duration::from_micros(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(paths: Paths, token: Option<fn(&str) -> String>) -> System {
        System {
            name: "x".into(),
            version: String::new(),
            address: "127.0.0.1:80".parse().unwrap(),
            paths,
            token,
            pid: 1,
        }
    }

    #[test]
    fn every_system_has_its_own_paths() {
        let key = key("s", 1);
        for (paths, path) in [
            (Paths::Folders, format!("/s/{key}")),
            (
                Paths::Gradle,
                format!("/api/cache/gradle/{key}?tenant_id=default&namespace_id=s"),
            ),
            (Paths::Template("/cas".into()), format!("/cas/{key}")),
            (Paths::Template("/".into()), format!("/{key}")),
            (Paths::Template("/a/{key}?b=c".into()), format!("/a/{key}?b=c")),
        ] {
            assert_eq!(system(paths, None).space("s").path(1), path);
        }
    }

    #[test]
    fn requests_name_host_and_token() {
        let kura = system(Paths::Folders, Some(|space| format!("t-{space}")));
        let get = kura.space("s").request("GET", "/p");
        assert_eq!(
            String::from_utf8(get).unwrap(),
            "GET /p HTTP/1.1\r\nhost: 127.0.0.1:80\r\nauthorization: Bearer t-s\r\n\r\n"
        );
        let put = system(Paths::Folders, None).space("s").put(1, 3);
        assert!(String::from_utf8(put).unwrap().ends_with("content-length: 3\r\n\r\n"));
    }

    #[test]
    fn peers_are_read_and_mistakes_are_named() {
        let peer: Peer = "br=http://127.0.0.1:8080/cas".parse().unwrap();
        let seen = (peer.authority.as_str(), peer.path.as_str());
        assert_eq!(seen, ("127.0.0.1:8080", "/cas"));
        let short: Peer = "br=http://localhost".parse().unwrap();
        assert_eq!((short.authority.as_str(), short.path.as_str()), ("localhost:80", "/"));
        for wrong in ["br", "br=https://x", "=http://x", "br=http:///x"] {
            assert!(wrong.parse::<Peer>().is_err(), "{wrong}");
        }
        assert_eq!(peer_pid("br=12"), Ok(("br".to_owned(), 12)));
        assert!(peer_pid("br").is_err() && peer_pid("br=x").is_err());
    }
}
