//! tart-kubelet: what it joins with, the program, and the job that runs it.

use russet_telemetry::Secret;

use crate::linux::Taint;
use crate::mac::config::{Fleet, Host};
use crate::mac::plist::{self, Value};
use crate::mac::resource::{Mode, Resource, Rhythm};
use crate::mac::step::Step;

const KUBECONFIG: &str = "/etc/tart-kubelet/kubeconfig";
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
    resources.push(Resource::Job {
        job: format!("system/{LABEL}"),
        plist: PLIST.to_owned(),
        content: plist(fleet, host),
        rhythm: Rhythm::Daemon,
        inputs: vec![PROGRAM.to_owned(), KUBECONFIG.to_owned()],
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
