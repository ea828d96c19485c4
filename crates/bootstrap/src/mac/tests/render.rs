//! The plan as people read it, one golden file for each step.

use std::fmt::Write as _;

use super::{bare, builder, full, plain};
use crate::mac::program::{self, Patience};
use crate::mac::resource::{Mode, Resource};
use crate::mac::step::Step;
use crate::mac::{Fleet, Host, plan};

fn mode(mode: Mode) -> String {
    format!("{} {:?}", mode.bits, mode.owner)
}

/// A resource in words; secrets are only counted.
fn shown(resource: &Resource, host: &Host) -> String {
    let secrets: Vec<&str> = host.secrets().map(|secret| secret.expose().as_str()).collect();
    let text = match resource {
        Resource::Directory { path, mode: bits } => format!("directory {path} {}\n", mode(*bits)),
        Resource::Log { path, mode: bits } => format!("log {path} {}\n", mode(*bits)),
        Resource::File {
            path,
            mode: bits,
            content,
        } => match std::str::from_utf8(content.expose()) {
            Ok(text) if !path.ends_with("kubeconfig") => format!("file {path} {}\n{text}", mode(*bits)),
            _ => format!("file {path} {}\n({} bytes)\n", mode(*bits), content.expose().len()),
        },
        Resource::Absent { path } => format!("nothing at {path}\n"),
        Resource::Program { path, .. } => format!("program {path}\n"),
        Resource::Job {
            job,
            plist,
            content,
            rhythm,
            inputs,
        } => format!("job {job} {plist} {rhythm:?}\nstarted again with {inputs:?}\n{content}"),
        Resource::NoJob { job, plist } => format!("no job {job} {plist}\n"),
        Resource::Script {
            upload,
            variables,
            check,
            change,
        } => {
            let mut text = format!("script{}\n", if upload.is_some() { " with an upload" } else { "" });
            for (name, value) in variables {
                let secret = secrets
                    .iter()
                    .any(|secret| !secret.is_empty() && value.expose().contains(secret));
                let _ = writeln!(text, "{name}={}", if secret { "(secret)" } else { value.expose() });
            }
            let _ = writeln!(text, "check:\n{}\nchange:\n{}", check.trim(), change.trim());
            text
        }
    };
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        assert!(!text.contains(secret), "{text}");
    }
    text
}

fn told(step: &Step, host: &Host) -> String {
    let mut text = format!(
        "within {} s{}\n",
        step.deadline.as_secs(),
        if step.optional { ", optional" } else { "" }
    );
    for resource in &step.resources {
        text.push('\n');
        text.push_str(&shown(resource, host));
    }
    text
}

fn goldens(kind: &str, fleet: &Fleet, host: &Host) {
    for step in plan(fleet, host) {
        insta::assert_snapshot!(format!("{kind}__{}", step.name()), told(&step, host));
    }
}

#[test]
fn the_plan_of_a_builder_with_everything() {
    goldens("full", &full(), &builder());
}

#[test]
fn the_plan_of_a_bare_host_takes_away_what_is_not_wanted() {
    goldens("plain", &plain(), &bare());
}

/// The frame around a step: nothing runs before the last line has arrived, and standard input is not the program's.
#[test]
fn a_program_is_one_function_that_the_last_line_calls() {
    let host = bare();
    let steps = plan(&plain(), &host);
    let sudo = steps.first().unwrap();
    let text = program::change(sudo, &host.user, Patience::default()).expose().clone();
    let (prelude, rest) = text.split_once("check_sudo() {").unwrap();
    assert!(!prelude.contains("m1"), "the prelude knows no host");
    insta::assert_snapshot!("program_of_sudo", format!("check_sudo() {{{rest}"));
    assert!(text.ends_with("\nmain </dev/null\n"));
    let survey = program::survey(&steps, &host.user, Patience::default());
    assert!(survey.expose().ends_with("\nmain </dev/null\n"));
}

/// Two values that come from outside meet two languages: shell and property lists. Neither lets them out of their quotes.
#[test]
fn values_of_a_host_stay_values() {
    let mut host = builder();
    host.runner.as_mut().unwrap().labels = "a'; touch /tmp/pwned; '".to_owned();
    host.provider_id = "</string><string>--evil".to_owned();
    let steps = plan(&full(), &host);
    let step = |name: &str| steps.iter().find(|step| step.name() == name).unwrap();
    let text = program::change(step("github-runner"), &host.user, Patience::default());
    assert!(text.expose().contains(r"LABELS='a'\''; touch /tmp/pwned; '\'''"));
    let job = told(step("tart-kubelet-job"), &host);
    assert!(
        job.contains("--provider-id=&lt;/string&gt;&lt;string&gt;--evil"),
        "{job}"
    );
}
