//! The name of an organisation.

use std::fmt;
use std::str::FromStr;

/// Longest login GitHub gives.
const MAX: usize = 39;

/// An organisation's login. It becomes part of a path, so nothing else gets in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Org(String);

/// A text that is no login.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the name of a GitHub organisation: letters, digits and single hyphens, at most {MAX}, \
     as in https://github.com/<name>; correct spec.ghActionsRunner.ghOrg"
)]
pub struct InvalidOrg(String);

impl Org {
    /// The login as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the same organisation; GitHub does not tell case apart.
    pub fn is(&self, login: &str) -> bool {
        self.0.eq_ignore_ascii_case(login)
    }
}

impl FromStr for Org {
    type Err = InvalidOrg;

    fn from_str(text: &str) -> Result<Self, InvalidOrg> {
        let login = text.trim();
        let fine = !login.is_empty()
            && login.len() <= MAX
            && login.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
            && !login.starts_with('-');
        if fine {
            Ok(Self(login.to_owned()))
        } else {
            Err(InvalidOrg(login.chars().take(MAX + 1).collect()))
        }
    }
}

impl fmt::Display for Org {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_trimmed_and_nothing_else_is_let_into_a_path() {
        assert_eq!(" tuist\n".parse::<Org>().unwrap().as_str(), "tuist");
        for bad in ["", "a/b", "../x", "a b", "-a", "é", "a?b", &"x".repeat(40)] {
            let error = bad.parse::<Org>().unwrap_err().to_string();
            assert!(error.contains("ghOrg"), "{error}");
        }
    }
}
