//! launchd listens for SSH itself, and a few hundred half-open connections from strangers make it stop. A job notices from
//! inside and opens the port again.

use crate::mac::plist::{self, Value};
use crate::mac::resource::{Mode, Resource, Rhythm};
use crate::mac::step::Step;

const PROGRAM: &str = "/usr/local/bin/tuist-ssh-reachability";
const LABEL: &str = "dev.tuist.ssh-reachability";
const SCRIPT: &str = r"#!/bin/bash
# Opens the SSH port again when nothing answers there.
nc -z -G 3 127.0.0.1 22 && exit 0
launchctl bootout system/com.openssh.sshd
for try in 1 2 3 4 5 6 7 8 9 10; do
  launchctl bootstrap system /System/Library/LaunchDaemons/ssh.plist && exit 0
  sleep 1
done
exit 1
";

/// The step.
pub(in crate::mac) fn step() -> Step {
    Step::new(
        "ssh-reachability",
        vec![
            Resource::text(PROGRAM, Mode::PROGRAM, SCRIPT),
            timer(LABEL, PROGRAM, "/var/log/tuist-ssh-reachability.log", &[]),
        ],
    )
}

/// A job that runs a script of ours at start and once a minute, and at once when the script or one of these files changes.
pub(super) fn timer(label: &'static str, program: &'static str, log: &'static str, files: &[&str]) -> Resource {
    Resource::Job {
        job: format!("system/{label}"),
        plist: format!("/Library/LaunchDaemons/{label}.plist"),
        content: plist::render(vec![
            ("Label", label.into()),
            ("ProgramArguments", Value::list([program])),
            ("RunAtLoad", Value::True),
            ("StartInterval", Value::Number(60)),
            ("StandardOutPath", log.into()),
            ("StandardErrorPath", log.into()),
        ]),
        rhythm: Rhythm::Timer,
        inputs: [program].iter().chain(files).map(|path| (*path).to_owned()).collect(),
    }
}
