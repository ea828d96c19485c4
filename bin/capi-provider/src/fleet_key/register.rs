//! What has to change in IAM so that it agrees with a fleet's Secret.

use russet_scaleway::iam::SshKey;
use russet_scaleway::{ProjectId, SshKeyId};

/// What the Secret wants.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) project: &'a ProjectId,
    /// The fleet, which is the name of the registration.
    pub(super) name: &'a str,
    pub(super) public: &'a str,
    /// The registration the Secret names.
    pub(super) recorded: Option<SshKeyId>,
    /// Whether we made the Secret. Beside an operator's own, other registrations of the name are not ours to judge.
    pub(super) ours: bool,
    /// Registrations this very call made.
    pub(super) made: &'a [SshKeyId],
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It is registered; the others are to go.
    Keep { id: SshKeyId, surplus: Vec<SshKeyId> },
    /// It has to be registered; then the others are to go.
    Create { surplus: Vec<SshKeyId> },
    /// Somebody disabled it, so hosts do not get it.
    Disabled { id: SshKeyId },
}

/// Decides by what IAM lists.
pub(super) fn plan(keys: &[SshKey], wanted: &Wanted<'_>) -> Plan {
    let mine = || keys.iter().filter(|key| key.project_id == *wanted.project);
    let same = || mine().filter(|key| key.is_key(wanted.public));
    // Several callers that see the same list come to the same choice, and the one the Secret names stands.
    let kept = same().filter(|key| !key.disabled).min_by_key(|key| {
        (
            Some(&key.id) != wanted.recorded.as_ref(),
            key.name != wanted.name,
            &key.id,
        )
    });
    if kept.is_none()
        && let Some(disabled) = same().next()
    {
        return Plan::Disabled {
            id: disabled.id.clone(),
        };
    }
    let surplus = mine()
        .filter(|key| kept.is_none_or(|kept| kept.id != key.id))
        .filter(|key| wanted.made.contains(&key.id) || (wanted.ours && key.name == wanted.name))
        .map(|key| key.id.clone())
        .collect();
    match kept {
        Some(kept) => Plan::Keep {
            id: kept.id.clone(),
            surplus,
        },
        None => Plan::Create { surplus },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAA tuist-capi-macs";

    fn key(id: &str, name: &str, public: &str, project: &str) -> SshKey {
        SshKey {
            id: id.parse().unwrap(),
            name: name.into(),
            public_key: public.into(),
            project_id: project.parse().unwrap(),
            disabled: false,
        }
    }

    fn ids(ids: &[&str]) -> Vec<SshKeyId> {
        ids.iter().map(|id| id.parse().unwrap()).collect()
    }

    fn decide(keys: &[SshKey], ours: bool, recorded: Option<&str>, made: &[&str]) -> Plan {
        plan(
            keys,
            &Wanted {
                project: &"p1".parse().unwrap(),
                name: "macs",
                public: KEY,
                recorded: recorded.map(|id| id.parse().unwrap()),
                ours,
                made: &ids(made),
            },
        )
    }

    #[test]
    fn a_registered_key_is_kept_whatever_its_name_and_comment() {
        let keys = [key("k1", "by-hand", "ssh-ed25519 AAAA me@laptop", "p1")];
        let kept = Plan::Keep {
            id: "k1".parse().unwrap(),
            surplus: vec![],
        };
        assert_eq!(decide(&keys, true, None, &[]), kept);
    }

    #[test]
    fn a_key_of_another_project_is_neither_used_nor_touched() {
        let keys = [
            key("k1", "macs", KEY, "p2"),
            key("k2", "macs", "ssh-ed25519 BBBB x", "p2"),
        ];
        assert_eq!(decide(&keys, true, None, &[]), Plan::Create { surplus: vec![] });
    }

    #[test]
    fn another_key_of_the_name_is_replaced_only_if_the_secret_is_ours() {
        let keys = [
            key("k1", "macs", "ssh-ed25519 BBBB old", "p1"),
            key("k2", "macs-2", "ssh-ed25519 CCCC other", "p1"),
        ];
        assert_eq!(decide(&keys, true, None, &[]), Plan::Create { surplus: ids(&["k1"]) });
        assert_eq!(decide(&keys, false, None, &[]), Plan::Create { surplus: vec![] });
    }

    #[test]
    fn the_registration_the_secret_names_wins_over_a_double() {
        let keys = [key("k1", "macs", KEY, "p1"), key("k2", "macs", KEY, "p1")];
        let keep = |id: &str, surplus: &[&str]| Plan::Keep {
            id: id.parse().unwrap(),
            surplus: ids(surplus),
        };
        assert_eq!(decide(&keys, true, Some("k2"), &[]), keep("k2", &["k1"]));
        assert_eq!(decide(&keys, true, None, &[]), keep("k1", &["k2"]));
        assert_eq!(decide(&keys, true, Some("gone"), &[]), keep("k1", &["k2"]));
        assert_eq!(decide(&keys, false, Some("k2"), &["k1"]), keep("k2", &["k1"]));
    }

    #[test]
    fn a_disabled_key_is_reported_not_doubled() {
        let mut disabled = key("k1", "macs", KEY, "p1");
        disabled.disabled = true;
        assert_eq!(
            decide(&[disabled.clone()], true, None, &[]),
            Plan::Disabled {
                id: "k1".parse().unwrap()
            }
        );
        let both = [disabled, key("k2", "macs", KEY, "p1")];
        assert!(matches!(decide(&both, false, None, &[]), Plan::Keep { .. }));
    }
}
