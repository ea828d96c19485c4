//! What a Pod's spec says, with the defaults of Kubernetes.

use crate::time::seconds;
use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, Lifecycle, LifecycleHandler, Pod, PodSpec};
use std::time::Duration;

/// What a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`: started in its turn, and there until the others are done.
    Sidecar,
    /// What the Pod is for.
    Main,
}

/// The containers of a Pod in the order in which they start.
pub fn containers(pod: &Pod) -> impl DoubleEndedIterator<Item = (Kind, &Container)> {
    let spec = pod.spec.as_ref();
    let init = spec
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default();
    let main = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let init = init.iter().map(|container| match container.restart_policy.as_deref() {
        Some("Always") => (Kind::Sidecar, container),
        _ => (Kind::Init, container),
    });
    init.chain(main.iter().map(|container| (Kind::Main, container)))
}

/// A container by its name.
pub fn container<'a>(pod: &'a Pod, name: &str) -> Option<(Kind, &'a Container)> {
    containers(pod).find(|(_, container)| container.name == name)
}

/// How many VMs a Pod needs at the worst moment, one per container that can run beside others.
pub fn peak_vms(pod: &Pod) -> usize {
    let (mut sidecars, mut peak, mut mains) = (0, 0, 0);
    for (kind, _) in containers(pod) {
        match kind {
            Kind::Init => peak = peak.max(sidecars + 1),
            Kind::Sidecar => sidecars += 1,
            Kind::Main => mains += 1,
        }
    }
    peak.max(sidecars + mains)
}

/// Whether a container that ended with this code is started again, as long as nothing ends the Pod.
pub fn restarts(pod: &Pod, kind: Kind, container: &Container, code: i32) -> bool {
    if kind == Kind::Sidecar {
        return true;
    }
    let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
    if rules.iter().any(|rule| rule_restarts(rule, code)) {
        return true;
    }
    match container.restart_policy.as_deref().unwrap_or(pod_policy(pod)) {
        "Never" => false,
        "Always" if kind == Kind::Main => true,
        _ => code != 0,
    }
}

fn rule_restarts(rule: &ContainerRestartRule, code: i32) -> bool {
    let Some(codes) = rule.exit_codes.as_ref().filter(|_| rule.action == "Restart") else {
        return false;
    };
    let listed = codes.values.as_ref().is_some_and(|values| values.contains(&code));
    match codes.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}

fn pod_policy(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref())
        .unwrap_or("Always")
}

/// How long containers may take to end when nothing shorter was asked for.
pub fn grace(pod: &Pod) -> Duration {
    let wanted = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    seconds(wanted.unwrap_or(30))
}

/// The hook that runs after a start.
pub fn post_start(container: &Container) -> Option<&LifecycleHandler> {
    container
        .lifecycle
        .as_ref()
        .and_then(|hooks: &Lifecycle| hooks.post_start.as_ref())
}

/// The hook that runs before a stop.
pub fn pre_stop(container: &Container) -> Option<&LifecycleHandler> {
    container
        .lifecycle
        .as_ref()
        .and_then(|hooks: &Lifecycle| hooks.pre_stop.as_ref())
}

/// A Pod as kubelets write it in messages: `name_namespace(uid)`.
pub fn described(pod: &Pod) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let meta = &pod.metadata;
    format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid))
}

/// Whom the Pod acts as.
pub fn service_account(spec: &PodSpec) -> &str {
    let named = spec.service_account_name.as_deref().or(spec.service_account.as_deref());
    named.filter(|name| !name.is_empty()).unwrap_or("default")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;
    use serde_json::json;

    #[test]
    fn a_pod_needs_a_vm_per_container_that_runs_beside_others() {
        let peak = |spec| peak_vms(&pod(spec));
        assert_eq!(peak(json!({"containers": [{"name": "a"}]})), 1);
        let found = peak(json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "j"}]}));
        assert_eq!(found, 1);
        let sidecar = json!({"name": "s", "restartPolicy": "Always"});
        let found = peak(json!({"containers": [{"name": "a"}], "initContainers": [sidecar, {"name": "i"}]}));
        assert_eq!(found, 2);
        let found = peak(json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [sidecar]}));
        assert_eq!(found, 3);
    }

    #[test]
    fn restart_policies_say_what_happens_after_an_end() {
        let after = |policy: &str, code| {
            let pod = pod(json!({"restartPolicy": policy, "containers": [{"name": "a"}]}));
            let (kind, container) = container(&pod, "a").unwrap();
            restarts(&pod, kind, container, code)
        };
        assert_eq!([after("Always", 0), after("Always", 1)], [true, true]);
        assert_eq!([after("OnFailure", 0), after("OnFailure", 1)], [false, true]);
        assert_eq!([after("Never", 0), after("Never", 1)], [false, false]);
    }

    #[test]
    fn an_init_container_that_succeeded_is_done_whatever_the_policy() {
        let pod = pod(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}));
        let (kind, init) = container(&pod, "i").unwrap();
        assert_eq!(
            [restarts(&pod, kind, init, 0), restarts(&pod, kind, init, 1)],
            [false, true]
        );
    }

    #[test]
    fn a_rule_for_an_exit_code_goes_before_the_policy_of_its_container() {
        let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}});
        let pod = pod(json!({"restartPolicy": "Always", "containers": [
            {"name": "a", "restartPolicy": "Never", "restartPolicyRules": [rule]},
            {"name": "b", "restartPolicy": "OnFailure"},
        ]}));
        let after = |name, code| {
            let (kind, container) = container(&pod, name).unwrap();
            restarts(&pod, kind, container, code)
        };
        assert_eq!([after("a", 42), after("a", 1), after("a", 0)], [true, false, false]);
        assert_eq!([after("b", 1), after("b", 0)], [true, false]);
    }
}
