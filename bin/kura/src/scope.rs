//! Whose data a request is about: the one parser of query parameters.
//!
//! Incident `scope-confusion`: authorisation read the raw query and handlers the decoded one, so
//! `namespace_id=mine&%6eamespace_id=victim` was authorised for one project and acted on another. Here the query is decoded
//! once into a [`Query`]; the [`Scope`] made from it is what trust decides about **and** what handlers use. A parameter that
//! occurs twice, in whatever spelling, is a 400: nobody has to know which of two values wins.

use russet_identity::{Denial, Scope};
use std::borrow::Cow;

/// Why a query is refused; the text is the answer's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A percent sign without two hexadecimal digits, or bytes that are not UTF-8.
    #[error("Malformed query")]
    Malformed,
    /// A parameter was given twice, or under both of its names.
    #[error("Ambiguous parameter {0}")]
    Ambiguous(&'static str),
    /// A parameter without which the request means nothing.
    #[error("Missing {0}")]
    Missing(&'static str),
}

/// Why a request has no scope.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Its parameters cannot be understood.
    #[error(transparent)]
    Query(#[from] Error),
    /// Its names are no handles.
    #[error(transparent)]
    Handle(#[from] Denial),
}

/// The parameters any route knows, decoded. Unknown parameters are ignored.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Query<'a> {
    tenant: Option<Cow<'a, str>>,
    namespace: Option<Cow<'a, str>>,
    hash: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    cache_category: Option<Cow<'a, str>>,
    upload_id: Option<Cow<'a, str>>,
    part_number: Option<Cow<'a, str>>,
    slug: Option<Cow<'a, str>>,
    team_id: Option<Cow<'a, str>>,
}

impl<'a> Query<'a> {
    /// Decodes a query once. `+` stands for itself: every client of the contract percent-encodes.
    pub fn parse(query: &'a str) -> Result<Self, Error> {
        let mut parsed = Self::default();
        for pair in query.split('&') {
            if pair.is_empty() {
                continue;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name)?;
            let (slot, canonical) = match name.as_ref() {
                "tenant_id" | "account_handle" => (&mut parsed.tenant, "tenant_id"),
                "namespace_id" | "project_handle" => (&mut parsed.namespace, "namespace_id"),
                "hash" => (&mut parsed.hash, "hash"),
                "name" => (&mut parsed.name, "name"),
                "cache_category" => (&mut parsed.cache_category, "cache_category"),
                "upload_id" => (&mut parsed.upload_id, "upload_id"),
                "part_number" => (&mut parsed.part_number, "part_number"),
                "slug" => (&mut parsed.slug, "slug"),
                "teamId" => (&mut parsed.team_id, "teamId"),
                _ => continue,
            };
            if slot.replace(decode(value)?).is_some() {
                return Err(Error::Ambiguous(canonical));
            }
        }
        Ok(parsed)
    }

    /// The scope of a request that must name its tenant. Handles come out in lower case: `iOS` and `ios` are one project.
    pub fn scope(&self) -> Result<Scope<'a>, Denial> {
        Scope::parse(
            self.tenant.clone().unwrap_or_default(),
            self.namespace.clone().unwrap_or_default(),
        )
    }

    /// Turborepo's team: the name it goes by, else its id. A client that knows both sends both.
    pub fn team(&self) -> Option<Cow<'a, str>> {
        let given = |value: &Option<Cow<'a, str>>| value.clone().filter(|value| !value.is_empty());
        given(&self.slug).or_else(|| given(&self.team_id))
    }

    /// Turborepo's team id as sent, which is what its signatures cover; empty if there is none.
    pub fn team_id(&self) -> &str {
        self.team_id.as_deref().unwrap_or_default()
    }

    /// The scope of a request whose path or protocol names the project. A parameter that names one too is refused: nobody
    /// has to know which of the two wins.
    pub fn scope_in(&self, account: &'a str, project: Cow<'a, str>) -> Result<Scope<'a>, Refused> {
        if self.tenant.is_some() {
            return Err(Error::Ambiguous("tenant_id").into());
        }
        if self.namespace.is_some() {
            return Err(Error::Ambiguous("namespace_id").into());
        }
        if project.is_empty() {
            return Err(Error::Missing("project").into());
        }
        Ok(Scope::parse(account, project)?)
    }

    /// A parameter that must be there and not be empty.
    pub fn required(&self, name: &'static str) -> Result<&str, Error> {
        let value = match name {
            "hash" => &self.hash,
            "name" => &self.name,
            "upload_id" => &self.upload_id,
            "part_number" => &self.part_number,
            _ => &None,
        };
        value
            .as_deref()
            .filter(|value| !value.is_empty())
            .ok_or(Error::Missing(name))
    }

    /// The module category, with its default.
    pub fn category(&self) -> &str {
        self.cache_category
            .as_deref()
            .filter(|value| !value.is_empty())
            .unwrap_or("builds")
    }
}

/// Percent-decoding, once. What it yields is never decoded again.
pub fn decode(text: &str) -> Result<Cow<'_, str>, Error> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = rest.next().and_then(hex).ok_or(Error::Malformed)?;
            let low = rest.next().and_then(hex).ok_or(Error::Malformed)?;
            bytes.push(high << 4 | low);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| Error::Malformed)
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scope(query: &str) -> Result<(String, String), String> {
        let parsed = Query::parse(query).map_err(|error| error.to_string())?;
        let scope = parsed.scope().map_err(|denial| denial.to_string())?;
        Ok((scope.account().to_owned(), scope.namespace().to_owned()))
    }

    #[test]
    fn both_spellings_name_the_same_scope() {
        let expected = Ok(("acme".to_owned(), "ios".to_owned()));
        for query in [
            "tenant_id=acme&namespace_id=ios",
            "account_handle=acme&project_handle=ios",
            "project_handle=iOS&account_handle=ACME",
            "tenant_id=%61cme&%6eamespace_id=ios",
            "x=1&tenant_id=acme&&namespace_id=ios&",
        ] {
            assert_eq!(scope(query), expected, "{query}");
        }
    }

    #[test]
    fn without_a_namespace_the_scope_is_the_account() {
        for query in [
            "tenant_id=acme",
            "tenant_id=acme&namespace_id=",
            "tenant_id=acme&project_handle",
        ] {
            assert_eq!(scope(query), Ok(("acme".to_owned(), String::new())), "{query}");
        }
    }

    /// The story of `scope-confusion`: each of these was authorised for one scope and executed for another.
    #[test]
    fn ambiguous_scopes_are_refused_in_every_spelling() {
        for query in [
            "tenant_id=a&namespace_id=mine&namespace_id=victim",
            "tenant_id=a&namespace_id=mine&%6eamespace_id=victim",
            "tenant_id=a&namespace_id=mine&namespace%5Fid=victim",
            "tenant_id=a&namespace_id=&project_handle=ios",
            "tenant_id=a&namespace_id=ios&project_handle=ios",
            "tenant_id=a&account_handle=a",
            "tenant_id=a&tenant_id=a",
        ] {
            assert!(matches!(Query::parse(query), Err(Error::Ambiguous(_))), "{query}");
        }
    }

    #[test]
    fn a_missing_tenant_is_named() {
        for query in ["", "namespace_id=x", "tenant_id=", "Tenant_Id=a"] {
            assert_eq!(scope(query), Err("Missing tenant_id".to_owned()), "{query}");
        }
    }

    #[test]
    fn broken_escapes_and_control_characters_are_refused() {
        for query in [
            "tenant_id=%",
            "tenant_id=%f",
            "tenant_id=%zz",
            "tenant_id=%ff",
            "%=a",
            "tenant_id=a%00",
            "tenant_id=a%0a",
        ] {
            assert!(scope(query).is_err(), "{query}");
        }
    }

    proptest! {
        #[test]
        fn escaping_any_byte_of_a_parameter_changes_nothing(at in 0usize..12, value in "[a-z0-9][a-z0-9-]{0,11}") {
            let name = "namespace_id";
            let escaped: String = name
                .bytes()
                .enumerate()
                .map(|(index, byte)| if index == at { format!("%{byte:02X}") } else { char::from(byte).to_string() })
                .collect();
            let valued = value.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02x}"));
            prop_assert_eq!(scope(&format!("tenant_id=a&{escaped}={valued}")), Ok(("a".to_owned(), value.clone())));
            let doubled = format!("tenant_id=a&namespace_id=mine&{escaped}={valued}");
            prop_assert_eq!(Query::parse(&doubled), Err(Error::Ambiguous("namespace_id")));
        }

        #[test]
        fn no_query_makes_the_parser_panic(query in "\\PC{0,80}") {
            let _ = Query::parse(&query).map(|query| query.scope().is_ok());
        }
    }
}
