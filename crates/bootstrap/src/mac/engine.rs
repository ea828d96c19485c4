//! Runs a plan on a host.

use std::path::Path;
use std::time::Duration;

use russet_telemetry::Secret;

use super::config::Host;
use super::program::{self, Finding, Patience, Survey};
use super::resource::Resource;
use super::scrub::Scrubber;
use super::step::Step;
use super::steps::sudo;
use crate::ssh::{self, Exec, Exit, Output, Session};

/// Runs the program on standard input as root. Nothing of the program is in it; where we come from is, since sudo forgets it.
const AS_ROOT: &str = "sudo -n /bin/bash -s -- \"$SSH_CONNECTION\"";
/// The same, with a password on the first line of standard input.
const WITH_PASSWORD: &str = "sudo -k -S -p '' /bin/bash -s -- \"$SSH_CONNECTION\"";
/// How long looking at a host may take.
const LOOK: Duration = Duration::from_mins(2);
/// How long one upload may take.
const UPLOAD: Duration = Duration::from_mins(30);

/// Something that runs programs on a host.
pub trait Remote: Send + Sync {
    /// Runs a command to its end.
    fn run(&self, exec: Exec<'_>) -> impl Future<Output = Result<Output, ssh::Error>> + Send;

    /// Runs a command whose standard input is a file from this byte on.
    fn send(
        &self,
        command: &str,
        file: &Path,
        from: u64,
        deadline: Duration,
    ) -> impl Future<Output = Result<Output, ssh::Error>> + Send;
}

impl Remote for Session {
    fn run(&self, exec: Exec<'_>) -> impl Future<Output = Result<Output, ssh::Error>> + Send {
        Self::run(self, exec)
    }

    fn send(
        &self,
        command: &str,
        file: &Path,
        from: u64,
        deadline: Duration,
    ) -> impl Future<Output = Result<Output, ssh::Error>> + Send {
        self.send_file(command, file, from, deadline)
    }
}

/// How a step stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepState {
    /// As it should be; nothing was done.
    Unchanged,
    /// It is being changed.
    Running,
    /// It was changed and is as it should be now.
    Changed,
    /// It has to wait; why.
    Held(String),
    /// It could not be changed; why, without secrets.
    Failed(String),
}

/// Is told how steps stand.
pub type Progress<'a> = dyn Fn(&str, &StepState) + Send + Sync + 'a;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps that were changed.
    pub changed: Vec<&'static str>,
    /// Steps that wait, and why.
    pub held: Vec<(&'static str, String)>,
    /// Bytes that were uploaded.
    pub uploaded: u64,
    /// Commands that were run.
    pub commands: u32,
}

/// A host that is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// A step failed.
    #[error("step {step}: {message}")]
    Step {
        /// Which.
        step: &'static str,
        /// Why, without secrets.
        message: String,
    },
    /// Nobody knows how to become root there.
    #[error("sudo asks for a password on {host}, and {why}")]
    NoPassword {
        /// The host.
        host: String,
        /// Why there is none.
        why: &'static str,
    },
    /// The host answers something else than what was asked.
    #[error("the host gave no account of itself: {said}")]
    NoAnswer {
        /// What it said, without secrets.
        said: String,
    },
    /// The connection.
    #[error(transparent)]
    Ssh(#[from] ssh::Error),
}

/// A run of a plan.
pub struct Engine<'a, R> {
    remote: &'a R,
    host: &'a Host,
    steps: &'a [Step],
    progress: &'a Progress<'a>,
    scrubber: Scrubber,
    patience: Patience,
    report: Report,
}

impl<R> std::fmt::Debug for Engine<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl<'a, R: Remote> Engine<'a, R> {
    /// A run of these steps on that host.
    pub fn new(remote: &'a R, host: &'a Host, steps: &'a [Step], progress: &'a Progress<'a>) -> Self {
        Self {
            remote,
            host,
            steps,
            progress,
            scrubber: Scrubber::new(host.secrets()).and(
                steps
                    .iter()
                    .flat_map(|step| &step.resources)
                    .flat_map(Resource::private_lines),
            ),
            patience: Patience::default(),
            report: Report::default(),
        }
    }

    /// With another patience: emulated Macs are quicker.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Makes the host what the plan says. Dropping it anywhere is safe; the next run goes on.
    pub async fn run(mut self) -> Result<Report, Failed> {
        let survey = self.look().await?;
        let mut changed: Vec<&Step> = Vec::new();
        for step in self.steps {
            match survey.findings.get(&step.function()) {
                // It was so before a file was changed that it was started with.
                Some(Finding::Same) if changed.iter().any(|earlier| step.follows(earlier)) => {
                    self.change(step, &survey).await?;
                }
                Some(Finding::Same) => (self.progress)(step.name(), &StepState::Unchanged),
                Some(Finding::Held(why)) => {
                    let why = self.scrubber.clean(why);
                    (self.progress)(step.name(), &StepState::Held(why.clone()));
                    self.report.held.push((step.name(), why));
                }
                Some(Finding::Drift) => {
                    self.change(step, &survey).await?;
                    changed.push(step);
                }
                None => {
                    return Err(Failed::NoAnswer {
                        said: format!("nothing about step {}", step.name()),
                    });
                }
            }
        }
        Ok(self.report)
    }

    /// Looks at the steps and changes nothing, with one command. Those that are not as they should be are told as held: the next run
    /// sees to them.
    pub async fn watch(mut self) -> Result<Report, Failed> {
        let survey = program::survey(self.steps, &self.host.user, self.patience);
        let output = self.program(AS_ROOT, &survey, LOOK).await?;
        let survey = program::read(&output.stdout).ok_or_else(|| self.no_answer(&output))?;
        for step in self.steps {
            let why = match survey.findings.get(&step.function()) {
                Some(Finding::Held(why)) => self.scrubber.clean(why),
                Some(Finding::Drift) => "it is not as it was set up any more, and is about to be put right".to_owned(),
                Some(Finding::Same) | None => continue,
            };
            (self.progress)(step.name(), &StepState::Held(why.clone()));
            self.report.held.push((step.name(), why));
        }
        Ok(self.report)
    }

    async fn look(&mut self) -> Result<Survey, Failed> {
        let survey = program::survey(self.steps, &self.host.user, self.patience);
        let output = self.program(AS_ROOT, &survey, LOOK).await?;
        if let Some(survey) = program::read(&output.stdout) {
            return Ok(survey);
        }
        if !sudo::asks(&output) {
            return Err(self.no_answer(&output));
        }
        self.become_root().await?;
        let output = self.program(AS_ROOT, &survey, LOOK).await?;
        program::read(&output.stdout).ok_or_else(|| self.no_answer(&output))
    }

    fn no_answer(&self, output: &Output) -> Failed {
        let said = self.scrubber.clean(&format!("{}\n{}", output.stdout, output.stderr));
        Failed::NoAnswer { said }
    }

    /// Lets us be root without a password from now on. The one time it takes is the only time the password is sent.
    async fn become_root(&mut self) -> Result<(), Failed> {
        let step = sudo::step(&self.host.user);
        (self.progress)(step.name(), &StepState::Running);
        let known = self.host.password.as_ref().map(|password| password.expose().as_str());
        let why = match known {
            None | Some("") => Some("it is not known"),
            Some("<sealed>") => Some("Scaleway does not disclose it any more; reinstall the host"),
            Some(_) => None,
        };
        let (None, Some(password)) = (why, known) else {
            return Err(Failed::NoPassword {
                host: self.host.node_name.clone(),
                why: why.unwrap_or("it is not known"),
            });
        };
        let program = program::change(&step, &self.host.user, self.patience);
        let stdin = Secret::new(format!("{password}\n{}", program.expose()));
        let output = self.program(WITH_PASSWORD, &stdin, step.deadline).await?;
        if output.status.is_success() {
            self.report.changed.push(step.name());
            return Ok(());
        }
        let said = self.scrubber.clean(&output.stderr);
        let message = if sudo::refused(&output) {
            "the host does not accept the password it should have; reinstall it, or store the right one".to_owned()
        } else {
            said
        };
        (self.progress)(step.name(), &StepState::Failed(message.clone()));
        Err(Failed::Step {
            step: step.name(),
            message,
        })
    }

    async fn change(&mut self, step: &'a Step, survey: &Survey) -> Result<(), Failed> {
        (self.progress)(step.name(), &StepState::Running);
        let changed = self.try_change(step, survey).await;
        let state = match &changed {
            Ok(None) => StepState::Changed,
            Ok(Some(why)) => StepState::Held(why.clone()),
            Err(Failed::Step { message, .. }) => StepState::Failed(message.clone()),
            Err(error) => StepState::Failed(error.to_string()),
        };
        (self.progress)(step.name(), &state);
        changed.map(drop)
    }

    /// Why it has to wait, if it has to.
    async fn try_change(&mut self, step: &'a Step, survey: &Survey) -> Result<Option<String>, Failed> {
        for artifact in program::artifacts(step) {
            let there = survey.blobs.get(artifact.sha()).copied().unwrap_or(0);
            // More than there is of it is something else, and is written over.
            let from = if there > artifact.len() { 0 } else { there };
            if from < artifact.len() {
                self.upload(step, artifact.path(), artifact.sha(), from).await?;
                self.report.uploaded += artifact.len() - from;
            }
        }
        let output = self
            .program(
                AS_ROOT,
                &program::change(step, &self.host.user, self.patience),
                step.deadline,
            )
            .await?;
        let said = self.scrubber.clean(&format!("{}\n{}", output.stdout, output.stderr));
        match output.status {
            Exit::Code(0) => {
                self.report.changed.push(step.name());
                Ok(None)
            }
            Exit::Code(program::HELD) => {
                self.report.held.push((step.name(), said.clone()));
                Ok(Some(said))
            }
            _ if step.optional => {
                self.report.held.push((step.name(), said.clone()));
                Ok(Some(said))
            }
            _ => Err(Failed::Step {
                step: step.name(),
                message: said,
            }),
        }
    }

    async fn upload(&mut self, step: &'a Step, file: &Path, sha: &str, from: u64) -> Result<(), Failed> {
        self.report.commands += 1;
        let into = if from == 0 { ">" } else { ">>" };
        let command = format!(
            "sudo -n /bin/bash -c 'mkdir -p /usr/local/lib/russet/incoming && umask 077 && cat {into}/usr/local/lib/russet/incoming/{sha}'"
        );
        let output = self.remote.send(&command, file, from, UPLOAD).await?;
        if output.status.is_success() {
            return Ok(());
        }
        Err(Failed::Step {
            step: step.name(),
            message: format!("the upload failed: {}", self.scrubber.clean(&output.stderr)),
        })
    }

    async fn program(
        &mut self,
        command: &str,
        program: &Secret<String>,
        deadline: Duration,
    ) -> Result<Output, ssh::Error> {
        self.report.commands += 1;
        let exec = Exec {
            command,
            stdin: Some(Secret::new(program.expose().clone().into_bytes())),
            deadline,
        };
        self.remote.run(exec).await
    }
}
