//! Who may pull: what a registry wants, and what `tart` finds to show it (facts 6.3, `login`).

use crate::config::Config;
use crate::failure::Failure;
use crate::image::RemoteName;
use crate::print::say;
use crate::store::Home;
use crate::switches::Switches;
use base64::Engine as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pair {
    pub(crate) username: String,
    pub(crate) password: String,
}

/// What the registry of a host wants; nothing for a public one.
pub(crate) fn wanted(home: &Home, host: &str) -> Result<Option<Pair>, Failure> {
    let path = home.registry()?.0.join(host.replace(':', "%3A")).join(".auth.json");
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Fails as the registry does if it wants other credentials than those at hand.
pub(crate) fn check(home: &Home, config: &Config, name: &RemoteName) -> Result<(), Failure> {
    let found = find(home, config, &name.host)?;
    match wanted(home, &name.host)? {
        Some(wanted) if found.as_ref() != Some(&wanted) => Err(Failure::Thrown(
            "AuthFailed(why: \"received unexpected HTTP status code 401 while retrieving an authentication token\", \
             details: \"unauthorized\")"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

/// In the order of the real one: environment, Docker's file, keychain.
fn find(home: &Home, config: &Config, host: &str) -> Result<Option<Pair>, Failure> {
    let for_host = config.registry_hostname.as_deref().is_none_or(|only| only == host);
    if let (true, Some(username), Some(password)) = (for_host, &config.registry_username, &config.registry_password) {
        return Ok(Some(Pair {
            username: username.clone(),
            password: password.clone(),
        }));
    }
    if let Some(pair) = config
        .docker_file
        .as_ref()
        .and_then(|path| docker(&std::fs::read(path).ok()?, host))
    {
        return Ok(Some(pair));
    }
    if Switches::load(home)?.keychain_locked {
        say("Failed to retrieve credentials using Keychain: Keychain failed to find item: -25308"); // text: guess
        return Ok(None);
    }
    Ok(keychain(home)?.remove(host))
}

/// `auth` is base64 of `user:password`, as Docker writes it.
fn docker(bytes: &[u8], host: &str) -> Option<Pair> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let auth = value.get("auths")?.get(host)?.get("auth")?.as_str()?;
    let plain = String::from_utf8(base64::engine::general_purpose::STANDARD.decode(auth).ok()?).ok()?;
    let (username, password) = plain.split_once(':')?;
    Some(Pair {
        username: username.to_owned(),
        password: password.to_owned(),
    })
}

fn keychain(home: &Home) -> Result<BTreeMap<String, Pair>, Failure> {
    match std::fs::read(home.sim().join("keychain.json")) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error.into()),
    }
}

/// `tart login`: asks the registry, then remembers.
pub(crate) fn login(home: &Home, host: &str, username: &str, validate: bool) -> Result<(), Failure> {
    let mut password = String::new();
    std::io::stdin().read_to_string(&mut password)?;
    let pair = Pair {
        username: username.to_owned(),
        password: password.trim_end_matches('\n').to_owned(),
    };
    if validate && wanted(home, host)?.is_some_and(|wanted| wanted != pair) {
        let why = "AuthFailed(why: \"received unexpected HTTP status code 401 while retrieving an authentication token\", \
                   details: \"unauthorized\")";
        return Err(Failure::Own(format!("invalid credentials: {why}"), 1));
    }
    if Switches::load(home)?.keychain_locked {
        return Err(Failure::Own(
            "Keychain failed to add item: User interaction is not allowed.".to_owned(),
            1,
        )); // guess
    }
    let mut all = keychain(home)?;
    all.insert(host.to_owned(), pair);
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(home.sim().join("keychain.json"))?;
    serde_json::to_writer(file, &all)?;
    Ok(())
}
