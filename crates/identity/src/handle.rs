//! Names of accounts and projects, folded to one spelling before anyone compares or stores them.
//!
//! The cache this one replaces compared handles in lower case and stored them as written, so `iOS` and `ios` were one
//! grant and two stores. Here folding happens in the only functions that let a handle into a [`crate::Scope`], and it is
//! ASCII only: Unicode folding would map the Kelvin sign to `k`, and with it one account's name to another's. What is not
//! ASCII is no handle.

use std::borrow::Cow;

use russet_api::values::AccountHandle;

/// Longest name of a project.
pub const MAX_PROJECT_BYTES: usize = 128;

/// Folds and checks the name of an account, for configuration.
pub fn account_handle(text: &str) -> Result<AccountHandle, InvalidHandle> {
    let folded = account(Cow::Borrowed(text))?;
    AccountHandle::try_from(folded.as_ref()).map_err(|_| InvalidHandle::Account)
}

/// Folds and checks the name of an account, without allocating when there is nothing to fold. The rule is that of
/// [`AccountHandle`]; a property test holds the two together.
pub(crate) fn account(text: Cow<'_, str>) -> Result<Cow<'_, str>, InvalidHandle> {
    let bytes = text.as_bytes();
    let edge = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let valid = bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'-');
    if valid {
        Ok(fold(text))
    } else {
        Err(InvalidHandle::Account)
    }
}

/// Folds and checks the name of a project. Never `..`, never a hidden file, never a flag: it is safe as a path segment.
pub(crate) fn project(text: Cow<'_, str>) -> Result<Cow<'_, str>, InvalidHandle> {
    let bytes = text.as_bytes();
    let word = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_';
    let valid = bytes.len() <= MAX_PROJECT_BYTES
        && bytes.first().is_some_and(word)
        && bytes.iter().all(|c| word(c) || matches!(*c, b'.' | b'-'));
    if valid {
        Ok(fold(text))
    } else {
        Err(InvalidHandle::Project)
    }
}

fn fold(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.bytes().any(|c| c.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        text
    }
}

/// A name that is none. Does not quote the text: it comes from outside and ends up in responses and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHandle {
    /// Not an account.
    #[error("an account handle is 1 to 63 letters, digits and dashes with a letter or digit at both ends")]
    Account,
    /// Not a project.
    #[error(
        "a project handle is 1 to 128 letters, digits, dots, dashes and underscores, beginning with a letter, digit or underscore"
    )]
    Project,
    /// Not `account/project`.
    #[error("a full handle is an account and a project with one slash between them")]
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spelling_in_upper_case_names_the_same_account_and_project() {
        let upper = account_handle("ACME-Corp").unwrap();
        assert_eq!(upper, account_handle("acme-corp").unwrap());
        assert_eq!(project("iOS_App.2".into()).unwrap(), "ios_app.2");
    }

    /// U+212A (Kelvin) folds to `k` and U+017F (long s) to `s` when upper-cased; neither may reach another's name.
    #[test]
    fn letters_that_only_look_like_ascii_are_refused() {
        for bad in [
            "\u{212a}ura",
            "acme\u{17f}",
            "аcme",
            "acme\u{200b}",
            "acme\0",
            "ａcme",
            "",
        ] {
            assert_eq!(account(bad.into()), Err(InvalidHandle::Account), "{bad:?}");
            assert_eq!(project(bad.into()), Err(InvalidHandle::Project), "{bad:?}");
        }
    }

    #[test]
    fn a_project_cannot_leave_its_place_in_a_path() {
        for bad in [
            ".", "..", "../x", "a/b", "a\\b", ".hidden", "-flag", "a b", "a%2fb", "a\n",
        ] {
            assert!(project(bad.into()).is_err(), "{bad:?}");
        }
        assert!(project("a".repeat(129).into()).is_err());
    }

    #[test]
    fn lower_case_is_passed_on_without_a_copy() {
        assert!(matches!(account("acme".into()), Ok(Cow::Borrowed("acme"))));
        assert!(matches!(project("ios".into()), Ok(Cow::Borrowed("ios"))));
    }

    proptest! {
        #[test]
        fn folding_twice_changes_nothing(text in "[A-Za-z0-9_][A-Za-z0-9._-]{0,40}") {
            let once = project(text.into()).unwrap();
            prop_assert_eq!(project(once.clone()).unwrap(), once);
        }

        #[test]
        fn an_account_is_exactly_what_the_api_calls_one(text in "([a-zA-Z0-9._-]{0,66}|\\PC{0,8})") {
            let api = AccountHandle::try_from(text.to_ascii_lowercase());
            let ours = account(text.as_str().into());
            prop_assert_eq!(api.ok().map(String::from), ours.ok().map(Cow::into_owned));
        }

        #[test]
        fn parsing_never_panics_and_only_lets_lower_case_through(text in "\\PC*") {
            if let Ok(project) = project(text.as_str().into()) {
                prop_assert_eq!(project, text.to_ascii_lowercase());
            }
        }
    }
}
