//! A step: a name, and what should be so when it is done.

use std::time::Duration;

use super::resource::Resource;

/// How long a step may take unless it says otherwise.
const DEADLINE: Duration = Duration::from_mins(5);

/// One step of a plan.
#[derive(Clone, Debug)]
pub struct Step {
    pub(super) name: &'static str,
    pub(super) resources: Vec<Resource>,
    pub(super) deadline: Duration,
    /// Whether a host serves without it: then it is reported, and does not fail the host.
    pub(super) optional: bool,
}

impl Step {
    pub(super) fn new(name: &'static str, resources: Vec<Resource>) -> Self {
        Self {
            name,
            resources,
            deadline: DEADLINE,
            optional: false,
        }
    }

    /// The same, but a host serves without it.
    pub(super) fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Its name in `status.steps`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether one of its jobs is started with a file of that step.
    pub(super) fn follows(&self, other: &Self) -> bool {
        let files = || other.resources.iter().filter_map(Resource::file);
        self.resources
            .iter()
            .any(|resource| files().any(|file| resource.follows(file)))
    }

    /// Its name in shell.
    pub(super) fn function(&self) -> String {
        self.name.replace('-', "_")
    }
}
