//! The program as text: golden files, what is refused, and that no value can become code.

use std::process::Command;

use proptest::prelude::*;

use super::*;

type Change = fn(&mut Join);

const CANARY: &str = "canary.0123456789abcdef";

fn join() -> Join {
    Join {
        node_name: "kura-fleet-abcde".to_owned(),
        provider_id: "scaleway://baremetal/fr-par-1/5f1b9c1e-0000-4000-8000-000000000001".to_owned(),
        labels: BTreeMap::from([
            ("node.cluster.x-k8s.io/instance-type".to_owned(), "scaleway".to_owned()),
            ("tuist.dev/fleet".to_owned(), "kura".to_owned()),
        ]),
        taints: vec![Taint {
            key: "tuist.dev/runner-cache".to_owned(),
            value: "true".to_owned(),
            effect: "NoSchedule".to_owned(),
        }],
        bootstrap_kubeconfig: Secret::new(format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {{ server: https://10.0.0.1:6443 }}\nusers:\n- name: u\n  user: {{ token: {CANARY} }}\ncontexts:\n- name: x\n  context: {{ cluster: c, user: u }}\ncurrent-context: x\n"
        )),
        cluster_ca_pem: "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmg\nAwIBAgIUf00=\n-----END CERTIFICATE-----\n"
            .to_owned(),
        cluster_dns: vec!["10.96.0.10".parse().unwrap()],
        cluster_domain: "cluster.local".to_owned(),
        kubernetes: "v1.35".parse().unwrap(),
        private_network: PrivateNet::Vlan {
            id: 2319,
            address: None,
        },
        node_address: NodeAddress::PrivateNetwork,
        data: Data::Nvme {
            images_gib: Data::IMAGES_GIB,
        },
        form: Form::Ssh,
    }
}

#[test]
fn the_program_for_elastic_metal_reads_as_agreed() {
    insta::assert_snapshot!(render(&join()).unwrap().script.expose());
}

#[test]
fn the_user_data_for_an_instance_reads_as_agreed() {
    let join = Join {
        provider_id: "scaleway://instance/fr-par-1/5f1b9c1e-0000-4000-8000-000000000002".to_owned(),
        private_network: PrivateNet::Nic {
            mac: "02:00:00:AB:CD:EF".to_owned(),
            address: Some("172.16.0.4/22".to_owned()),
        },
        data: Data::None,
        form: Form::CloudInit,
        ..join()
    };
    insta::assert_snapshot!(cloud_init(&render(&join).unwrap()).expose());
}

#[test]
fn user_data_is_yaml_that_holds_the_very_program_and_runs_it_under_bash() {
    let rendered = render(&join()).unwrap();
    let text = cloud_init(&rendered);
    assert!(text.expose().starts_with("#cloud-config\n"));
    let parsed: serde_json::Value = serde_yaml_ng::from_str(text.expose()).unwrap();
    let file = &parsed["write_files"][0];
    assert_eq!(file["content"], rendered.script.expose().as_str());
    assert_eq!(file["path"], SCRIPT);
    assert_eq!(file["permissions"], "0700");
    assert_eq!(parsed["runcmd"], serde_json::json!([["bash", SCRIPT]]));
}

#[test]
fn the_hash_ignores_what_is_per_host_and_follows_everything_else() {
    let hash = |change: &dyn Fn(&mut Join)| {
        let mut join = join();
        change(&mut join);
        render(&join).unwrap().config_hash
    };
    let base = hash(&|_| {});
    assert_eq!(base.len(), 64);
    let per_host: [(&str, Change); 6] = [
        ("node_name", |j| j.node_name = "other".into()),
        ("provider_id", |j| {
            j.provider_id = "scaleway://baremetal/fr-par-2/x".into();
        }),
        ("bootstrap_kubeconfig", |j| {
            j.bootstrap_kubeconfig = j
                .bootstrap_kubeconfig
                .map(|text| text.replace(CANARY, "other.0123456789abcdef"));
        }),
        ("vlan", |j| {
            j.private_network = PrivateNet::Vlan { id: 7, address: None }
        }),
        ("address", |j| {
            j.private_network = PrivateNet::Vlan {
                id: 7,
                address: Some("172.16.0.9/22".into()),
            };
        }),
        ("form", |j| j.form = Form::CloudInit),
    ];
    for (field, change) in per_host {
        assert_eq!(hash(&change), base, "{field} is per host");
    }
    let of_the_fleet: [(&str, Change); 9] = [
        ("labels", |j| _ = j.labels.insert("a".into(), "b".into())),
        ("taints", |j| j.taints.clear()),
        ("cluster_ca_pem", |j| {
            j.cluster_ca_pem = j.cluster_ca_pem.replace("MIIB", "MIIC");
        }),
        ("cluster_dns", |j| j.cluster_dns = vec!["10.96.0.11".parse().unwrap()]),
        ("cluster_domain", |j| j.cluster_domain = "other.local".into()),
        ("kubernetes", |j| j.kubernetes = KubernetesChannel::v1(36)),
        ("private_network", |j| j.private_network = PrivateNet::None),
        ("node_address", |j| j.node_address = NodeAddress::DefaultRoute),
        ("data", |j| j.data = Data::Nvme { images_gib: 1 }),
    ];
    for (field, change) in of_the_fleet {
        assert_ne!(hash(&change), base, "{field} is the fleet's");
    }
}

#[test]
fn what_cannot_be_right_is_refused_by_name() {
    let cases: [(&str, Change); 33] = [
        ("NodeName", |j| j.node_name = "Upper".into()),
        ("NodeName", |j| j.node_name = "a;b".into()),
        ("NodeName", |j| j.node_name = String::new()),
        ("NodeName", |j| j.node_name = "a".repeat(64)),
        ("NodeName", |j| j.node_name = "a\nb".into()),
        ("ProviderId", |j| j.provider_id = "no-scheme".into()),
        ("ProviderId", |j| j.provider_id = "scaleway://a b".into()),
        ("ProviderId", |j| j.provider_id = "scaleway://a%n".into()),
        ("LabelKey", |j| _ = j.labels.insert("a b".into(), "c".into())),
        ("LabelKey", |j| _ = j.labels.insert("a/b/c".into(), "c".into())),
        ("LabelValue", |j| _ = j.labels.insert("a".into(), "b,c=d".into())),
        ("LabelValue", |j| _ = j.labels.insert("a".into(), "$HOME".into())),
        ("ReservedLabel", |j| {
            _ = j.labels.insert("node-role.kubernetes.io/cache".into(), "x".into());
        }),
        ("ReservedLabel", |j| {
            _ = j.labels.insert("node-restriction.kubernetes.io/a".into(), "x".into());
        }),
        ("TaintEffect", |j| j.taints[0].effect = "Never".into()),
        ("LabelValue", |j| j.taints[0].value = "a:b".into()),
        ("TaintTwice", |j| j.taints.push(j.taints[0].clone())),
        ("Kubeconfig", |j| j.bootstrap_kubeconfig = "".into()),
        ("Kubeconfig", |j| j.bootstrap_kubeconfig = "a: [".into()),
        ("Kubeconfig", |j| j.bootstrap_kubeconfig = "a: \"\0\"".into()),
        ("ClusterCa", |j| j.cluster_ca_pem = String::new()),
        ("ClusterCa { problem: \"contains a private key\"", |j| {
            j.cluster_ca_pem = "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n".into();
        }),
        ("ClusterCa { problem: \"is cut off\"", |j| {
            j.cluster_ca_pem = "-----BEGIN CERTIFICATE-----\nAA==\n".into();
        }),
        ("NoClusterDns", |j| j.cluster_dns.clear()),
        ("ClusterDns", |j| j.cluster_dns = vec!["0.0.0.0".parse().unwrap()]),
        ("ClusterDomain", |j| j.cluster_domain = "cluster..local".into()),
        ("Vlan", |j| {
            j.private_network = PrivateNet::Vlan { id: 0, address: None }
        }),
        ("Vlan", |j| {
            j.private_network = PrivateNet::Vlan {
                id: 4095,
                address: None,
            }
        }),
        ("Mac", |j| {
            j.private_network = PrivateNet::Nic {
                mac: "02:00".into(),
                address: None,
            }
        }),
        ("PrivateAddress", |j| j.private_network = vlan_with("172.16.0.0/22")),
        ("PrivateAddress", |j| j.private_network = vlan_with("172.16.0.5")),
        ("PrivateAddress", |j| j.private_network = vlan_with("fd00::1/64")),
        ("ImagesQuota", |j| j.data = Data::Nvme { images_gib: 70_000 }),
    ];
    for (number, (name, change)) in cases.into_iter().enumerate() {
        let mut join = join();
        change(&mut join);
        let error = render(&join).expect_err(&format!("case {number} is refused"));
        let text = format!("{error:?} {error}");
        assert!(text.starts_with(name), "case {number}: no {name}: {text}");
        assert!(!text.contains("canary"), "{error}");
    }
}

fn vlan_with(address: &str) -> PrivateNet {
    PrivateNet::Vlan {
        id: 7,
        address: Some(address.to_owned()),
    }
}

#[test]
fn channels_are_read_as_the_api_server_writes_them() {
    for text in ["v1.35", "1.35", "v1.35.4"] {
        assert_eq!(text.parse::<KubernetesChannel>().unwrap().to_string(), "v1.35");
    }
    for text in ["", "v1", "v2.1", "v1.x", "v1.35.4.5", "v1.35/..", "latest", "v1.35 "] {
        assert!(text.parse::<KubernetesChannel>().is_err(), "{text}");
    }
}

#[test]
fn debug_output_of_a_join_and_of_its_program_is_silent_about_secrets() {
    let join = join();
    let text = format!("{join:?} {:?}", render(&join).unwrap());
    assert!(!text.contains("canary"), "{text}");
}

/// What bash makes of the head of a program: the variables, before the first function.
fn variables_as_bash_sees_them(script: &str, names: &[&str]) -> Vec<String> {
    let head = script.split("\nreadonly STATE=").next().unwrap();
    let shown: Vec<_> = names.iter().map(|name| format!("\"${name}\"")).collect();
    let program = format!("{head}\nprintf '%s\\0' {}\n", shown.join(" "));
    let output = Command::new("bash")
        .args(["-c", &program])
        .env_clear()
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stderr, b"");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_is_one_literal_word_of_bash(texts in proptest::collection::vec("[^\0]{0,40}", 1..40)) {
        let words: Vec<_> = texts.iter().map(|text| crate::quote::word(text)).collect();
        let program = format!("printf '%s\\0' {}", words.join(" "));
        let output = Command::new("bash").args(["-c", &program]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let seen: Vec<_> = text.split_terminator('\0').collect();
        prop_assert_eq!(seen, texts);
    }

    /// The kubeconfig is the only text of a Join that is not of a few known characters.
    #[test]
    fn no_kubeconfig_can_become_code(nasty in "[^\0]{0,60}") {
        let mut join = join();
        let value = serde_json::Value::from(nasty);
        join.bootstrap_kubeconfig = join.bootstrap_kubeconfig.map(|text| text.replace("name: u", &format!("name: {value}")));
        // Not everything a test can invent is YAML.
        prop_assume!(render(&join).is_ok());
        let rendered = render(&join).unwrap();
        let seen = variables_as_bash_sees_them(rendered.script.expose(), &["BOOTSTRAP_KUBECONFIG", "CONFIG_HASH"]);
        prop_assert_eq!(&seen[0], join.bootstrap_kubeconfig.expose());
        prop_assert_eq!(&seen[1], &rendered.config_hash);
    }

    /// Whatever the other fields hold, it is refused or arrives as it is.
    #[test]
    fn no_other_field_can_become_code(text in "[ -~\n]{0,30}", field in 0..9_usize) {
        let mut join = join();
        match field {
            0 => join.node_name = text,
            1 => join.provider_id = text,
            2 => _ = join.labels.insert(text, "a".to_owned()),
            3 => _ = join.labels.insert("a".to_owned(), text),
            4 => join.taints[0].key = text,
            5 => join.taints[0].effect = text,
            6 => join.cluster_domain = text,
            7 => join.cluster_ca_pem.push_str(&text),
            _ => join.private_network = PrivateNet::Nic { mac: text.clone(), address: Some(text) },
        }
        if let Ok(rendered) = render(&join) {
            let seen = variables_as_bash_sees_them(rendered.script.expose(), &["KUBELET_UNIT", "CLUSTER_CA"]);
            prop_assert_eq!(&seen[0], &kubelet::unit(&join));
            prop_assert_eq!(&seen[1], &join.cluster_ca_pem);
            // Nothing that systemd would expand, beside the two variables it is meant to.
            let unit = seen[0].replace("$TUIST_KUBELET_ARGS $KUBELET_EXTRA_ARGS", "");
            prop_assert!(!unit.contains(['$', '%', '"', '\'']));
        }
    }
}
