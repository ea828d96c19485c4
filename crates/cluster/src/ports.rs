//! Free ports that stay the same between runs.
//!
//! A kubeconfig somebody has open should still work after `down` and `up`, so ports are remembered in `ports.json` and
//! kept as long as they are free. One that was taken meanwhile is replaced alone. A process that was killed gives up its port
//! only when its last thread has ended, which may be after its parent heard of it; so a remembered port is waited for.
//!
//! Candidates come from 20000 to 29999: below the range from which Linux and macOS take the local ports of outgoing
//! connections (so nobody grabs a port by accident between our test and the child's bind), and below the NodePorts.
//! Which of them is a hash of the directory and the name, so two clusters rarely even try the same one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::files::{self, Access};
use crate::process;

const FILE: &str = "ports.json";
const FIRST: u16 = 20_000;
const COUNT: u64 = 10_000;
const ATTEMPTS: u32 = 200;
/// A port found free may be taken by the time its process binds it. That is rare, so a few tries are plenty.
const STARTS: u32 = 3;
/// How long a process that was killed may hold on to its ports: for all of them together.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_STEP: Duration = Duration::from_millis(20);

/// Why no ports could be chosen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing free was found.
    #[error(
        "found no free port for {name} on {address} in {ATTEMPTS} attempts between 20000 and 29999; is that address configured on this machine?"
    )]
    NoneFree {
        /// What the port was for.
        name: String,
        /// Where.
        address: Ipv4Addr,
    },
    /// `ports.json` could not be read or written.
    #[error(transparent)]
    File(#[from] files::Error),
}

/// Ports by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports {
    address: Ipv4Addr,
    by_name: BTreeMap<String, u16>,
}

impl Ports {
    /// Ports for `names` on `address`: the remembered ones where they are free, new ones elsewhere. Remembers them in
    /// `dir`, together with those of names not asked for this time.
    pub fn pick(dir: &Path, address: Ipv4Addr, names: &[&str]) -> Result<Self, Error> {
        let path = dir.join(FILE);
        let remembered = recall(&path)?;
        let is_free = |port| TcpListener::bind((address, port)).is_ok();
        linger(names.iter().filter_map(|name| remembered.get(*name)), is_free);
        let chosen = choose(dir, address, names, &remembered, is_free)?;
        let mut all = remembered.clone();
        all.extend(chosen.clone());
        if all != remembered {
            files::write(
                &path,
                &serde_json::to_vec_pretty(&all).unwrap_or_default(),
                Access::Public,
            )?;
        }
        Ok(Self {
            address,
            by_name: chosen,
        })
    }

    /// The address and port of a name that was asked for. (Port 0, which nothing can listen on by name, for any other.)
    pub fn socket(&self, name: &str) -> SocketAddr {
        SocketAddr::from((self.address, self.port(name)))
    }

    /// The port of a name that was asked for.
    pub fn port(&self, name: &str) -> u16 {
        debug_assert!(self.by_name.contains_key(name), "no port was picked for {name}");
        self.by_name.get(name).copied().unwrap_or_default()
    }
}

/// Waits until ports are given up, or will not be.
#[expect(
    clippy::disallowed_methods,
    reason = "it is a wait on a condition with a deadline, before anything runs"
)]
fn linger<'a>(ports: impl Iterator<Item = &'a u16>, is_free: impl Fn(u16) -> bool) {
    let deadline = Instant::now() + LINGER;
    for port in ports {
        while !is_free(*port) && Instant::now() < deadline {
            std::thread::sleep(LINGER_STEP);
        }
    }
}

/// A file that cannot be understood is worth no more than a missing one.
fn recall(path: &Path) -> Result<BTreeMap<String, u16>, files::Error> {
    Ok(files::read(path)?
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default())
}

fn choose(
    dir: &Path,
    address: Ipv4Addr,
    names: &[&str],
    remembered: &BTreeMap<String, u16>,
    is_free: impl Fn(u16) -> bool,
) -> Result<BTreeMap<String, u16>, Error> {
    let mut chosen = BTreeMap::new();
    let mut used: BTreeSet<u16> = remembered
        .iter()
        .filter(|(name, _)| !names.contains(&name.as_str()))
        .map(|(_, port)| *port)
        .collect();
    for name in names {
        let kept = remembered.get(*name).copied().filter(|port| *port != 0);
        let port = kept
            .into_iter()
            .chain((0..ATTEMPTS).map(|attempt| candidate(dir, name, attempt)))
            .find(|port| !used.contains(port) && is_free(*port))
            .ok_or_else(|| Error::NoneFree {
                name: (*name).to_owned(),
                address,
            })?;
        used.insert(port);
        chosen.insert((*name).to_owned(), port);
    }
    Ok(chosen)
}

fn candidate(dir: &Path, name: &str, attempt: u32) -> u16 {
    let mut hash = Sha256::new();
    hash.update(dir.as_os_str().as_encoded_bytes());
    hash.update([0]);
    hash.update(name.as_bytes());
    hash.update(attempt.to_be_bytes());
    let number = hash
        .finalize()
        .iter()
        .take(8)
        .fold(0u64, |number, byte| (number << 8) | u64::from(*byte));
    FIRST + u16::try_from(number % COUNT).unwrap_or_default()
}

/// Starts something, with other ports if one of them was taken meanwhile. `process` finds that in what went wrong.
pub(crate) async fn started<T, E, F>(
    mut start: impl FnMut() -> F,
    process: fn(&E) -> Option<&process::Error>,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut attempt = 1;
    loop {
        let result = start().await;
        let taken = result.as_ref().err().and_then(process);
        match taken.filter(|error| error.taken_port().is_some()) {
            Some(error) if attempt < STARTS => {
                tracing::info!(%error, "choosing other ports");
                attempt += 1;
            }
            _ => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

    #[test]
    fn ports_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let first = Ports::pick(dir.path(), HOST, &["a", "b"]).unwrap();
        assert_ne!(first.port("a"), first.port("b"));
        assert_eq!(Ports::pick(dir.path(), HOST, &["a", "b"]).unwrap(), first);
    }

    #[test]
    fn a_taken_port_is_replaced_alone() {
        let dir = tempfile::tempdir().unwrap();
        let first = Ports::pick(dir.path(), HOST, &["a", "b"]).unwrap();
        let _squatter = TcpListener::bind(first.socket("a")).unwrap();
        let second = Ports::pick(dir.path(), HOST, &["a", "b"]).unwrap();
        assert_ne!(second.port("a"), first.port("a"));
        assert_eq!(second.port("b"), first.port("b"));
        assert_eq!(Ports::pick(dir.path(), HOST, &["a", "b"]).unwrap(), second);
    }

    /// `up` right after `kill -9` found the port of the killed API server taken, moved, and left behind who knew the old one.
    #[test]
    fn a_port_that_is_about_to_be_given_up_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let first = Ports::pick(dir.path(), HOST, &["a", "b"]).unwrap();
        let dying = std::cell::RefCell::new(Some(TcpListener::bind(first.socket("a")).unwrap()));
        let looks = std::cell::Cell::new(0);
        linger([first.port("a"), first.port("b")].iter(), |port| {
            looks.set(looks.get() + 1);
            if looks.get() == 3 {
                dying.take();
            }
            TcpListener::bind((HOST, port)).is_ok()
        });
        assert!(looks.get() >= 3, "{looks:?}");
        assert_eq!(Ports::pick(dir.path(), HOST, &["a", "b"]).unwrap(), first);
    }

    #[test]
    fn names_asked_for_at_different_times_never_share_a_port() {
        let remembered = BTreeMap::from([("a".to_owned(), candidate(Path::new("d"), "b", 0))]);
        let chosen = choose(Path::new("d"), HOST, &["b"], &remembered, |_| true).unwrap();
        assert_eq!(chosen["b"], candidate(Path::new("d"), "b", 1));
    }

    #[test]
    fn a_broken_memory_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{\"a\": 70000").unwrap();
        let ports = Ports::pick(dir.path(), HOST, &["a"]).unwrap();
        assert_eq!(Ports::pick(dir.path(), HOST, &["a"]).unwrap(), ports);
    }

    #[test]
    fn no_free_port_is_an_error_that_names_the_part() {
        let error = choose(Path::new("d"), HOST, &["etcd"], &BTreeMap::new(), |_| false).unwrap_err();
        assert!(error.to_string().contains("etcd"), "{error}");
    }

    #[test]
    fn candidates_stay_in_their_range() {
        for attempt in 0..ATTEMPTS {
            assert!((20_000..30_000).contains(&candidate(Path::new("/some/dir"), "name", attempt)));
        }
    }
}
