//! The status of a cluster, as a function of what was found. Pure.

use jiff::Timestamp;
use russet_api::ScalewayAppleSiliconClusterStatus as Status;
use russet_api::apple_silicon_cluster::FailureDomain;
use russet_api::conditions::{self, Condition, ConditionStatus, Severity, reasons, types};

use super::connection::{Connection, Finding};

/// What is found about a cluster.
#[derive(Debug)]
pub(super) enum Facts<'a> {
    /// No Cluster refers to it.
    Unowned,
    /// Somebody wants it left alone.
    Paused { why: &'static str },
    /// It was looked at.
    Seen {
        /// Why the spec has no endpoint, if it has none.
        no_endpoint: Option<&'a Finding>,
        connection: &'a Connection,
        zones: &'a [String],
    },
}

/// Puts the facts into the status.
pub(super) fn tell(status: &mut Status, facts: &Facts<'_>, generation: Option<i64>, now: Timestamp) {
    let mut set = |condition: Condition| {
        conditions::set(&mut status.conditions, condition.observed_generation(generation), now);
    };
    match facts {
        Facts::Unowned => {
            let message = "no Cluster names this object as infrastructureRef yet";
            set(Condition::new(types::READY, false, reasons::WAITING_FOR_OWNER)
                .message(message)
                .severity(Severity::Info));
        }
        Facts::Paused { why } => set(Condition::new(types::PAUSED, true, reasons::PAUSED).message(*why)),
        Facts::Seen {
            no_endpoint,
            connection,
            zones,
        } => {
            set(Condition::new(types::PAUSED, false, reasons::NOT_PAUSED));
            let ready = [*no_endpoint, Some(&connection.secret), Some(&connection.rights)];
            set(told(types::READY, &ready.into_iter().flatten().collect::<Vec<_>>()));
            set(told(types::AVAILABLE, &[&connection.answers]));
            // Both are about the first time: core takes them once, and what happened does not unhappen.
            let initialization = status.initialization.get_or_insert_default();
            if no_endpoint.is_none() && matches!(connection.secret, Finding::Good(_)) {
                initialization.provisioned = Some(true);
                status.ready = Some(true);
            }
            let usable = matches!(connection.secret, Finding::Good(_));
            if usable && !matches!(connection.answers, Finding::Bad { .. }) {
                initialization.control_plane_initialized = Some(true);
                status.initialized = Some(true);
            }
            status.external_managed_control_plane = Some(true);
            if !zones.is_empty() {
                status.failure_domains = zones.iter().map(|zone| domain(zone)).collect();
            }
        }
    }
    status.observed_generation = generation;
}

/// One condition out of several findings: the first that is bad decides, then the first that is not known.
fn told(type_: &str, findings: &[&Finding]) -> Condition {
    let bad = findings.iter().find_map(|finding| match finding {
        Finding::Bad { reason, message } => Some(
            Condition::new(type_, false, *reason)
                .message(message)
                .severity(Severity::Error),
        ),
        _ => None,
    });
    // A credential in another Pod's file cannot be tried from here; that is no reason to hold everything up.
    let unknown = findings.iter().find_map(|finding| match finding {
        Finding::Unknown { reason, message } => {
            let status = if *reason == reasons::cluster::NOT_CHECKED {
                ConditionStatus::True
            } else {
                ConditionStatus::Unknown
            };
            Some(Condition::new(type_, status, *reason).message(message))
        }
        _ => None,
    });
    let good = || {
        let messages: Vec<&str> = findings
            .iter()
            .filter_map(|finding| match finding {
                Finding::Good(message) if !message.is_empty() => Some(message.as_str()),
                _ => None,
            })
            .collect();
        Condition::new(type_, true, reasons::READY).message(messages.join("; "))
    };
    bad.or(unknown).unwrap_or_else(good)
}

fn domain(zone: &str) -> FailureDomain {
    FailureDomain {
        name: zone.to_owned(),
        control_plane: Some(false),
        ..FailureDomain::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Finding {
        Finding::Good("fine".into())
    }

    fn bad() -> Finding {
        Finding::Bad {
            reason: "Broken",
            message: "mend it".into(),
        }
    }

    fn connection(secret: Finding, rights: Finding, answers: Finding) -> Connection {
        Connection {
            secret,
            rights,
            answers,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn see(status: &mut Status, no_endpoint: Option<&Finding>, connection: &Connection) {
        let facts = Facts::Seen {
            no_endpoint,
            connection,
            zones: &[],
        };
        tell(status, &facts, Some(1), at(10));
    }

    fn is(status: &Status, type_: &str) -> Option<ConditionStatus> {
        conditions::find(&status.conditions, type_).map(|condition| condition.status)
    }

    #[test]
    fn a_working_cluster_fulfils_both_contracts() {
        let mut status = Status::default();
        see(&mut status, None, &connection(good(), good(), good()));
        let initialization = status.initialization.clone().unwrap();
        assert_eq!(initialization.provisioned, Some(true));
        assert_eq!(initialization.control_plane_initialized, Some(true));
        assert_eq!(status.external_managed_control_plane, Some(true));
        assert_eq!((status.ready, status.initialized), (Some(true), Some(true)));
        for type_ in [types::READY, types::AVAILABLE] {
            assert_eq!(is(&status, type_), Some(ConditionStatus::True), "{type_}");
        }
        assert_eq!(is(&status, types::PAUSED), Some(ConditionStatus::False));
        let before = status.clone();
        see(&mut status, None, &connection(good(), good(), good()));
        assert_eq!(status, before, "nothing is written twice");
    }

    #[test]
    fn nothing_is_provisioned_before_core_can_read_the_secret() {
        let mut status = Status::default();
        see(&mut status, None, &connection(bad(), good(), good()));
        assert_eq!(status.initialization.clone().unwrap().provisioned, None);
        assert_eq!(is(&status, types::READY), Some(ConditionStatus::False));
        see(&mut status, Some(&bad()), &connection(good(), good(), good()));
        assert_eq!(status.initialization.unwrap().provisioned, None);
    }

    #[test]
    fn what_was_provisioned_stays_so_and_the_conditions_tell_the_rest() {
        let mut status = Status::default();
        see(&mut status, None, &connection(good(), good(), good()));
        see(&mut status, None, &connection(bad(), good(), bad()));
        let initialization = status.initialization.clone().unwrap();
        assert_eq!(initialization.provisioned, Some(true));
        assert_eq!(initialization.control_plane_initialized, Some(true));
        assert_eq!(is(&status, types::READY), Some(ConditionStatus::False));
        assert_eq!(is(&status, types::AVAILABLE), Some(ConditionStatus::False));
    }

    #[test]
    fn missing_rights_are_told_but_hold_nothing_up() {
        let mut status = Status::default();
        see(&mut status, None, &connection(good(), bad(), good()));
        assert_eq!(status.initialization.clone().unwrap().provisioned, Some(true));
        assert_eq!(is(&status, types::READY), Some(ConditionStatus::False));
        assert_eq!(is(&status, types::AVAILABLE), Some(ConditionStatus::True));
    }

    #[test]
    fn zones_become_failure_domains_for_machines_only() {
        let mut status = Status::default();
        let connection = connection(good(), good(), good());
        let facts = Facts::Seen {
            no_endpoint: None,
            connection: &connection,
            zones: &["fr-par-1".to_owned()],
        };
        tell(&mut status, &facts, None, at(1));
        assert_eq!(status.failure_domains.len(), 1);
        assert_eq!(status.failure_domains[0].control_plane, Some(false));
    }

    #[test]
    fn a_pause_changes_nothing_else() {
        let mut status = Status::default();
        see(&mut status, None, &connection(good(), good(), good()));
        let before = status.clone();
        tell(&mut status, &Facts::Paused { why: "because" }, Some(1), at(20));
        assert_eq!(is(&status, types::PAUSED), Some(ConditionStatus::True));
        assert_eq!(status.initialization, before.initialization);
        assert_eq!(is(&status, types::READY), Some(ConditionStatus::True));
    }
}
