//! What other people do to the world.

use super::{Installation, Level, World};
use crate::deed::{Deed, DeedError};
use crate::key::PublicKey;
use crate::runners::{Org, Runner, RunnerStatus};
use jiff::Timestamp;

impl World {
    /// Does what somebody else does.
    pub(crate) fn perform(&mut self, now: Timestamp, deed: Deed) -> Result<(), DeedError> {
        match deed {
            Deed::AddApp { app, public_key } => {
                let key = PublicKey::from_pem(&public_key)?;
                if self.apps.insert(app, vec![key]).is_some() {
                    return Err(exists("App", &app));
                }
            }
            Deed::AddKey { app, public_key } => {
                let key = PublicKey::from_pem(&public_key)?;
                self.apps.get_mut(&app).ok_or_else(|| missing("App", &app))?.push(key);
            }
            Deed::RemoveKeys { app } => self.apps.get_mut(&app).ok_or_else(|| missing("App", &app))?.clear(),
            Deed::AddOrg { org } => drop(self.org_or_new(&org)),
            Deed::Install {
                app,
                installation,
                org,
                runners,
            } => {
                if !self.apps.contains_key(&app) {
                    return Err(missing("App", &app));
                }
                let runners = Level::parse(runners.as_deref())?;
                let made = Installation {
                    app,
                    org: self.org_or_new(&org),
                    runners,
                    suspended_at: None,
                };
                if self.installations.insert(installation, made).is_some() {
                    return Err(exists("installation", &installation));
                }
            }
            Deed::Grant { installation, runners } => {
                self.installed(installation)?.runners = Level::parse(runners.as_deref())?;
            }
            Deed::Suspend {
                installation,
                suspended,
            } => self.installed(installation)?.suspended_at = suspended.then_some(now),
            Deed::Uninstall { installation } => {
                self.installed(installation)?;
                self.installations.remove(&installation);
                self.revoke(installation);
            }
            Deed::RevokeTokens { installation } => {
                self.installed(installation)?;
                self.revoke(installation);
            }
            Deed::Register {
                org,
                token,
                name,
                labels,
            } => {
                let registration = self.registrations.get(&token).ok_or(DeedError::Token)?;
                if registration.org != org.to_lowercase() || registration.ends <= now {
                    return Err(DeedError::Token);
                }
                self.add_runner(&org, &name, labels)?;
            }
            Deed::AddRunners { org, count } => {
                for _ in 0..count {
                    let name = format!("runner-{}", self.last_runner + 1);
                    self.add_runner(&org, &name, vec!["self-hosted".to_owned()])?;
                }
            }
            Deed::SetRunner {
                org,
                name,
                status,
                busy,
            } => {
                let runner = self.org(&org)?.named(&name).ok_or_else(|| missing("runner", &name))?;
                (runner.status, runner.busy) = (status, busy);
            }
            Deed::RemoveRunner { org, name } => {
                let org = self.org(&org)?;
                let id = org.named(&name).ok_or_else(|| missing("runner", &name))?.id;
                org.runners.remove(&id);
            }
        }
        Ok(())
    }

    fn add_runner(&mut self, org: &str, name: &str, labels: Vec<String>) -> Result<(), DeedError> {
        let id = self.last_runner + 1;
        let org = self.org(org)?;
        // A host that registers again under its name replaces what was there.
        if let Some(old) = org.named(name).map(|runner| runner.id) {
            org.runners.remove(&old);
        }
        let runner = Runner {
            id,
            name: name.to_owned(),
            status: RunnerStatus::Online,
            busy: false,
            labels,
            ephemeral: false,
        };
        org.runners.insert(id, runner);
        self.last_runner = id;
        Ok(())
    }

    fn org(&mut self, org: &str) -> Result<&mut Org, DeedError> {
        self.orgs
            .get_mut(&org.to_lowercase())
            .ok_or_else(|| missing("organisation", org))
    }

    fn org_or_new(&mut self, login: &str) -> String {
        let key = login.to_lowercase();
        self.orgs.entry(key.clone()).or_insert_with(|| Org::new(login));
        key
    }

    fn installed(&mut self, id: u64) -> Result<&mut Installation, DeedError> {
        self.installations
            .get_mut(&id)
            .ok_or_else(|| missing("installation", &id))
    }

    fn revoke(&mut self, installation: u64) {
        self.tokens.retain(|_, token| token.installation != installation);
    }
}

fn missing(what: &'static str, which: &(impl ToString + ?Sized)) -> DeedError {
    DeedError::Missing {
        what,
        which: which.to_string(),
    }
}

fn exists(what: &'static str, which: &(impl ToString + ?Sized)) -> DeedError {
    DeedError::Exists {
        what,
        which: which.to_string(),
    }
}
