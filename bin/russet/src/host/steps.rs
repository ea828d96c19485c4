//! `russet host steps`: how far the set-up of a Mac is.

use super::find;
use crate::cli;
use crate::config::Surroundings;
use crate::exit::Exit;
use crate::table::{Cell, Colour, Table, Tone};
use anyhow::{Context, Result};
use jiff::Timestamp;
use kube::ResourceExt;
use russet_api::ScalewayAppleSiliconMachine;
use russet_api::machine::{Phase, Step, StepState};
use std::io::Write as _;
use std::time::Duration;

const REFRESH: Duration = Duration::from_secs(1);
/// Of what a step said, this much fits beside it.
const WIDEST: usize = 100;

pub(super) async fn steps(args: &cli::HostSteps, surroundings: &Surroundings) -> Result<Exit> {
    let (client, _) = find::client(&args.host, surroundings).await?;
    loop {
        let machine = find::machine(&client, &args.host).await?;
        let text = render(&machine, Timestamp::now(), surroundings.stdout.colour);
        let mut out = std::io::stdout().lock();
        if args.watch && surroundings.stdout.terminal {
            write!(out, "\u{1b}[H\u{1b}[J").context("failed to write to standard output")?;
        }
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .context("failed to write to standard output")?;
        drop(out);
        let phase = machine.status.as_ref().and_then(|status| status.phase.clone());
        match phase {
            Some(Phase::Failed) => return Ok(Exit::NotHealthy),
            Some(Phase::Ready) => return Ok(Exit::Success),
            _ if !args.watch => return Ok(Exit::Success),
            _ => {}
        }
        tokio::select! {
            () = tokio::time::sleep(REFRESH) => {}
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Success),
        }
    }
}

fn render(machine: &ScalewayAppleSiliconMachine, now: Timestamp, colour: Colour) -> String {
    let status = machine.status.clone().unwrap_or_default();
    let phase = status.phase.as_ref().map_or("Pending".to_owned(), ToString::to_string);
    let attempts = match status.bootstrap_attempts {
        Some(attempts) if attempts > 0 => format!(", {attempts} failed attempts"),
        _ => String::new(),
    };
    let mut text = format!("{}: {phase}{attempts}\n", machine.name_any());
    if status.steps.is_empty() {
        text.push_str("nothing was done on the host yet\n");
        return text;
    }
    let mut table = Table::new(&["STEP", "STATE", "TOOK", "TRIES", "SAID"]);
    for step in &status.steps {
        table.row(row(step, now));
    }
    text.push_str(&table.render(colour));
    text
}

fn row(step: &Step, now: Timestamp) -> [Cell; 5] {
    let tone = match step.state {
        StepState::Succeeded => Tone::Good,
        StepState::Failed => Tone::Bad,
        StepState::Running => Tone::Warn,
        _ => Tone::Dim,
    };
    let took = step.started_at.as_ref().map(|from| {
        let to = step.finished_at.as_ref().map_or(now, |to| to.0);
        format!("{} s", to.duration_since(from.0).as_secs().max(0))
    });
    // The last line is the one that tells.
    let said = step
        .message
        .as_deref()
        .unwrap_or_default()
        .trim()
        .lines()
        .last()
        .unwrap_or_default();
    [
        step.name.clone().into(),
        Cell::new(step.state.to_string(), tone),
        took.unwrap_or_else(|| "-".to_owned()).into(),
        step.attempts.map_or("-".to_owned(), |tries| tries.to_string()).into(),
        said.chars().take(WIDEST).collect::<String>().into(),
    ]
}

/// What a host that is being set up is at, for the one line that `russet status` has for it.
pub(crate) fn progress(steps: &[Step]) -> Option<String> {
    let at = steps
        .iter()
        .find(|step| step.state == StepState::Running)
        .or_else(|| steps.iter().find(|step| step.state == StepState::Failed))?;
    let done = steps.iter().filter(|step| step.state == StepState::Succeeded).count();
    let state = match at.state {
        StepState::Failed => "failed",
        _ => "is under way",
    };
    Some(format!("step {} {state} ({done} done)", at.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn machine() -> ScalewayAppleSiliconMachine {
        serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ScalewayAppleSiliconMachine",
            "metadata": {"name": "mac-1", "namespace": "fleet"}, "spec": {},
            "status": {"phase": "Bootstrapping", "bootstrapAttempts": 1, "steps": [
                {"name": "login", "state": "Succeeded", "attempts": 1,
                 "startedAt": "2026-03-01T10:00:00Z", "finishedAt": "2026-03-01T10:00:02Z"},
                {"name": "tart", "state": "Failed", "attempts": 2, "message": "noise\nthe disk is full",
                 "startedAt": "2026-03-01T10:00:02Z", "finishedAt": "2026-03-01T10:00:09Z"},
                {"name": "tart-kubelet", "state": "Running", "startedAt": "2026-03-01T10:00:10Z"},
                {"name": "log-shipper", "state": "Pending"},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn each_step_has_a_row_that_says_how_it_went() {
        let now = "2026-03-01T10:00:15Z".parse().unwrap();
        insta::assert_snapshot!(render(&machine(), now, Colour::Never));
    }

    #[test]
    fn one_line_says_what_a_host_is_at() {
        let steps = machine().status.unwrap().steps;
        let told = progress(&steps);
        assert_eq!(told.as_deref(), Some("step tart-kubelet is under way (1 done)"));
        assert_eq!(progress(&steps[..2]).as_deref(), Some("step tart failed (1 done)"));
        assert_eq!(progress(&steps[..1]), None);
    }
}
