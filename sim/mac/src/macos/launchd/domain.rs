//! The names of domains and services. [facts 1.1]

use crate::macos::image::UID;
use std::fmt;

/// Where jobs live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Domain {
    System,
    User(u32),
    Gui(u32),
}

impl Domain {
    /// How errors call it.
    pub(crate) fn in_words(self) -> String {
        match self {
            Self::System => "system".to_owned(),
            Self::User(uid) => format!("user uid: {uid}"),
            Self::Gui(uid) => format!("user gui: {uid}"),
        }
    }

    /// Whose jobs they are.
    pub(crate) fn owner(self) -> u32 {
        match self {
            Self::System => 0,
            Self::User(uid) | Self::Gui(uid) => uid,
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("system"),
            Self::User(uid) => write!(f, "user/{uid}"),
            Self::Gui(uid) => write!(f, "gui/{uid}"),
        }
    }
}

/// A domain, or a service in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) domain: Domain,
    pub(crate) label: Option<String>,
}

impl Target {
    /// Reads `system/label`, `gui/501`, `user/501/label`; none is no target.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('/').unwrap_or((text, ""));
        let (domain, label) = match kind {
            "system" => (Domain::System, rest),
            "user" | "gui" => {
                let (uid, label) = rest.split_once('/').unwrap_or((rest, ""));
                let uid = uid.parse().ok()?;
                let domain = if kind == "gui" {
                    Domain::Gui(uid)
                } else {
                    Domain::User(uid)
                };
                (domain, label)
            }
            _ => return None,
        };
        Some(Self {
            domain,
            label: (!label.is_empty()).then(|| label.to_owned()),
        })
    }
}

/// Users that exist.
pub(crate) fn exists(uid: u32) -> bool {
    uid == 0 || uid == UID
}

/// What `launchctl error` knows. [facts 1.1; the first of each pair from there, errno texts from Darwin]
const TEXTS: &[(i32, &str)] = &[
    (0, "Undefined error: 0"),
    (1, "Operation not permitted"),
    (2, "No such file or directory"),
    (3, "No such process"),
    (5, "Input/output error"),
    (13, "Permission denied"),
    (17, "File exists"),
    (22, "Invalid argument"),
    (36, "Operation now in progress"),
    (37, "Operation already in progress"),
    (107, "Malformed bundle"),
    (108, "Invalid path"),
    (109, "Invalid property list"),
    (110, "Invalid or missing service identifier"),
    (111, "Invalid or missing Program/ProgramArguments"),
    (112, "Could not find specified domain"),
    (113, "Could not find specified service"),
    (114, "The specified username does not exist"),
    (115, "The specified group does not exist"),
    (119, "Service is disabled"),
    (122, "Path had bad ownership/permissions"),
    (124, "Domain is tearing down"),
    (125, "Domain does not support specified action"),
    (133, "Multiple errors were returned; see stderr"),
    (134, "Service cannot load in requested session"),
    (138, "Service cannot be loaded on this hardware"),
    (139, "Service cannot presently execute"),
    (140, "Service name is reserved or invalid"),
    (144, "Requestor lacks required entitlement"),
    (
        150,
        "Operation not permitted while System Integrity Protection is engaged",
    ),
    (154, "Service is not a platform binary"),
    (155, "Refusing to execute/trust quarantined program/file"),
    (159, "Sandbox restriction"),
    (161, "Service cannot be launched because of BTM policy"),
];

/// The text of an error number.
pub(crate) fn text(code: i32) -> &'static str {
    TEXTS
        .iter()
        .find(|(number, _)| *number == code)
        .map_or("unknown error code", |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_launchctl_reads_them() {
        let target = Target::parse("gui/501/dev.tuist.x").unwrap();
        assert_eq!(
            (target.domain, target.label.as_deref()),
            (Domain::Gui(501), Some("dev.tuist.x"))
        );
        assert_eq!(Target::parse("system").unwrap().label, None);
        for bad in ["", "dev.tuist.x", "gui/me/x", "gui"] {
            assert_eq!(Target::parse(bad), None, "{bad}");
        }
    }
}
