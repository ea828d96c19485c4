//! tart-kubelet: what it joins with, the program, and the job that runs it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use russet_telemetry::Secret;

use crate::linux::Taint;
use crate::mac::config::{ApiServer, Fleet, Host};
use crate::mac::plist::{self, Value};
use crate::mac::resource::{Mode, Resource, Rhythm};
use crate::mac::step::Step;

const KUBECONFIG: &str = "/etc/tart-kubelet/kubeconfig";
const CLUSTER_INFO: &str = "/etc/tart-kubelet/cluster-info";
const PROGRAM: &str = "/usr/local/bin/tart-kubelet";
const LABEL: &str = "dev.tuist.tart-kubelet";
const PLIST: &str = "/Library/LaunchDaemons/dev.tuist.tart-kubelet.plist";
const LOG: &str = "/var/log/tart-kubelet.log";
/// Folders the agent writes to as the user it runs as.
const FOLDERS: [&str; 4] = [
    "/var/log/tart-vms",
    "/var/lib/tart-userdata",
    "/var/lib/tart-vnc-control",
    "/var/lib/tart-kubelet",
];

/// What the Node joins with.
pub(in crate::mac) fn kubeconfig(host: &Host) -> Step {
    Step::new(
        "kubeconfig",
        vec![Resource::File {
            path: KUBECONFIG.to_owned(),
            mode: Mode::user("-rw-------"),
            content: Secret::new(host.kubeconfig.expose().clone().into_bytes()),
        }],
    )
}

/// Where the API server is and who vouches for it, in the form of `kube-public/cluster-info`. It is a file of its own, since what
/// a Node joins with is no part of the hash; and a file rather than an argument, since a job whose plist is the same is only
/// started again.
pub(in crate::mac) fn api_server(fleet: &Fleet) -> Step {
    let file = match fleet.api_server.as_deref() {
        Some(server) => Resource::text(CLUSTER_INFO, Mode::TEXT, cluster_info(server)),
        None => Resource::Absent {
            path: CLUSTER_INFO.to_owned(),
        },
    };
    Step::new("api-server", vec![file])
}

fn cluster_info(ApiServer { url, ca_pem }: &ApiServer) -> String {
    let authority = STANDARD.encode(ca_pem);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: \"{url}\"\n    certificate-authority-data: {authority}\n"
    )
}

/// The program.
pub(in crate::mac) fn program(fleet: &Fleet) -> Step {
    Step::new(
        "tart-kubelet",
        vec![Resource::Program {
            path: PROGRAM.to_owned(),
            artifact: fleet.agent.program.clone(),
        }],
    )
}

/// The job. It runs as the user of the desktop session, which virtual machines need.
pub(in crate::mac) fn job(fleet: &Fleet, host: &Host) -> Step {
    let mut resources: Vec<Resource> = FOLDERS
        .iter()
        .map(|path| Resource::Directory {
            path: (*path).to_owned(),
            mode: Mode::user("drwxr-xr-x"),
        })
        .collect();
    // The job runs as the user, who may not make files in /var/log.
    resources.push(Resource::Log {
        path: LOG.to_owned(),
        mode: Mode::user("-rw-r--r--"),
    });
    let mut inputs = vec![PROGRAM.to_owned(), KUBECONFIG.to_owned()];
    if fleet.api_server.is_some() {
        inputs.push(CLUSTER_INFO.to_owned());
    }
    resources.push(Resource::Job {
        job: format!("system/{LABEL}"),
        plist: PLIST.to_owned(),
        content: plist(fleet, host),
        rhythm: Rhythm::Daemon,
        inputs,
    });
    Step::new("tart-kubelet-job", resources)
}

fn arguments(fleet: &Fleet, host: &Host) -> Vec<String> {
    let agent = &fleet.agent;
    let mut arguments = vec![
        PROGRAM.to_owned(),
        format!("--node-name={}", host.node_name),
        format!("--kubeconfig={KUBECONFIG}"),
        format!("--host-cpu={}", agent.cpu),
        format!("--host-memory-mb={}", agent.memory_mb),
        format!("--max-pods={}", agent.max_pods),
    ];
    if fleet.api_server.is_some() {
        arguments.push(format!("--cluster-info={CLUSTER_INFO}"));
    }
    if !host.labels.is_empty() {
        let labels: Vec<String> = host
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        arguments.push(format!("--node-labels={}", labels.join(",")));
    }
    if !host.taints.is_empty() {
        let taints: Vec<String> = host
            .taints
            .iter()
            .map(|Taint { key, value, effect }| format!("{key}={value}:{effect}"))
            .collect();
        arguments.push(format!("--register-with-taints={}", taints.join(",")));
    }
    if agent.tailnet_only {
        arguments.push("--node-ip-source=tailscale".to_owned());
    }
    arguments.push(format!("--provider-id={}", host.provider_id));
    if host.runner.is_some() {
        arguments.push("--disable-vm-gc".to_owned());
    }
    if fleet.cache_volume_gib.is_some() {
        arguments.push(format!("--runner-cache-root={}", super::volume::PATH));
    }
    arguments.extend(agent.extra.iter().cloned());
    arguments
}

fn plist(fleet: &Fleet, host: &Host) -> String {
    plist::render(vec![
        ("Label", LABEL.into()),
        ("ProgramArguments", Value::list(arguments(fleet, host))),
        ("UserName", host.user.as_str().into()),
        ("RunAtLoad", Value::True),
        ("KeepAlive", Value::True),
        ("ThrottleInterval", Value::Number(10)),
        ("StandardOutPath", LOG.into()),
        ("StandardErrorPath", LOG.into()),
        (
            "EnvironmentVariables",
            Value::Keys(vec![
                ("HOME", format!("/Users/{}", host.user).into()),
                (
                    "PATH",
                    "/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin".into(),
                ),
            ]),
        ),
    ])
}
