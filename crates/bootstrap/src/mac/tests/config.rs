//! What is refused before anything is sent to a host.

use super::{api_server, builder, full, plain};
use crate::linux;
use crate::mac::{ApiServer, Fleet, Host, Invalid};
use russet_telemetry::Secret;
use std::sync::Arc;

/// What is said about something good after this was done to it.
type Case<T> = (&'static str, fn(&mut T));

#[test]
fn a_fleet_and_a_host_with_everything_and_with_nothing_are_fine() {
    for fleet in [full(), plain()] {
        fleet.check().unwrap();
        builder().check(&fleet).unwrap();
        super::bare().check(&fleet).unwrap();
    }
}

#[test]
fn a_fleet_that_cannot_work_is_refused_with_what_to_do() {
    let cases: [Case<Fleet>; 11] = [
        ("cores", |fleet| fleet.agent.cpu = 0),
        ("control character", |fleet| fleet.agent.extra.push("a\nb".to_owned())),
        ("https://host:port", |fleet| {
            fleet.api_server = Some(api_server("https://a\" b", "one"));
        }),
        ("PEM", |fleet| {
            let ca_pem = "the authority".to_owned();
            let url = "https://203.0.113.7:6443".to_owned();
            fleet.api_server = Some(Arc::new(ApiServer { url, ca_pem }));
        }),
        ("needs a tailnet", |fleet| fleet.tailnet = None),
        ("together with its services", |fleet| fleet.firewall.services = None),
        ("172.16.0.0/22", |fleet| {
            fleet.firewall.cache_network = Some("172.16.0.1/22".to_owned());
        }),
        ("IPv4 network", |fleet| fleet.firewall.services = Some("any".to_owned())),
        ("IPv4 network", |fleet| {
            fleet.login_from = Some(vec!["1.2.3.4".to_owned()]);
        }),
        ("no tag", |fleet| {
            fleet.tailnet.as_mut().unwrap().tags = vec!["tag:a b".to_owned()];
        }),
        ("https://", |fleet| fleet.logs.as_mut().unwrap().url = "logs".to_owned()),
    ];
    for (says, change) in cases {
        let mut fleet = full();
        change(&mut fleet);
        let text = fleet.check().unwrap_err().to_string();
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn a_host_that_cannot_be_is_refused_without_its_secrets() {
    let cases: [Case<Host>; 10] = [
        ("user of a host", |host| host.user = "a.b".to_owned()),
        ("user of a host", |host| host.user = "../x".to_owned()),
        ("DNS name", |host| host.node_name = "Mac_1".to_owned()),
        ("provider id", |host| host.provider_id = "x".to_owned()),
        ("label key", |host| {
            drop(host.labels.insert("a,b".to_owned(), "c".to_owned()));
        }),
        ("NoExecute", |host| host.taints[0].effect = "Never".to_owned()),
        ("authorized_keys", |host| {
            host.login_keys = vec!["-----BEGIN".to_owned()];
        }),
        ("one line", |host| {
            host.password = Some(Secret::new("canary\nsecret".to_owned()));
        }),
        ("4094", |host| host.vlan = Some(4095)),
        ("2.336.0", |host| {
            host.runner.as_mut().unwrap().version = "latest; rm".to_owned();
        }),
    ];
    for (says, change) in cases {
        let mut host = builder();
        change(&mut host);
        let text = host.check(&full()).unwrap_err().to_string();
        assert!(text.contains(says) && !text.contains("canary"), "{text}");
    }
    let mut untagged = full();
    untagged.tailnet.as_mut().unwrap().tags.clear();
    assert_eq!(builder().check(&untagged), Err(Invalid::NoTags));
    let mut host = builder();
    host.node_name = "x".repeat(64);
    assert!(matches!(
        host.check(&full()),
        Err(Invalid::Node(linux::Invalid::NodeName { .. }))
    ));
}
