//! The runners of an organisation.

use crate::call::Call;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::strict::{Fields, Query};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use russet_sim_kit::wire::Reply;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The group every organisation has.
const DEFAULT_GROUP: u64 = 1;
/// The group of GitHub's own runners, in which nobody can put one.
const HOSTED_GROUP: u64 = 2;

/// Whether GitHub hears from a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerStatus {
    /// It does.
    Online,
    /// It does not.
    Offline,
}

#[derive(Debug, Clone)]
pub(crate) struct Runner {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) status: RunnerStatus,
    pub(crate) busy: bool,
    pub(crate) labels: Vec<String>,
    pub(crate) ephemeral: bool,
}

/// An organisation.
#[derive(Debug, Clone)]
pub(crate) struct Org {
    pub(crate) login: String,
    pub(crate) runners: BTreeMap<u64, Runner>,
}

impl Runner {
    fn show(&self) -> Value {
        let built_in = ["self-hosted", "macOS", "ARM64"];
        let label = |(index, name): (usize, &str)| {
            let kind = if built_in.contains(&name) {
                "read-only"
            } else {
                "custom"
            };
            json!({"id": index + 1, "name": name, "type": kind})
        };
        json!({
            "id": self.id,
            "name": self.name,
            "os": if self.ephemeral && self.status == RunnerStatus::Offline { "unknown" } else { "macos" },
            "status": self.status,
            "busy": self.busy,
            "ephemeral": self.ephemeral,
            "runner_group_id": DEFAULT_GROUP,
            "labels": self.labels.iter().map(String::as_str).enumerate().map(label).collect::<Vec<_>>(),
        })
    }
}

impl Org {
    pub(crate) fn new(login: &str) -> Self {
        Self {
            login: login.to_owned(),
            runners: BTreeMap::new(),
        }
    }

    pub(crate) fn named(&mut self, name: &str) -> Option<&mut Runner> {
        self.runners.values_mut().find(|runner| runner.name == name)
    }

    pub(crate) fn list(&self, call: &Call, settings: &Settings) -> Result<Reply, Refusal> {
        let mut query = Query::new(&call.query)?;
        let cap = u64::from(settings.page_cap.unwrap_or(100)).clamp(1, 100);
        let per_page = query.number("per_page")?.unwrap_or(30).min(cap);
        let page = query.number("page")?.unwrap_or(1);
        let name = query.text("name");
        query.finish()?;
        let fits = |runner: &&Runner| name.as_ref().is_none_or(|name| runner.name == *name);
        let rows: Vec<&Runner> = self.runners.values().filter(fits).collect();
        let size = usize::try_from(per_page).unwrap_or(100);
        let skip = usize::try_from(page.saturating_sub(1))
            .unwrap_or(usize::MAX)
            .saturating_mul(size);
        let shown: Vec<Value> = rows.iter().skip(skip).take(size).map(|runner| runner.show()).collect();
        let more = skip.saturating_add(size) < rows.len();
        let mut reply = Reply::json(StatusCode::OK, json!({"total_count": rows.len(), "runners": shown}));
        if more {
            let next = format!("<{}?per_page={per_page}&page={}>; rel=\"next\"", call.path, page + 1);
            reply.headers.push(("link", next));
        }
        Ok(reply)
    }

    pub(crate) fn remove(&mut self, id: &str) -> Result<Reply, Refusal> {
        let id: u64 = id.parse().map_err(|_| Refusal::not_found())?;
        let runner = self.runners.get(&id).ok_or_else(Refusal::not_found)?;
        if runner.busy {
            let message = format!("Bad request - Runner \"{}\" is still running a job\"", runner.name);
            return Err(Refusal::new(422, message));
        }
        self.runners.remove(&id);
        Ok(Reply::no_content())
    }

    /// Registers a runner for one job. `id` is a number that was never used.
    pub(crate) fn jit(&mut self, call: &Call, id: u64, secret: &str) -> Result<Reply, Refusal> {
        let mut fields = Fields::new(call.json()?)?;
        let name = fields.required("name")?;
        let group = fields.required("runner_group_id")?;
        let labels = fields.required("labels")?;
        let folder = fields.text("work_folder")?;
        fields.finish()?;
        let name = name.as_str().filter(|name| (1..=64).contains(&name.len()));
        let name = name.ok_or_else(|| Refusal::invalid("For 'name', a text of 1 to 64 characters is expected."))?;
        let labels: Option<Vec<String>> = labels.as_array().and_then(|labels| {
            let texts = labels.iter().map(|label| label.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>()
        });
        let labels = labels
            .filter(|labels| (1..=100).contains(&labels.len()))
            .ok_or_else(|| Refusal::invalid("For 'labels', 1 to 100 texts are expected."))?;
        match group.as_u64() {
            Some(DEFAULT_GROUP) => {}
            Some(HOSTED_GROUP) => return Err(Refusal::not_accessible()),
            Some(_) => return Err(Refusal::not_found()),
            None => return Err(Refusal::invalid("For 'runner_group_id', a number is expected.")),
        }
        if self.named(name).is_some() {
            let message = format!("Already exists - A runner with the name {name} already exists.");
            return Err(Refusal::new(409, message));
        }
        let runner = Runner {
            id,
            name: name.to_owned(),
            status: RunnerStatus::Offline,
            busy: false,
            labels,
            ephemeral: true,
        };
        let config = json!({".runner": name, ".credentials": secret, "work": folder.as_deref().unwrap_or("_work")});
        let shown = runner.show();
        self.runners.insert(id, runner);
        Ok(Reply::json(
            StatusCode::CREATED,
            json!({"runner": shown, "encoded_jit_config": STANDARD.encode(config.to_string())}),
        ))
    }
}
