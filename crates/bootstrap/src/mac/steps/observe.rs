//! What watches a host: `node_exporter` on the tailnet, and the shipping of logs. A host serves without either, so what goes wrong
//! here is told and fails nothing.

use crate::mac::config::{Fleet, Host};
use crate::mac::plist::{self, Value};
use crate::mac::resource::{Mode, Resource, Rhythm};
use crate::mac::step::Step;

use super::absent_job;

const EXPORTER: &str = "/usr/local/bin/node_exporter";
const WRAPPER: &str = "/usr/local/bin/tuist-node-exporter-wrapper";
const EXPORTER_LABEL: &str = "dev.tuist.node-exporter";
const SHIPPER: &str = "/usr/local/bin/tuist-log-shipper";
const SHIPPER_LABEL: &str = "dev.tuist.log-shipper";

/// Binds to the tailnet or not at all: a fallback would show the host's figures to the world.
const SCRIPT: &str = r#"#!/bin/bash
for try in 1 2 3 4 5; do
  address=$(/usr/local/bin/tailscale ip -4 2>/dev/null | head -n 1)
  [ -n "$address" ] && break
  sleep 2
done
[ -n "$address" ] || { echo 'no address on the tailnet' >&2; exit 1; }
exec /usr/local/bin/node_exporter --web.listen-address="$address:9100" --collector.disable-defaults \
  --collector.cpu --collector.diskstats --collector.filesystem --collector.loadavg --collector.meminfo \
  --collector.netdev --collector.os --collector.time --collector.uname
"#;

fn daemon(label: &'static str, arguments: Vec<String>, log: &'static str, inputs: Vec<String>) -> Resource {
    Resource::Job {
        job: format!("system/{label}"),
        plist: format!("/Library/LaunchDaemons/{label}.plist"),
        content: plist::render(vec![
            ("Label", label.into()),
            ("ProgramArguments", Value::list(arguments)),
            ("RunAtLoad", Value::True),
            ("KeepAlive", Value::True),
            ("ThrottleInterval", Value::Number(10)),
            ("StandardOutPath", log.into()),
            ("StandardErrorPath", log.into()),
        ]),
        rhythm: Rhythm::Daemon,
        inputs,
    }
}

fn absent(path: &str) -> Resource {
    Resource::Absent { path: path.to_owned() }
}

/// `node_exporter`, where there is a tailnet.
pub(in crate::mac) fn exporter(fleet: &Fleet) -> Step {
    let resources = match (&fleet.node_exporter, &fleet.tailnet) {
        (Some(program), Some(_)) => vec![
            Resource::Program {
                path: EXPORTER.to_owned(),
                artifact: program.clone(),
            },
            Resource::text(WRAPPER, Mode::PROGRAM, SCRIPT),
            daemon(
                EXPORTER_LABEL,
                vec![WRAPPER.to_owned()],
                "/var/log/tuist-node-exporter.log",
                vec![EXPORTER.to_owned(), WRAPPER.to_owned()],
            ),
        ],
        _ => vec![absent_job(EXPORTER_LABEL), absent(EXPORTER), absent(WRAPPER)],
    };
    Step::new("node-exporter", resources).optional()
}

/// The shipping of logs.
pub(in crate::mac) fn logs(fleet: &Fleet, host: &Host) -> Step {
    let state = "/var/lib/tuist-log-shipper";
    let resources = match &fleet.logs {
        Some(logs) => vec![
            Resource::Program {
                path: SHIPPER.to_owned(),
                artifact: logs.program.clone(),
            },
            Resource::Directory {
                path: state.to_owned(),
                mode: Mode::root("drwxr-xr-x"),
            },
            daemon(
                SHIPPER_LABEL,
                vec![
                    SHIPPER.to_owned(),
                    format!("--url={}", logs.url),
                    "--file=tuist-macos-tart-kubelet=/var/log/tart-kubelet.log".to_owned(),
                    format!("--instance={}", host.node_name),
                    format!("--env={}", logs.env),
                ],
                "/var/log/tuist-log-shipper.log",
                vec![SHIPPER.to_owned()],
            ),
        ],
        None => vec![absent_job(SHIPPER_LABEL), absent(SHIPPER), absent(state)],
    };
    Step::new("log-shipper", resources).optional()
}
