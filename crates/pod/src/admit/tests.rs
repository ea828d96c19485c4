use super::*;
use crate::testing::{at, pod};
use serde_json::{Value, json};

fn host() -> Host {
    let amount = |text: &str| Amount::parse(text).unwrap();
    Host {
        name: "mac1".to_owned(),
        labels: [("kubernetes.io/os", "darwin"), ("tuist.dev/fleet", "a"), ("cores", "8")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        allocatable: [
            ("cpu", "8"),
            ("memory", "16Gi"),
            ("pods", "3"),
            ("ephemeral-storage", "100Gi"),
        ]
        .map(|(key, value)| (key.to_owned(), amount(value)))
        .into(),
        vms: 2,
        ..Host::default()
    }
}

fn merged(mut object: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("{more}") };
    object.as_object_mut().unwrap().extend(more);
    object
}

/// A Pod of one container, with more in its spec.
fn with(more: Value) -> Pod {
    pod(merged(json!({"containers": [{"name": "a"}]}), more))
}

/// A Pod of one container that has more.
fn container(more: Value) -> Pod {
    pod(json!({"containers": [merged(json!({"name": "a"}), more)]}))
}

/// Pods and what is expected of them, one in each row.
macro_rules! cases {
    ($($make:ident $more:tt => $expected:literal;)+) => {
        vec![$(($make(json!($more)), $expected)),+]
    };
}

/// What an ordinary host that has no other Pod makes of one.
fn alone(pod: &Pod) -> Result<(), Refusal> {
    admit(pod, &host(), &[])
}

fn refusal(pod: &Pod) -> (String, String) {
    let refusal = alone(pod).expect_err("it is refused");
    (refusal.reason, refusal.message)
}

#[test]
fn an_ordinary_pod_is_taken_on() {
    let pod = with(json!({"nodeName": "mac1", "nodeSelector": {"kubernetes.io/os": "darwin"}}));
    assert_eq!(alone(&pod), Ok(()));
}

#[test]
fn a_pod_of_the_restricted_standard_is_taken_on() {
    let security = json!({
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    assert_eq!(alone(&container(json!({"securityContext": security}))), Ok(()));
}

#[test]
fn everything_a_vm_cannot_do_is_refused_with_its_reason() {
    let cases = cases! {
        with {"hostNetwork": true} => "spec.hostNetwork";
        with {"hostPID": true} => "spec.hostPID";
        with {"hostIPC": true} => "spec.hostIPC";
        with {"shareProcessNamespace": true} => "spec.shareProcessNamespace";
        with {"runtimeClassName": "kata"} => "spec.runtimeClassName";
        with {"hostAliases": [{"ip": "1.2.3.4"}]} => "spec.hostAliases";
        with {"dnsPolicy": "None"} => "spec.dnsPolicy";
        with {"dnsConfig": {"searches": ["x"]}} => "spec.dnsConfig";
        with {"setHostnameAsFQDN": true} => "spec.setHostnameAsFQDN";
        with {"resourceClaims": [{"name": "x"}]} => "spec.resourceClaims";
        with {"ephemeralContainers": [{"name": "x"}]} => "spec.ephemeralContainers";
        with {"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}} => "spec.securityContext.sysctls";
        with {"securityContext": {"runAsUser": 501}} => "spec.securityContext.runAsUser";
        with {"volumes": [{"name": "v", "hostPath": {"path": "/var/x", "type": "Socket"}}]} => "volume v: a VM is given folders";
        with {"volumes": [{"name": "v", "hostPath": {"path": "/var/../etc"}}]} => "volume v: a hostPath must be absolute";
        with {"volumes": [{"name": "v", "nfs": {"path": "/", "server": "s"}}]} => "volume v: a VM cannot";
        with {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]} => "volume v: an emptyDir in memory";
        with {"volumes": [{"name": "v", "projected": {"sources": [{"podCertificate": {"signerName": "acme.com/ca", "keyType": "ED25519"}}]}}]} => "volume v: podCertificate";
        container {"securityContext": {"privileged": true}} => "container a, privileged";
        container {"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}} => "container a, capabilities.add";
        container {"securityContext": {"runAsUser": 0}} => "container a, runAsUser";
        container {"volumeDevices": [{"devicePath": "/dev/x", "name": "v"}]} => "container a, volumeDevices";
        container {"resources": {"claims": [{"name": "gpu"}]}} => "container a, resources.claims";
        container {"ports": [{"containerPort": 53, "hostPort": 53, "protocol": "UDP"}]} => "container a, hostPort";
        container {"volumeMounts": [{"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"}]} => "container a, mountPropagation";
        container {"livenessProbe": {}} => "container a, probe";
        container {"lifecycle": {"preStop": {"tcpSocket": {"port": 1}}}} => "container a, lifecycle";
        container {"env": [{"name": "X", "valueFrom": {"fileKeyRef": {"key": "k", "path": "p", "volumeName": "v"}}}]} => "container a, env";
    };
    for (pod, clause) in cases {
        let (reason, message) = refusal(&pod);
        assert_eq!(reason, "UnsupportedByVM", "{message}");
        let start = format!("a VM cannot do this: {clause}");
        assert!(message.starts_with(&start), "{message}");
        let one = !message.contains(';') || message.matches("; ").count() == 1;
        assert!(one, "one clause: {message}");
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let (_, message) = refusal(&with(json!({"hostNetwork": true, "hostPID": true})));
    assert!(
        message.contains("hostNetwork") && message.contains("hostPID"),
        "{message}"
    );
}

#[test]
fn a_malformed_pod_is_refused_in_words() {
    assert_eq!(refusal(&pod(json!({"containers": []}))).0, "InvalidPod");
    let mut nameless = with(json!({}));
    nameless.metadata.uid = None;
    let (reason, message) = refusal(&nameless);
    assert_eq!(reason, "InvalidPod");
    assert_eq!(message, "the Pod has no uid, by which its VMs are named");
}

#[test]
fn an_operating_system_of_the_api_is_never_a_mac() {
    let (reason, message) = refusal(&with(json!({"os": {"name": "linux"}})));
    assert_eq!(reason, "PodOSNotSupported");
    assert!(message.contains("kubernetes.io/os: darwin"), "{message}");
}

#[test]
fn a_pod_that_needs_a_third_vm_at_once_is_never_taken_on() {
    let three = pod(json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}));
    assert_eq!(refusal(&three).0, "TooManyContainers");
}

#[test]
fn a_third_vm_is_refused_while_two_are_taken() {
    let one = with(json!({}));
    let two = pod(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
    assert_eq!(admit(&one, &host(), &[&one]), Ok(()));
    let refusal = admit(&one, &host(), &[&two]).unwrap_err();
    assert_eq!(refusal.reason, "OutOfVMs");
    assert_eq!(
        refusal.message,
        "Node didn't have enough resource: VMs, requested: 1, used: 2, capacity: 2"
    );
}

#[test]
fn a_pod_for_another_node_is_refused() {
    let (reason, message) = refusal(&with(json!({"nodeName": "mac2"})));
    assert_eq!(reason, "NodeName");
    assert_eq!(
        message,
        "Predicate NodeName failed: node(s) didn't match the requested node name"
    );
}

#[test]
fn selectors_and_affinity_are_checked_again() {
    let affinity = |expression: Value| {
        let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
        with(json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}))
    };
    let good = [
        json!({"key": "tuist.dev/fleet", "operator": "In", "values": ["a", "b"]}),
        json!({"key": "tuist.dev/fleet", "operator": "NotIn", "values": ["b"]}),
        json!({"key": "none", "operator": "NotIn", "values": ["b"]}),
        json!({"key": "cores", "operator": "Gt", "values": ["7"]}),
        json!({"key": "cores", "operator": "Lt", "values": ["9"]}),
        json!({"key": "cores", "operator": "Exists"}),
        json!({"key": "none", "operator": "DoesNotExist"}),
    ];
    for expression in good {
        assert_eq!(alone(&affinity(expression.clone())), Ok(()), "{expression}");
    }
    let bad = [
        json!({"key": "tuist.dev/fleet", "operator": "In", "values": ["b"]}),
        json!({"key": "none", "operator": "In", "values": ["b"]}),
        json!({"key": "cores", "operator": "Gt", "values": ["8"]}),
        json!({"key": "cores", "operator": "Near", "values": ["8"]}),
        json!({"key": "tuist.dev/fleet", "operator": "Lt", "values": ["8"]}),
    ];
    for expression in bad {
        assert_eq!(refusal(&affinity(expression.clone())).0, "NodeAffinity", "{expression}");
    }
    let linux = with(json!({"nodeSelector": {"kubernetes.io/os": "linux"}}));
    assert_eq!(refusal(&linux).0, "NodeAffinity");
}

/// On macOS a listener at one address goes before one at all of them: a Pod with the port of the kubelet API would have been sent
/// what the API server has to say to its node.
#[test]
fn the_ports_of_the_agent_are_nobody_elses() {
    let mut host = host();
    host.own_ports = vec![10250];
    let ports = |number: i32| container(json!({"ports": [{"containerPort": 1, "hostPort": number}]}));
    let refusal = admit(&ports(10250), &host, &[]).unwrap_err();
    assert_eq!(refusal.reason, "NodePorts");
    assert!(refusal.message.contains("10250"), "{refusal:?}");
    assert_eq!(admit(&ports(10251), &host, &[]), Ok(()));
}

#[test]
fn a_port_of_the_host_is_given_once() {
    let ports = |ip: &str| container(json!({"ports": [{"containerPort": 1, "hostPort": 9091, "hostIP": ip}]}));
    let clash = |ip: &str, other: &str| {
        let refused = admit(&ports(ip), &host(), &[&ports(other)]).err();
        refused.map(|refusal| refusal.reason)
    };
    assert_eq!(clash("", "10.0.0.1").as_deref(), Some("NodePorts"));
    assert_eq!(clash("0.0.0.0", "10.0.0.1").as_deref(), Some("NodePorts"));
    assert_eq!(clash("10.0.0.2", "10.0.0.1"), None);
}

#[test]
fn only_a_taint_that_evicts_is_checked_again() {
    let mut host = host();
    let taint = |effect: &str| Taint {
        key: "k".into(),
        value: Some("v".into()),
        effect: effect.into(),
        ..Taint::default()
    };
    host.taints = vec![taint("NoSchedule")];
    assert_eq!(admit(&with(json!({})), &host, &[]), Ok(()));
    host.taints = vec![taint("NoExecute")];
    let refusal = admit(&with(json!({})), &host, &[]).unwrap_err();
    assert_eq!(
        refusal.message,
        "Predicate TaintToleration failed: node(s) had untolerated taint {k: v}"
    );
    for toleration in [
        json!({"operator": "Exists"}),
        json!({"key": "k", "value": "v", "effect": "NoExecute"}),
    ] {
        assert_eq!(admit(&with(json!({"tolerations": [toleration]})), &host, &[]), Ok(()));
    }
}

#[test]
fn resources_are_counted_with_those_of_the_others() {
    let cpu = |cpu: &str| container(json!({"resources": {"requests": {"cpu": cpu}}}));
    assert_eq!(admit(&cpu("6"), &host(), &[&cpu("2")]), Ok(()));
    let refusal = admit(&cpu("6"), &host(), &[&cpu("2500m")]).unwrap_err();
    assert_eq!(refusal.reason, "OutOfcpu");
    assert_eq!(
        refusal.message,
        "Node didn't have enough resource: cpu, requested: 6000, used: 2500, capacity: 8000"
    );
    let gpu = container(json!({"resources": {"limits": {"nvidia.com/gpu": "1"}}}));
    assert_eq!(admit(&gpu, &host(), &[]).unwrap_err().reason, "OutOfnvidia.com/gpu");
    let one = with(json!({}));
    let fourth = admit(&one, &host(), &[&one, &one, &one]).unwrap_err();
    assert_eq!(fourth.reason, "OutOfpods");
}

#[test]
fn what_a_pod_needs_is_its_worst_moment() {
    let cpu = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let pod = pod(json!({
        "initContainers": [
            {"name": "i", "resources": cpu("5")},
            {"name": "s", "restartPolicy": "Always", "resources": cpu("1")},
            {"name": "j", "resources": cpu("2")},
        ],
        "containers": [{"name": "a", "resources": cpu("3")}],
    }));
    assert_eq!(requests(&pod)["cpu"], Amount::units(5));
    let mut whole = pod.clone();
    whole.spec.as_mut().unwrap().resources = serde_json::from_value(cpu("7")).unwrap();
    assert_eq!(requests(&whole)["cpu"], Amount::units(7));
}

#[test]
fn classes_are_those_of_the_api_server() {
    let of = |resources: Value| qos_class(&container(json!({"resources": resources})));
    assert_eq!(of(json!({})), "BestEffort");
    assert_eq!(of(json!({"requests": {"cpu": "1"}})), "Burstable");
    assert_eq!(of(json!({"limits": {"cpu": "1", "memory": "1Gi"}})), "Guaranteed");
    let less = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}});
    assert_eq!(of(less), "Burstable");
    assert_eq!(of(json!({"limits": {"cpu": "1"}})), "Burstable");
}

#[test]
fn a_node_under_pressure_takes_only_what_is_critical() {
    let mut host = host();
    host.pressures = vec!["DiskPressure".to_owned()];
    let refusal = admit(&with(json!({})), &host, &[]).unwrap_err();
    assert_eq!(
        (refusal.reason.as_str(), refusal.message.as_str()),
        ("Evicted", "The node had condition: [DiskPressure]. ")
    );
    assert_eq!(admit(&with(json!({"priority": 2_000_000_000})), &host, &[]), Ok(()));
    host.pressures = vec!["MemoryPressure".to_owned()];
    let burstable = container(json!({"resources": {"requests": {"cpu": "1"}}}));
    assert_eq!(admit(&burstable, &host, &[]), Ok(()));
    assert!(admit(&with(json!({})), &host, &[]).is_err());
}

#[test]
fn a_refused_pod_says_why() {
    let pod = with(json!({"hostNetwork": true}));
    let refusal = admit(&pod, &host(), &[]).unwrap_err();
    let status = refusal.status(&pod, at(5));
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Failed"), Some("UnsupportedByVM"))
    );
    let message = status.message.unwrap();
    assert!(message.starts_with("Pod was rejected: a VM cannot do this: spec.hostNetwork: a VM has a"));
    assert_eq!((status.container_statuses, status.observed_generation), (None, Some(1)));
}
