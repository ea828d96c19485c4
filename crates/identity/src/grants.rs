//! What a token says its bearer may do.
//!
//! Rules: handles are folded like those of a request; write implies read; a grant of the account does not cover its
//! projects, nor the reverse. A handle that could never be a scope grants nothing and is skipped, so one odd name does
//! not cost the bearer the rest.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::scope::{Access, Scope};

/// Rights by scope, and the accounts that have to pay. Compact and sorted, since up to a hundred thousand are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Right over every scope there is; only static tokens can have it.
    everything: Option<Access>,
    /// Sorted by scope, one entry each.
    scopes: Box<[(Scope<'static>, Access)]>,
    /// Accounts, sorted.
    unpaid: Box<[Scope<'static>]>,
    /// The backend said "payment required" without saying for whom.
    unpaid_any: bool,
}

impl Grants {
    /// A right over everything the node holds.
    pub fn everything(access: Access) -> Self {
        Self {
            everything: Some(access),
            ..Self::default()
        }
    }

    /// Rights by scope; the larger one counts where a scope is named twice.
    pub fn of(rights: impl IntoIterator<Item = (Scope<'static>, Access)>) -> Self {
        let mut scopes: BTreeMap<Scope<'static>, Access> = BTreeMap::new();
        for (scope, access) in rights {
            let held = scopes.entry(scope).or_insert(access);
            *held = access.max(*held);
        }
        Self {
            scopes: scopes.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Whether the grants cover this. Allocates nothing.
    pub fn permit(&self, scope: &Scope<'_>, access: Access) -> bool {
        self.everything.is_some_and(|held| held >= access)
            || self
                .scopes
                .binary_search_by(|(held, _)| key(held).cmp(&key(scope)))
                .ok()
                .and_then(|at| self.scopes.get(at))
                .is_some_and(|(_, held)| *held >= access)
    }

    /// Whether the account is known to owe something. Asked only when the grants do not suffice: who holds a grant is
    /// served.
    pub fn payment_required(&self, account: &str) -> bool {
        self.unpaid_any || self.unpaid.binary_search_by(|held| held.account().cmp(account)).is_ok()
    }

    /// Whether nothing at all is granted.
    pub fn is_empty(&self) -> bool {
        self.everything.is_none() && self.scopes.is_empty()
    }

    pub(crate) fn with_unpaid(mut self, unpaid: Option<Unpaid>) -> Self {
        match unpaid {
            None => {}
            Some(Unpaid::Flag(flag)) => self.unpaid_any = flag,
            Some(Unpaid::Accounts(accounts)) => {
                let mut accounts: Vec<_> = accounts.iter().filter_map(|a| account(a)).collect();
                accounts.sort_unstable();
                accounts.dedup();
                self.unpaid = accounts.into_boxed_slice();
            }
        }
        self
    }
}

/// `cache_payment_required`: the accounts, or in answers of the backend possibly just a flag.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Unpaid {
    Accounts(Vec<String>),
    Flag(bool),
}

/// `cache_grants` as it is in a token and in an introspection answer.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct CacheGrants {
    #[serde(default)]
    account: Option<Rights>,
    #[serde(default)]
    project: Option<Rights>,
}

#[derive(Debug, Default, Deserialize)]
struct Rights {
    #[serde(default)]
    read: Option<Vec<String>>,
    #[serde(default)]
    write: Option<Vec<String>>,
}

impl CacheGrants {
    pub(crate) fn into_grants(self) -> Grants {
        let accounts = self.account.unwrap_or_default();
        let projects = self.project.unwrap_or_default();
        Grants::of(accounts.parsed(account).into_iter().chain(projects.parsed(project)))
    }
}

impl Rights {
    fn parsed(self, parse: fn(&str) -> Option<Scope<'static>>) -> Vec<(Scope<'static>, Access)> {
        let of = |list: Option<Vec<String>>, access: Access| {
            let list = list.unwrap_or_default();
            let scopes: Vec<_> = list.iter().filter_map(|t| parse(t)).map(|s| (s, access)).collect();
            scopes
        };
        let mut rights = of(self.read, Access::Read);
        rights.extend(of(self.write, Access::Write));
        rights
    }
}

/// A project in the answer of `/api/cache/access`, or in the `projects` claim of older tokens.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum ProjectName {
    Plain(String),
    Object { full_name: String },
}

/// Projects without a word on reading or writing have always meant both.
pub(crate) fn full_access(projects: &[ProjectName]) -> Grants {
    Grants::of(projects.iter().filter_map(|name| {
        let (ProjectName::Plain(text) | ProjectName::Object { full_name: text }) = name;
        Some((project(text)?, Access::Write))
    }))
}

fn account(text: &str) -> Option<Scope<'static>> {
    Scope::from_account_handle(text).ok().map(Scope::into_owned)
}

fn project(text: &str) -> Option<Scope<'static>> {
    Scope::from_full_handle(text).ok().map(Scope::into_owned)
}

/// What scopes of different lifetimes are compared by; the same order as `Ord` of `Scope`.
fn key<'s>(scope: &'s Scope<'_>) -> (&'s str, &'s str) {
    (scope.account(), scope.namespace())
}

#[cfg(test)]
mod tests;
