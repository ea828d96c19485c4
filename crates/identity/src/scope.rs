//! What a request is about: an account, or one project of it.
//!
//! Whoever speaks a protocol decodes its parameters once and hands them to [`Scope::parse`]; the authoriser and the
//! storage take nothing but the result. A request cannot be authorised for one project and act on another, because there
//! is no second reading of its parameters. Text that is in lower case already is borrowed, so the usual request pays
//! nothing for this.

use std::borrow::Cow;
use std::fmt;

use russet_api::values::AccountHandle;

use crate::denial::{Denial, Refusal};
use crate::handle::{self, InvalidHandle};

/// What is needed, or granted. Ordered: who may write may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// GET, HEAD, and every look-up.
    Read,
    /// PUT, POST of a body, DELETE.
    Write,
}

impl Access {
    /// `read` or `write`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// An account, or one project of it. Neither covers the other. Handles are valid and in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope<'a> {
    account: Cow<'a, str>,
    /// Empty for the account itself; no valid handle is.
    project: Cow<'a, str>,
}

impl<'a> Scope<'a> {
    /// The scope of two decoded parameters, where empty stands for absent. Without an account the answer is
    /// `400 Missing tenant_id`; without a project the scope is the account itself. A name that is no handle is 400.
    pub fn parse(account: impl Into<Cow<'a, str>>, project: impl Into<Cow<'a, str>>) -> Result<Self, Denial> {
        let (account, project) = (account.into(), project.into());
        if account.is_empty() {
            return Err(Denial::missing_tenant());
        }
        let invalid =
            |name: &str, error: InvalidHandle| Denial::new(Refusal::BadRequest, format!("Invalid {name}: {error}"));
        Ok(Self {
            account: handle::account(account).map_err(|error| invalid("tenant_id", error))?,
            project: if project.is_empty() {
                project
            } else {
                handle::project(project).map_err(|error| invalid("namespace_id", error))?
            },
        })
    }

    /// The scope of an account and a REAPI instance name, which may have several segments where a project has one. Nobody can
    /// be granted a name with more than one, so those are for nodes that let anybody in.
    pub fn parse_instance(account: impl Into<Cow<'a, str>>, instance: &'a str) -> Result<Self, Denial> {
        if !instance.contains('/') {
            return Self::parse(account, instance);
        }
        let scope = Self::parse(account, "")?;
        let valid = instance.len() <= handle::MAX_PROJECT_BYTES
            && instance
                .split('/')
                .all(|segment| handle::project(segment.into()).is_ok());
        if !valid {
            let message = format!("Invalid instance name: {}", InvalidHandle::Project);
            return Err(Denial::new(Refusal::BadRequest, message));
        }
        let project = if instance.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(instance.to_ascii_lowercase())
        } else {
            Cow::Borrowed(instance)
        };
        Ok(Self { project, ..scope })
    }

    /// The account itself: what Nx and Metro requests are about, which name neither account nor project.
    pub fn of_account(account: &'a AccountHandle) -> Self {
        Self {
            account: Cow::Borrowed(account.as_str()),
            project: Cow::Borrowed(""),
        }
    }

    /// The project of a full handle, `account/project`.
    pub fn from_full_handle(text: &'a str) -> Result<Self, InvalidHandle> {
        let (account, project) = text.split_once('/').ok_or(InvalidHandle::Full)?;
        Ok(Self {
            account: handle::account(account.into())?,
            project: handle::project(project.into())?,
        })
    }

    /// The account of a handle.
    pub fn from_account_handle(text: &'a str) -> Result<Self, InvalidHandle> {
        Ok(Self {
            account: handle::account(text.into())?,
            project: Cow::Borrowed(""),
        })
    }

    /// The account, lower case.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// The project, lower case; none for the account itself.
    pub fn project(&self) -> Option<&str> {
        (!self.project.is_empty()).then_some(self.project.as_ref())
    }

    /// Name of the namespace in storage: the project, or nothing for the account itself.
    pub fn namespace(&self) -> &str {
        &self.project
    }

    /// Keeps the scope beyond the life of the request.
    pub fn into_owned(self) -> Scope<'static> {
        Scope {
            account: Cow::Owned(self.account.into_owned()),
            project: Cow::Owned(self.project.into_owned()),
        }
    }
}

/// `account` or `account/project`.
impl fmt::Display for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.account)?;
        match self.project() {
            Some(project) => write!(f, "/{project}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_account_is_missing_and_an_absent_project_is_the_account() {
        assert_eq!(Scope::parse("", "ios").unwrap_err(), Denial::missing_tenant());
        let scope = Scope::parse("acme", "").unwrap();
        let seen = (scope.account(), scope.project(), scope.namespace());
        assert_eq!(seen, ("acme", None, ""));
        let scope = Scope::parse("Acme", "iOS").unwrap();
        assert_eq!((scope.account(), scope.namespace()), ("acme", "ios"));
        assert_eq!(scope.to_string(), "acme/ios");
    }

    #[test]
    fn a_name_that_is_no_handle_is_a_bad_request_that_does_not_quote_it() {
        for (account, project) in [
            ("acme/ios", ""),
            ("a b", ""),
            ("acme", "../canary"),
            ("acme", "ca\u{212a}nary"),
        ] {
            let denial = Scope::parse(account, project).unwrap_err();
            assert_eq!(denial.http_status(), 400);
            assert!(!denial.message().contains("nary"), "{denial}");
        }
    }

    #[test]
    fn an_instance_may_have_several_segments_none_of_which_leads_elsewhere() {
        let scope = Scope::parse_instance("acme", "Team/iOS").unwrap();
        assert_eq!((scope.account(), scope.namespace()), ("acme", "team/ios"));
        let instance = Scope::parse_instance("acme", "ios").unwrap();
        assert_eq!(instance, Scope::parse("acme", "ios").unwrap());
        for bad in ["a/../b", "a//b", "/a", "a/", "../a", "a/b c", &"a/".repeat(100)] {
            let refused = Scope::parse_instance("acme", bad).unwrap_err().http_status();
            assert_eq!(refused, 400, "{bad}");
        }
        let refused = Scope::from_full_handle("acme/team/ios").is_err();
        assert!(refused, "such a scope cannot be granted");
    }

    #[test]
    fn a_full_handle_has_one_slash() {
        let full = Scope::from_full_handle("Acme/App").unwrap();
        assert_eq!(full, Scope::parse("acme", "app").unwrap());
        for bad in ["", "acme", "acme/", "/app", "acme/app/x", "acme//app"] {
            assert!(Scope::from_full_handle(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_scope_of_lower_case_text_borrows_it() {
        let scope = Scope::parse("acme", "ios").unwrap();
        assert!(matches!(scope.account, Cow::Borrowed(_)) && matches!(scope.project, Cow::Borrowed(_)));
    }
}
