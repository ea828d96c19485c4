//! ccache: `/ccache/{project}/…` in its three layouts, which name the same entries.
//!
//! `subdirs` (the default) is `{2}/{rest}`, `flat` is `{key}`, `bazel` is `ac/{64 hex}`: the 40 digits of a key followed by its
//! first 24 again. Keys are 40 hexadecimal digits in ccache 4.14, 33 digits to base 32 in 4.7.

use super::Protocol;
use crate::blob::Kind;
use crate::http::head::Head;
use crate::http::reply::Error;
use crate::http::route::Route;
use crate::http::service::{Plan, Service};
use russet_identity::Scope;
use std::borrow::Cow;

const PROTOCOL: Protocol = Protocol::tool(Route::Ccache, Kind::Ccache);

pub(in crate::http) fn plan(service: &Service, head: &Head<'_>, path: &str, scope: &Scope<'_>) -> Result<Plan, Error> {
    let key = key(path).ok_or(Error::refused(400, "Not a ccache key"))?;
    PROTOCOL.plan(service, head, scope.namespace(), key.as_bytes())
}

/// Digits of a name in the layout `bazel`.
const BAZEL: usize = 64;

/// The key a path stands for. Nothing in one needs escaping, so escapes are refused.
fn key(path: &str) -> Option<Cow<'_, str>> {
    let key = match path.split_once('/') {
        None => Cow::Borrowed(path),
        // A key may begin with `ac`, too: what follows is shorter then.
        Some(("ac", long)) if long.len() == BAZEL => {
            let (key, again) = long.split_at_checked(40)?;
            let repeats = key.get(..24) == Some(again);
            return (repeats && key.bytes().all(is_hex)).then_some(Cow::Borrowed(key));
        }
        Some((first, rest)) if first.len() == 2 => Cow::Owned(format!("{first}{rest}")),
        Some(_) => return None,
    };
    let known = match key.len() {
        40 => key.bytes().all(is_hex),
        33 => key
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'v').contains(&byte)),
        _ => false,
    };
    known.then_some(key)
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_layouts_name_one_entry() {
        let hex = "0123456789abcdef0123456789abcdef01234567";
        let bazel = format!("ac/{hex}{}", &hex[..24]);
        for path in [hex, &format!("{}/{}", &hex[..2], &hex[2..]), &bazel] {
            assert_eq!(key(path).as_deref(), Some(hex), "{path}");
        }
        for key_of_ac in [
            "ac23456789abcdef0123456789abcdef01234567",
            "acv0123456789abcdefghijklmnopqrst",
        ] {
            assert_eq!(key(&format!("ac/{}", &key_of_ac[2..])).as_deref(), Some(key_of_ac));
        }
        let old = "9fv0123456789abcdefghijklmnopqrst";
        assert_eq!(key(&format!("9f/{}", &old[2..])).as_deref(), Some(old));
        assert_eq!(key(old).as_deref(), Some(old));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let hex = "0123456789abcdef0123456789abcdef01234567";
        for bad in [
            "",
            "..",
            "ab/..",
            "../ab",
            "ab/cd/ef",
            &hex.to_uppercase(),
            &hex[1..],
            &format!("ac/{hex}"),
            "ac/",
            &format!("ac/{hex}{}", "0".repeat(24)),
            "%61b/cd",
            &format!("{}/{}", &hex[..3], &hex[3..]),
        ] {
            assert_eq!(key(bad), None, "{bad}");
        }
    }
}
