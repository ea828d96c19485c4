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

/// Every flag of earlier releases as they documented it: its name, its variable and its default.
#[test]
fn flags_have_the_names_variables_and_defaults_of_earlier_releases() {
    let known = [
        ("node-name", "TART_KUBELET_NODE_NAME", None),
        ("provider-id", "TART_KUBELET_PROVIDER_ID", Some("")),
        ("node-ip", "TART_KUBELET_NODE_IP", Some("")),
        ("node-ip-source", "TART_KUBELET_NODE_IP_SOURCE", Some("auto")),
        ("scrape-allowed-cidr", "", None),
        ("node-labels", "TART_KUBELET_NODE_LABELS", Some("")),
        ("host-cpu", "", Some("8")),
        ("host-memory-mb", "", Some("16384")),
        ("max-pods", "", Some("2")),
        ("metrics-bind-address", "", Some(":8080")),
        ("health-probe-bind-address", "", Some(":8081")),
        ("tart-binary", "", Some("/usr/local/bin/tart")),
        (
            "vnc-control-dir",
            "TART_KUBELET_VNC_CONTROL_DIR",
            Some("/var/lib/tart-vnc-control"),
        ),
        ("vnc-relay-host", "TART_KUBELET_VNC_RELAY_HOST", Some("")),
        ("vnc-relay-port", "TART_KUBELET_VNC_RELAY_PORT", Some("0")),
        ("runner-cache-root", "TART_KUBELET_RUNNER_CACHE_ROOT", Some("")),
        ("cache-volume-cap-gib", "TART_KUBELET_CACHE_VOLUME_CAP_GIB", Some("20")),
        ("cache-volume-cas-gib", "TART_KUBELET_CACHE_VOLUME_CAS_GIB", Some("0")),
        ("disable-vm-gc", "", Some("false")),
    ];
    let command = Args::command();
    let find = |flag: &str| command.get_arguments().find(|arg| arg.get_long() == Some(flag));
    for (flag, variable, default) in known {
        let arg = find(flag).unwrap_or_else(|| panic!("--{flag} is not known"));
        let env = arg.get_env().map_or("", |name| name.to_str().unwrap());
        let defaults: Vec<&str> = arg
            .get_default_values()
            .iter()
            .map(|value| value.to_str().unwrap())
            .collect();
        assert_eq!(env, variable, "--{flag}");
        assert_eq!(defaults, default.into_iter().collect::<Vec<_>>(), "--{flag}");
    }
    // Flags that came with the framework of earlier releases.
    for flag in [
        "kubeconfig",
        "zap-devel",
        "zap-encoder",
        "zap-log-level",
        "zap-stacktrace-level",
        "zap-time-encoding",
    ] {
        assert!(find(flag).is_some(), "--{flag}");
    }
}

/// Earlier releases had nothing for a default, and hosts give it as such.
#[test]
fn a_flag_or_a_variable_that_is_empty_is_one_that_is_not_given() {
    assert_eq!(parse(&["--node-ip="]).unwrap().node_ip, None);
    assert_eq!(parse(&["--node-ip", ""]).unwrap().node_ip, None);
    let given = parse(&["--node-ip=100.64.0.7"]).unwrap();
    assert_eq!(given.node_ip, Some("100.64.0.7".parse().unwrap()));
    let named = |name: &str| node_name(Some(name.to_owned())).map_err(|error| error.to_string());
    assert_eq!(named(""), node_name(None).map_err(|error| error.to_string()));

    let command = args::without(Args::command(), |name| name == "TART_KUBELET_NODE_IP_SOURCE");
    let variable = |flag: &str| {
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(flag));
        arg.and_then(clap::Arg::get_env)
    };
    assert_eq!(variable("node-ip-source"), None);
    assert_eq!(variable("node-ip").unwrap(), "TART_KUBELET_NODE_IP");
}

#[test]
fn what_is_asked_for_in_vain_is_said() {
    assert_eq!(parse(&[]).unwrap().idle, []);
    let same = [
        "--vnc-control-dir=/var/lib/tart-vnc-control",
        "--cache-volume-cap-gib=20",
    ];
    assert_eq!(parse(&same).unwrap().idle, [], "what is as it was is no wish");
    let given = [
        "--vnc-control-dir=/elsewhere",
        "--vnc-relay-host=mac-1.tail0.ts.net",
        "--vnc-relay-port=5900",
        "--runner-cache-root=/Volumes/tuist-runner-cache",
        "--cache-volume-cap-gib=30",
        "--cache-volume-cas-gib=5",
    ];
    let told: Vec<&str> = parse(&given).unwrap().idle.iter().map(|idle| idle.flag).collect();
    let flags: Vec<&str> = given.iter().filter_map(|given| given.split('=').next()).collect();
    assert_eq!(told, flags);
    for arg in Args::command().get_arguments() {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let idle = arg
            .get_long()
            .is_some_and(|long| flags.contains(&format!("--{long}").as_str()));
        assert_eq!(help.contains("no effect yet"), idle, "{}", arg.get_id());
    }
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
