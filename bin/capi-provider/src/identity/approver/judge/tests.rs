use super::*;

fn request() -> Request {
    Request {
        common_name: Some("system:node:mac-1".into()),
        organizations: vec!["system:nodes".into()],
        ..Request::default()
    }
}

fn asked(signer: Signer, requestor: Requestor) -> Asked {
    let own = match signer {
        Signer::Client => "client auth",
        Signer::Serving => "server auth",
    };
    Asked {
        signer,
        requestor,
        request: Ok(request()),
        usages: ["digital signature".to_owned(), own.to_owned()].into(),
    }
}

fn by_token() -> Asked {
    asked(Signer::Client, Requestor::Token { uid: "u1".into() })
}

fn by_node(signer: Signer) -> Asked {
    asked(signer, Requestor::Node { name: "mac-1".into() })
}

fn serving(change: impl FnOnce(&mut Request)) -> Asked {
    let mut asked = by_node(Signer::Serving);
    let mut request = request();
    change(&mut request);
    asked.request = Ok(request);
    asked
}

fn host() -> Host {
    Host {
        name: "mac-1".into(),
        uid: "u1".into(),
        deleting: false,
        provider_id: Some("scw-applesilicon://fr-par-1/s1".into()),
        addresses: vec!["51.15.0.1".into()],
        os: russet_api::labels::OS_DARWIN,
        more_to_come: false,
    }
}

fn networks(texts: &[&str]) -> Vec<CidrBlock> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn tailnet() -> Vec<CidrBlock> {
    networks(&["100.64.0.0/10", "fd7a:115c:a1e0::/48"])
}

fn judge(asked: &Asked, hosts: &[Host], node: Option<&Node>, sight: Sight) -> Verdict {
    asked.judge(&Known {
        hosts,
        sight,
        node,
        suffixes: &["tail1.ts.net".into()],
        tailnet: &tailnet(),
    })
}

#[track_caller]
fn denied(asked: &Asked, hosts: &[Host], reason: &str) {
    let verdict = judge(asked, hosts, None, Sight::Whole);
    assert!(
        matches!(&verdict, Verdict::Deny { reason: found, .. } if *found == reason),
        "{verdict:?}"
    );
}

#[track_caller]
fn approved(asked: &Asked, node: Option<&Node>) {
    let verdict = judge(asked, &[host()], node, Sight::Whole);
    assert!(matches!(verdict, Verdict::Approve(_)), "{verdict:?}");
}

#[test]
fn the_token_of_a_machine_and_its_node_get_their_own_certificate() {
    approved(&by_token(), None);
    approved(&by_node(Signer::Client), None);
}

#[test]
fn a_token_gets_no_certificate_of_another_machine() {
    let neighbour = Host {
        uid: "u2".into(),
        ..host()
    };
    denied(&by_token(), &[neighbour], "NotThisMachine");
    denied(&by_token(), &[], "NotThisMachine");
}

/// Two providers that each look after some namespaces denied each other's machines.
#[test]
fn a_token_of_a_machine_out_of_sight_is_left_to_who_sees_it() {
    assert_eq!(judge(&by_token(), &[], None, Sight::Partial), Verdict::Ignore);
    let neighbour = Host {
        uid: "u2".into(),
        ..host()
    };
    let verdict = judge(&by_token(), &[neighbour], None, Sight::Partial);
    assert!(matches!(verdict, Verdict::Deny { .. }), "{verdict:?}");
}

#[test]
fn a_node_gets_no_certificate_of_another_machine() {
    let neighbour = asked(Signer::Client, Requestor::Node { name: "mac-2".into() });
    denied(&neighbour, &[host()], "NotThisMachine");
}

#[test]
fn a_stranger_who_asks_for_our_node_is_denied_and_for_another_left_alone() {
    let stranger = asked(
        Signer::Client,
        Requestor::Other {
            username: "system:bootstrap:abcdef".into(),
        },
    );
    denied(&stranger, &[host()], "NotThisMachine");
    assert_eq!(judge(&stranger, &[], None, Sight::Whole), Verdict::Ignore);
}

#[test]
fn a_node_that_is_no_machine_of_ours_is_left_alone() {
    assert_eq!(
        judge(&by_node(Signer::Client), &[], None, Sight::Whole),
        Verdict::Ignore
    );
    assert_eq!(
        judge(&by_node(Signer::Serving), &[], None, Sight::Whole),
        Verdict::Ignore
    );
}

#[test]
fn a_machine_that_is_being_deleted_gets_nothing() {
    let leaving = Host {
        deleting: true,
        ..host()
    };
    denied(&by_token(), std::slice::from_ref(&leaving), "MachineDeleting");
    denied(&by_node(Signer::Client), &[leaving], "MachineDeleting");
}

#[test]
fn the_subject_is_exact() {
    for change in [
        |r: &mut Request| r.common_name = Some("system:node:mac-1 ".into()),
        |r: &mut Request| r.common_name = None,
        |r: &mut Request| r.organizations = vec!["system:masters".into()],
        |r: &mut Request| r.organizations.push("system:masters".into()),
        |r: &mut Request| r.organizations.clear(),
        |r: &mut Request| r.more_subject = true,
    ] {
        let mut wrong = request();
        change(&mut wrong);
        let mut asked = by_token();
        asked.request = Ok(wrong);
        denied(&asked, &[host()], "WrongSubject");
    }
}

#[test]
fn usages_are_those_of_the_signer() {
    for usages in [
        vec!["client auth"],
        vec!["digital signature"],
        vec!["digital signature", "server auth"],
        vec!["digital signature", "client auth", "cert sign"],
        vec![],
    ] {
        let mut asked = by_token();
        asked.usages = usages.into_iter().map(str::to_owned).collect();
        denied(&asked, &[host()], "WrongUsages");
    }
    let mut rsa = by_token();
    rsa.usages.insert("key encipherment".into());
    approved(&rsa, None);
}

#[test]
fn a_client_certificate_is_for_no_names() {
    let mut asked = by_token();
    let mut named = request();
    named.dns = vec!["mac-1".into()];
    asked.request = Ok(named);
    denied(&asked, &[host()], "TooMuch");
    let mut more = request();
    more.more = true;
    asked.request = Ok(more);
    denied(&asked, &[host()], "TooMuch");
}

#[test]
fn a_serving_certificate_is_for_the_hosts_own_names_and_addresses() {
    approved(
        &serving(|r| r.dns = vec!["mac-1".into(), "mac-1.tail1.ts.net".into()]),
        None,
    );
    approved(&serving(|r| r.ips = vec!["51.15.0.1".parse().unwrap()]), None);
    denied(&serving(|_| {}), &[host()], "NoNames");
    denied(
        &serving(|r| r.dns = vec!["kubernetes.default.svc".into()]),
        &[host()],
        "ForeignName",
    );
    denied(
        &serving(|r| r.ips = vec!["51.15.0.2".parse().unwrap()]),
        &[host()],
        "ForeignAddress",
    );
}

fn at(ip: &str) -> Asked {
    serving(|r| r.ips = vec![ip.parse().unwrap()])
}

/// A Node that is this host's, and alone reports these addresses.
fn reporting(ips: &[&str]) -> Node {
    Node {
        provider_id: host().provider_id,
        tailnet: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        ..Node::default()
    }
}

#[track_caller]
fn foreign(asked: &Asked, node: &Node) -> String {
    match judge(asked, &[host()], Some(node), Sight::Whole) {
        Verdict::Deny { reason, message } => {
            assert_eq!(reason, "ForeignAddress");
            message
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tailnet_address_is_accepted_once_the_node_alone_reports_it() {
    for ip in ["100.64.0.7", "fd7a:115c:a1e0::7"] {
        assert!(at(ip).wants_tailnet(&tailnet()));
        denied(&at(ip), &[host()], "ForeignAddress");
        approved(&at(ip), Some(&reporting(&[ip])));
    }
}

/// An emulated tailnet is on the loopback, and the serving certificates of its nodes were all denied.
#[test]
fn the_tailnet_is_where_the_operator_says_it_is() {
    let asked = at("127.100.0.7");
    assert!(!asked.wants_tailnet(&tailnet()), "nobody is asked about it");
    let elsewhere = networks(&["127.100.0.0/16"]);
    assert!(asked.wants_tailnet(&elsewhere));
    let verdict = asked.judge(&Known {
        hosts: &[host()],
        sight: Sight::Whole,
        node: Some(&reporting(&["127.100.0.7"])),
        suffixes: &[],
        tailnet: &elsewhere,
    });
    assert!(matches!(verdict, Verdict::Approve(_)), "{verdict:?}");
}

#[test]
fn an_address_that_is_another_nodes_is_denied_in_words() {
    let told = foreign(&at("100.64.0.8"), &reporting(&["100.64.0.7"]));
    assert_eq!(
        told,
        "100.64.0.8 is an address of the tailnet, and Node mac-1 does not report it or is not the only one to have it"
    );
    let both = serving(|r| r.ips = ["100.64.0.7", "100.64.0.8"].map(|ip| ip.parse().unwrap()).into());
    foreign(&both, &reporting(&["100.64.0.7"]));
}

#[test]
fn a_public_or_local_address_that_scaleway_did_not_give_is_denied_in_words() {
    for ip in ["51.15.0.2", "8.8.8.8", "127.0.0.1", "10.96.0.1", "::1"] {
        let told = foreign(&at(ip), &reporting(&["100.64.0.7"]));
        assert_eq!(
            told,
            format!("{ip} is neither an address of machine mac-1 nor one that the tailnet gives out")
        );
    }
}

#[test]
fn a_name_of_somebody_else_is_denied_in_words() {
    for name in [
        "kubernetes.default.svc",
        "mac-2",
        "mac-2.tail1.ts.net",
        "mac-1.evil.example",
        "localhost",
    ] {
        let asked = serving(|r| r.dns = vec![name.to_owned()]);
        let verdict = judge(&asked, &[host()], Some(&reporting(&["100.64.0.7"])), Sight::Whole);
        let expected = Verdict::Deny {
            reason: "ForeignName",
            message: format!("{name:?} is not a name of machine mac-1"),
        };
        assert_eq!(verdict, expected);
    }
}

#[test]
fn a_bootstrap_token_gets_no_serving_certificate() {
    let mut asked = asked(Signer::Serving, Requestor::Token { uid: "u1".into() });
    let mut named = request();
    named.dns = vec!["mac-1".into()];
    asked.request = Ok(named);
    denied(&asked, &[host()], "NotTheNode");
}

/// Who may make machines could call one like a control-plane node and be handed its identity.
#[test]
fn a_machine_that_is_called_like_a_foreign_node_waits() {
    let linux = Node {
        os: Some("linux".into()),
        ..Node::default()
    };
    let other_cloud = Node {
        provider_id: Some("hcloud://1".into()),
        ..Node::default()
    };
    for node in [&linux, &other_cloud] {
        let verdict = judge(&by_token(), &[host()], Some(node), Sight::Whole);
        assert!(matches!(verdict, Verdict::Wait(_)), "{verdict:?}");
    }
    let own = Node {
        provider_id: host().provider_id,
        ..Node::default()
    };
    approved(&by_token(), Some(&own));
}

#[test]
fn an_unreadable_request_is_denied_if_it_is_ours() {
    let mut asked = by_token();
    asked.request = Err(Unreadable);
    denied(&asked, &[host()], "Unreadable");
}

#[test]
fn requests_are_told_apart_by_what_the_server_says_of_the_requestor() {
    let csr = |username: &str, groups: &[&str], signer: &str| -> CertificateSigningRequest {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "a"},
            "spec": {"request": "", "signerName": signer, "username": username, "groups": groups, "usages": []},
        }))
        .unwrap()
    };
    let client = "kubernetes.io/kube-apiserver-client-kubelet";
    let group = token::machine_group("u1");
    let requestor = |username: &str, groups: &[&str]| Asked::read(&csr(username, groups, client)).unwrap().requestor;
    assert_eq!(
        requestor("system:bootstrap:abcdef", &["system:bootstrappers", &group]),
        Requestor::Token { uid: "u1".into() }
    );
    assert_eq!(
        requestor("system:node:mac-1", &["system:nodes"]),
        Requestor::Node { name: "mac-1".into() }
    );
    for (username, groups) in [
        ("system:bootstrap:abcdef", vec!["system:bootstrappers"]),
        ("mallory", vec![group.as_str()]),
        ("system:node:mac-1", vec![]),
    ] {
        assert!(
            matches!(requestor(username, &groups), Requestor::Other { .. }),
            "{username}"
        );
    }
    assert!(Asked::read(&csr("x", &[], "kubernetes.io/kube-apiserver-client")).is_none());
    let mut decided = csr("x", &[], client);
    decided.status =
        serde_json::from_value(serde_json::json!({"conditions": [{"type": "Denied", "status": "True"}]})).unwrap();
    assert!(Asked::read(&decided).is_none());
}
