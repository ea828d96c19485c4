use super::*;
use clap::{CommandFactory as _, Parser as _};

fn parse(flags: &[&str]) -> Result<Config, String> {
    let args = ["tart-kubelet", "--node-name=mac-1"].iter().chain(flags);
    let args = Args::try_parse_from(args).map_err(|error| error.to_string())?;
    Config::from_args(args).map_err(|error| error.to_string())
}

#[test]
fn the_flags_are_consistent() {
    Args::command().debug_assert();
}

/// What hosts had before this release, from the plist that launchd runs.
#[test]
fn every_flag_of_earlier_releases_is_known() {
    let config = parse(&[
        "--provider-id=scw-applesilicon://fr-par-3/1",
        "--node-ip-source=tailscale",
        "--node-labels=tuist.dev/fleet=runners,node.cluster.x-k8s.io/pool=macs",
        "--host-cpu=10",
        "--host-memory-mb=32768",
        "--max-pods=3",
        "--metrics-bind-address=:8080",
        "--health-probe-bind-address=:8081",
        "--tart-binary=/usr/local/bin/tart",
        "--scrape-allowed-cidr=100.64.0.0/10",
        "--scrape-allowed-cidr=10.0.0.0/8",
        "--vnc-control-dir=",
        "--vnc-relay-host=mac-1.tail0.ts.net",
        "--vnc-relay-port=5900",
        "--runner-cache-root=/Volumes/tuist-runner-cache",
        "--cache-volume-cap-gib=20",
        "--cache-volume-cas-gib=5",
        "--disable-vm-gc",
        "--kubeconfig=/etc/tart-kubelet/kubeconfig",
        "--zap-log-level=debug",
        "--zap-devel",
        "--zap-encoder=json",
    ])
    .unwrap();
    assert_eq!(config.spec.capacity.cpu, 10);
    assert_eq!(config.spec.labels.len(), 2);
    assert_eq!(config.node_ip_source, NodeIpSource::Tailscale);
    assert_eq!(config.scrape_allowed.len(), 2);
    assert_eq!(config.vms.vnc_control, None);
    assert!(config.vms.keep_unused);
    assert!(config.log_filter.starts_with("debug"), "{}", config.log_filter);
}

#[test]
fn without_flags_everything_is_as_it_was() {
    let config = parse(&[]).unwrap();
    let capacity = config.spec.capacity;
    assert_eq!((capacity.cpu, capacity.memory_mib, capacity.pods), (8, 16_384, 2));
    assert_eq!(config.node_ip_source, NodeIpSource::Auto);
    assert_eq!(config.vms.cache_cap_gib, 20);
    assert!(!config.vms.keep_unused);
    assert_eq!(config.spec.taints, []);
}

#[test]
fn taints_are_written_as_kubelets_have_them() {
    let config = parse(&[
        "--register-with-taints=node.cluster.x-k8s.io/uninitialized:NoSchedule,tuist.dev/builder=yes:NoExecute",
    ])
    .unwrap();
    let taints: Vec<String> = config
        .spec
        .taints
        .iter()
        .map(|taint| format!("{}={:?}:{}", taint.key, taint.value, taint.effect))
        .collect();
    assert_eq!(
        taints,
        [
            "node.cluster.x-k8s.io/uninitialized=None:NoSchedule",
            "tuist.dev/builder=Some(\"yes\"):NoExecute"
        ]
    );
}

#[test]
fn whatever_is_wrong_is_said_with_its_flag() {
    for (flag, sentence) in [
        ("--node-name=Mac_1", "--node-name \"Mac_1\""),
        ("--node-labels=a", "--node-labels: \"a\" is not key=value"),
        ("--node-labels=node-role.kubernetes.io/worker=", "NodeRestriction"),
        ("--register-with-taints=a=b", "--register-with-taints: \"a=b\""),
        (
            "--register-with-taints=a=b:Sometimes",
            "NoSchedule, PreferNoSchedule or NoExecute",
        ),
        ("--register-with-taints=a b=c:NoSchedule", "is not a taint"),
        ("--host-cpu=0", "--host-cpu is 0"),
        ("--max-pods=0", "--max-pods is 0"),
        ("--node-ip-source=guess", "--node-ip-source"),
        ("--node-ip=here", "--node-ip"),
        ("--scrape-allowed-cidr=10.0.0.0", "is not a range of addresses"),
        ("--metrics-bind-address=8080", "--metrics-bind-address"),
        ("--kubelet-version=1.35", "--kubelet-version"),
    ] {
        // The first name would be given twice.
        let args = if flag.starts_with("--node-name") {
            Args::try_parse_from(["tart-kubelet", flag])
        } else {
            Args::try_parse_from(["tart-kubelet", "--node-name=mac-1", flag])
        };
        let said = match args.map_err(|error| error.to_string()) {
            Ok(args) => Config::from_args(args).unwrap_err().to_string(),
            Err(said) => said,
        };
        assert!(said.contains(sentence), "{flag}: {said}");
    }
}

#[test]
fn a_log_has_a_size_and_at_least_two_files() {
    let logs = parse(&[]).unwrap().logs;
    assert_eq!((logs.bytes, logs.files), (10 * 1024 * 1024, 5));
    let logs = parse(&["--container-log-max-size=1M", "--container-log-max-files=2"])
        .unwrap()
        .logs;
    assert_eq!((logs.bytes, logs.files), (1_000_000, 2));
    for (flag, why) in [
        ("--container-log-max-size=much", "10Mi"),
        ("--container-log-max-size=0", "10Mi"),
        ("--container-log-max-files=1", "at least 2"),
    ] {
        let error = parse(&[flag]).unwrap_err();
        assert!(error.contains(why), "{flag}: {error}");
    }
}
