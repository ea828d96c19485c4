//! The emulated GitHub: a function of state, call and time.

use crate::call::Call;
use crate::deed::DeedError;
use crate::jwt;
use crate::key::PublicKey;
use crate::refusal::Refusal;
use crate::runners::Org;
use crate::settings::Settings;
use crate::strict::{Fields, Query};
use http::{Method, StatusCode};
use jiff::Timestamp;
use russet_sim_kit::clock::after;
use russet_sim_kit::wire::Reply;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;

mod deeds;

/// The permission everything here is about.
const RUNNERS: &str = "organization_self_hosted_runners";
/// How long a registration token is good for.
const REGISTRATION: Duration = Duration::from_hours(1);

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    seed: u64,
    drawn: u64,
    apps: BTreeMap<u64, Vec<PublicKey>>,
    installations: BTreeMap<u64, Installation>,
    /// By login in lower case.
    orgs: BTreeMap<String, Org>,
    tokens: BTreeMap<String, Token>,
    registrations: BTreeMap<String, Registration>,
    last_runner: u64,
}

#[derive(Debug, Clone)]
struct Installation {
    app: u64,
    org: String,
    runners: Option<Level>,
    suspended_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Read,
    Write,
}

#[derive(Debug, Clone)]
struct Token {
    installation: u64,
    runners: Option<Level>,
    ends: Timestamp,
}

#[derive(Debug, Clone)]
struct Registration {
    org: String,
    ends: Timestamp,
}

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    App(u64),
    Installation { installation: u64, runners: Option<Level> },
}

impl Caller {
    /// The name in the journal and for the hourly count.
    pub(crate) fn name(self) -> String {
        match self {
            Self::App(app) => format!("app {app}"),
            Self::Installation { installation, .. } => format!("installation {installation}"),
        }
    }
}

impl Level {
    fn parse(text: Option<&str>) -> Result<Option<Self>, DeedError> {
        match text {
            None => Ok(None),
            Some("read") => Ok(Some(Self::Read)),
            Some("write") => Ok(Some(Self::Write)),
            Some(other) => Err(DeedError::Level(other.to_owned())),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64, settings: Settings) -> Self {
        Self {
            settings,
            seed,
            drawn: 0,
            apps: BTreeMap::new(),
            installations: BTreeMap::new(),
            orgs: BTreeMap::new(),
            tokens: BTreeMap::new(),
            registrations: BTreeMap::new(),
            last_runner: 0,
        }
    }

    /// Who calls, by the token that was sent.
    pub(crate) fn caller(&self, now: Timestamp, call: &Call) -> Result<Caller, Refusal> {
        let token = call
            .bearer()
            .ok_or_else(|| Refusal::new(401, "Requires authentication"))?;
        if call.path.starts_with("/app/") {
            let keys = |app| self.apps.get(&app).map(Vec::as_slice);
            return jwt::check(token, now, keys).map(Caller::App);
        }
        let bad = || Refusal::new(401, "Bad credentials");
        let known = self
            .tokens
            .get(token)
            .filter(|token| token.ends > now)
            .ok_or_else(bad)?;
        let installation = self.installations.get(&known.installation).ok_or_else(bad)?;
        // A permission that was taken away is gone from the tokens that had it.
        Ok(Caller::Installation {
            installation: known.installation,
            runners: known.runners.min(installation.runners),
        })
    }

    /// Answers a call of somebody who is known.
    pub(crate) fn answer(&mut self, now: Timestamp, caller: Caller, call: &Call) -> Result<Reply, Refusal> {
        let pieces = call.pieces();
        match (&call.method, pieces.as_slice(), caller) {
            (&Method::POST, ["app", "installations", id, "access_tokens"], Caller::App(app)) => {
                self.mint(now, app, id, call)
            }
            (&Method::GET, ["app", "installations", id], Caller::App(app)) => self.show(app, id, call),
            (
                method,
                ["orgs", org, "actions", "runners", rest @ ..],
                Caller::Installation { installation, runners },
            ) => {
                let needed = if method == Method::GET {
                    Level::Read
                } else {
                    Level::Write
                };
                let key = self.reachable(org, installation, runners, needed)?;
                self.runners(now, &key, rest, call)
            }
            _ => Err(Refusal::new(
                501,
                format!("the emulator does not have this: {} {}", call.method, call.path),
            )),
        }
    }

    /// The organisation, if the installation is in it and may do this.
    fn reachable(
        &self,
        org: &str,
        installation: u64,
        runners: Option<Level>,
        needed: Level,
    ) -> Result<String, Refusal> {
        let key = org.to_lowercase();
        if !self.orgs.contains_key(&key) {
            return Err(Refusal::not_found());
        }
        let installation = self.installations.get(&installation).ok_or_else(Refusal::not_found)?;
        if installation.suspended_at.is_some() {
            return Err(suspended());
        }
        if installation.org != key || runners.is_none_or(|level| level < needed) {
            return Err(Refusal::not_accessible());
        }
        Ok(key)
    }

    fn installation(&self, app: u64, id: &str) -> Result<(u64, &Installation), Refusal> {
        let id: u64 = id.parse().map_err(|_| Refusal::not_found())?;
        let installation = self.installations.get(&id).filter(|found| found.app == app);
        installation.map(|found| (id, found)).ok_or_else(Refusal::not_found)
    }

    fn show(&self, app: u64, id: &str, call: &Call) -> Result<Reply, Refusal> {
        Query::new(&call.query)?.finish()?;
        let (id, installation) = self.installation(app, id)?;
        let login = self.orgs.get(&installation.org).map_or("", |org| org.login.as_str());
        Ok(Reply::json(
            StatusCode::OK,
            json!({
                "id": id,
                "app_id": app,
                "account": {"login": login, "type": "Organization"},
                "target_type": "Organization",
                "repository_selection": "all",
                "permissions": permissions(installation.runners),
                "suspended_at": installation.suspended_at,
            }),
        ))
    }

    fn mint(&mut self, now: Timestamp, app: u64, id: &str, call: &Call) -> Result<Reply, Refusal> {
        let (id, installation) = self.installation(app, id)?;
        if installation.suspended_at.is_some() {
            return Err(suspended());
        }
        let granted = installation.runners;
        let mut fields = Fields::new(call.json()?)?;
        let asked = fields.take("permissions");
        fields.finish()?;
        let runners = match asked {
            None => granted,
            Some(asked) => {
                let mut asked = Fields::new(asked)?;
                let level = asked.text(RUNNERS)?;
                asked.finish()?;
                Level::parse(level.as_deref())
                    .map_err(|_| Refusal::invalid(format!("\"{RUNNERS}\" must be read or write.")))?
            }
        };
        if runners > granted {
            return Err(Refusal::new(
                422,
                "The permissions requested are not granted to this installation.",
            ));
        }
        let token = format!("ghs_{}", self.draw(36));
        let ends = after(now, Duration::from_secs(self.settings.token_seconds.into()));
        let issued = Token {
            installation: id,
            runners,
            ends,
        };
        self.tokens.insert(token.clone(), issued);
        Ok(Reply::json(
            StatusCode::CREATED,
            json!({
                "token": token,
                "expires_at": seconds(ends),
                "permissions": permissions(runners),
                "repository_selection": "all",
            }),
        ))
    }

    fn runners(&mut self, now: Timestamp, key: &str, rest: &[&str], call: &Call) -> Result<Reply, Refusal> {
        let secret = self.draw(29).to_uppercase();
        let id = self.last_runner + 1;
        let settings = self.settings.clone();
        let org = self.orgs.get_mut(key).ok_or_else(Refusal::not_found)?;
        if call.method != Method::GET {
            Query::new(&call.query)?.finish()?;
        }
        match (&call.method, rest) {
            (&Method::GET, []) => org.list(call, &settings),
            (&Method::DELETE, [runner]) => org.remove(runner),
            (&Method::POST, ["generate-jitconfig"]) => {
                let reply = org.jit(call, id, &secret)?;
                self.last_runner = id;
                Ok(reply)
            }
            (&Method::POST, ["registration-token"]) => {
                Fields::new(call.json()?)?.finish()?;
                let ends = after(now, REGISTRATION);
                let registration = Registration {
                    org: key.to_owned(),
                    ends,
                };
                self.registrations.insert(secret.clone(), registration);
                Ok(Reply::json(
                    StatusCode::CREATED,
                    json!({"token": secret, "expires_at": seconds(ends)}),
                ))
            }
            _ => Err(Refusal::not_found()),
        }
    }

    /// The names of an organisation's runners.
    pub(crate) fn runner_names(&self, org: &str) -> Vec<String> {
        let org = self.orgs.get(&org.to_lowercase());
        org.map(|org| org.runners.values().map(|runner| runner.name.clone()).collect())
            .unwrap_or_default()
    }

    /// How many tokens are good now: of installations, and for registration.
    pub(crate) fn tokens(&self, now: Timestamp) -> (usize, usize) {
        let tokens = self.tokens.values().filter(|token| token.ends > now).count();
        let registrations = self.registrations.values().filter(|token| token.ends > now).count();
        (tokens, registrations)
    }

    /// Letters and digits that were never drawn before, the same for the same seed.
    fn draw(&mut self, length: usize) -> String {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        self.drawn += 1;
        let first = Sha256::digest(format!("{}/{}/0", self.seed, self.drawn));
        let second = Sha256::digest(format!("{}/{}/1", self.seed, self.drawn));
        let letters = first.iter().chain(second.iter()).take(length);
        letters
            .filter_map(|byte| LETTERS.get(usize::from(*byte) % LETTERS.len()))
            .map(|letter| char::from(*letter))
            .collect()
    }
}

fn suspended() -> Refusal {
    Refusal::new(403, "This installation has been suspended")
}

fn permissions(runners: Option<Level>) -> Value {
    match runners {
        Some(level) => json!({"metadata": "read", RUNNERS: level.as_str()}),
        None => json!({"metadata": "read"}),
    }
}

/// A time as GitHub prints it.
fn seconds(at: Timestamp) -> Value {
    json!(Timestamp::from_second(at.as_second()).unwrap_or(at))
}
