//! What a VM cannot do for a Pod, each with the reason.
//!
//! Fields that only take rights away (`runAsNonRoot`, dropped capabilities, seccomp, `readOnlyRootFilesystem`, groups) are
//! kept by the VM itself, which is a fresh clone behind a kernel of its own: they are accepted, so that Pods of a namespace
//! with the restricted Pod security standard run here. What asks for something that would silently be missing is refused.

use crate::spec;
use crate::volumes::unsupported_host_path;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod, PodSpec, Probe, Volume};

/// Everything in a Pod that a VM cannot do, a clause each.
pub fn unsupported(pod: &Pod) -> Vec<String> {
    let mut bad = Vec::new();
    let Some(spec) = &pod.spec else { return bad };
    of_pod(spec, &mut bad);
    for volume in spec.volumes.iter().flatten() {
        of_volume(volume, &mut bad);
    }
    for (_, container) in spec::containers(pod) {
        of_container(container, &mut bad);
    }
    bad
}

fn of_pod(spec: &PodSpec, bad: &mut Vec<String>) {
    let mut refuse = |field: &str, present: bool, why: &str| {
        if present {
            bad.push(format!("spec.{field}: {why}"));
        }
    };
    let on = |value: Option<bool>| value == Some(true);
    refuse(
        "hostNetwork",
        on(spec.host_network),
        "a VM has a network of its own; use a hostPort",
    );
    refuse(
        "hostPID",
        on(spec.host_pid),
        "a VM does not see the processes of its host",
    );
    refuse("hostIPC", on(spec.host_ipc), "a VM shares no memory with its host");
    refuse(
        "shareProcessNamespace",
        on(spec.share_process_namespace),
        "containers are VMs with a kernel each",
    );
    refuse(
        "runtimeClassName",
        spec.runtime_class_name.is_some(),
        "this node runs every Pod in the same way",
    );
    refuse(
        "hostAliases",
        some(spec.host_aliases.as_ref()),
        "/etc/hosts belongs to the image",
    );
    refuse(
        "dnsPolicy",
        spec.dns_policy.as_deref() == Some("None"),
        "the resolver belongs to the VM's network",
    );
    refuse(
        "dnsConfig",
        spec.dns_config.is_some(),
        "the resolver belongs to the VM's network",
    );
    refuse(
        "setHostnameAsFQDN",
        on(spec.set_hostname_as_fqdn),
        "the name of a VM belongs to its image",
    );
    refuse(
        "resourceClaims",
        some(spec.resource_claims.as_ref()),
        "a VM cannot be given devices",
    );
    refuse(
        "ephemeralContainers",
        some(spec.ephemeral_containers.as_ref()),
        "nothing can be added to a VM that runs; use kubectl exec",
    );
    if let Some(security) = &spec.security_context {
        refuse(
            "securityContext.sysctls",
            some(security.sysctls.as_ref()),
            "a VM has no sysctls of Linux",
        );
        refuse(
            "securityContext.windowsOptions",
            security.windows_options.is_some(),
            "this is no Windows node",
        );
        let user = security.run_as_user.is_some() || security.run_as_group.is_some();
        refuse(
            "securityContext.runAsUser",
            user,
            "programs run as the user that the image logs in",
        );
    }
}

fn of_volume(volume: &Volume, bad: &mut Vec<String>) {
    let mut refuse = |why: &str| bad.push(format!("volume {}: {why}", volume.name));
    let known = volume.secret.is_some() || volume.config_map.is_some() || volume.downward_api.is_some();
    if let Some(source) = &volume.empty_dir {
        match source.medium.as_deref() {
            Some("Memory") => refuse("an emptyDir in memory cannot be shared with a VM; leave medium out"),
            Some(medium) if !medium.is_empty() => refuse("a VM has no huge pages; leave medium out"),
            _ => {}
        }
    } else if let Some(source) = &volume.projected {
        for part in source.sources.iter().flatten() {
            if part.pod_certificate.is_some() {
                refuse("podCertificate is not issued on this node; use a secret");
            }
        }
    } else if let Some(source) = &volume.host_path {
        if let Some(why) = unsupported_host_path(source) {
            refuse(why);
        }
    } else if !known && volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() {
        // What a claim is bound to is not known here; one that is no folder of this host waits, with the reason in an event.
        refuse(
            "a VM cannot have this kind of volume; use secret, configMap, downwardAPI, projected, emptyDir, hostPath or a claim",
        );
    }
}

fn of_container(container: &Container, bad: &mut Vec<String>) {
    let mut refuse = |field: &str, present: bool, why: &str| {
        if present {
            bad.push(format!("container {}, {field}: {why}", container.name));
        }
    };
    if let Some(security) = &container.security_context {
        let on = |value: Option<bool>| value == Some(true);
        refuse(
            "privileged",
            on(security.privileged),
            "nothing in a VM has rights on its host; it is root in its VM already",
        );
        let added = security
            .capabilities
            .as_ref()
            .is_some_and(|sets| some(sets.add.as_ref()));
        refuse("capabilities.add", added, "macOS has no capabilities");
        refuse(
            "procMount",
            security.proc_mount.as_deref() == Some("Unmasked"),
            "macOS has no /proc",
        );
        refuse(
            "windowsOptions",
            security.windows_options.is_some(),
            "this is no Windows node",
        );
        let user = security.run_as_user.is_some() || security.run_as_group.is_some();
        refuse("runAsUser", user, "programs run as the user that the image logs in");
    }
    refuse(
        "volumeDevices",
        some(container.volume_devices.as_ref()),
        "a VM cannot be given block devices",
    );
    let claims = container
        .resources
        .as_ref()
        .is_some_and(|resources| some(resources.claims.as_ref()));
    refuse("resources.claims", claims, "a VM cannot be given devices");
    for mount in container.volume_mounts.iter().flatten() {
        let propagated = mount.mount_propagation.as_deref().is_some_and(|how| how != "None");
        refuse(
            "mountPropagation",
            propagated,
            "mounts do not travel between a VM and its host",
        );
    }
    for port in container
        .ports
        .iter()
        .flatten()
        .filter(|port| port.host_port.is_some_and(|port| port > 0))
    {
        let other = port.protocol.as_deref().is_some_and(|protocol| protocol != "TCP");
        refuse("hostPort", other, "only TCP can be forwarded to a VM");
    }
    for var in container.env.iter().flatten() {
        let file = var
            .value_from
            .as_ref()
            .is_some_and(|source| source.file_key_ref.is_some());
        refuse(
            "env",
            file,
            "a fileKeyRef would be read before there is a file; use a configMapKeyRef or secretKeyRef",
        );
    }
    let probes = [
        &container.startup_probe,
        &container.liveness_probe,
        &container.readiness_probe,
    ];
    for probe in probes.into_iter().flatten() {
        refuse("probe", !asks(probe), "it needs exec, httpGet, tcpSocket or grpc");
    }
    for hook in [spec::post_start(container), spec::pre_stop(container)]
        .into_iter()
        .flatten()
    {
        refuse("lifecycle", !acts(hook), "a hook needs exec, httpGet or sleep");
    }
}

fn asks(probe: &Probe) -> bool {
    probe.exec.is_some() || probe.http_get.is_some() || probe.tcp_socket.is_some() || probe.grpc.is_some()
}

fn acts(hook: &LifecycleHandler) -> bool {
    hook.exec.is_some() || hook.http_get.is_some() || hook.sleep.is_some()
}

fn some<T>(list: Option<&Vec<T>>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}
