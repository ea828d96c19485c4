//! A line of the API server's audit log.

use serde::Deserialize;
use std::borrow::Cow;

#[derive(Deserialize)]
pub(crate) struct Line<'a> {
    #[serde(borrow)]
    pub(crate) verb: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) stage: Cow<'a, str>,
    #[serde(borrow)]
    user: User<'a>,
    #[serde(borrow, rename = "objectRef")]
    object: Option<Object<'a>>,
}

#[derive(Deserialize)]
struct User<'a> {
    #[serde(borrow)]
    username: Cow<'a, str>,
}

#[derive(Deserialize, Default)]
struct Object<'a> {
    #[serde(borrow, default)]
    resource: Cow<'a, str>,
    #[serde(borrow, default)]
    subresource: Cow<'a, str>,
}

impl<'a> Line<'a> {
    /// `None` if it is no such line.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(crate) fn user(&self) -> &str {
        &self.user.username
    }

    /// What was asked, such as `patch pods/status`.
    pub(crate) fn what(&self) -> String {
        let verb = &self.verb;
        match self
            .object
            .as_ref()
            .map(|object| (&*object.resource, &*object.subresource))
        {
            None | Some(("", _)) => format!("{verb} (other)"),
            Some((resource, "")) => format!("{verb} {resource}"),
            Some((resource, part)) => format!("{verb} {resource}/{part}"),
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        is_write(&self.verb)
    }
}

/// Whether something that was asked changes anything: `patch`, or `patch pods/status`.
pub(crate) fn is_write(what: &str) -> bool {
    let verb = what.split(' ').next().unwrap_or_default();
    matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection")
}
