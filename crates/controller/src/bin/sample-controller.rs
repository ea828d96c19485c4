//! A small but real controller on the shared plumbing, for tests that need a process to kill, pause and restrict.
//!
//! With `--kind config-map` (the default) each ConfigMap labelled `sample.russet.dev/parent=true` gets one child ConfigMap per key:
//! `<parent>-<key>`, with the value in `data.value`. With `--kind runner-pool` each RunnerPool gets one child with its image, and
//! a status. `--stamp` writes this process's identity into the children; `--tick` makes it write them anew every so often, so
//! that a test can see who is writing.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use russet_api::RunnerPool;
use russet_api::labels::APP_MANAGED_BY;
use russet_controller::conditions::{self, Condition, reasons, types};
use russet_controller::finalizer::Event;
use russet_controller::{
    About, Applier, Cache, Class, Classify, CommonArgs, Component, Desired, Manager, Outcome, Owner, apply, duration,
    launch,
};
use serde::Serialize;

const ABOUT: About = About {
    name: "sample-controller",
    version: env!("CARGO_PKG_VERSION"),
    lease: "sample-controller.russet.dev",
};
const PARENT: &str = "sample.russet.dev/parent";
const FINALIZER: &str = "sample.russet.dev/finalizer";

/// Copies parents into children.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    sample: Sample,
}

#[derive(Debug, Clone, clap::Args, Serialize)]
struct Sample {
    /// What is reconciled.
    #[arg(long, value_enum, default_value_t = Kind::ConfigMap)]
    kind: Kind,
    /// Write the identity of this process into each child.
    #[arg(long)]
    stamp: bool,
    /// Write every child anew this often.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    tick: Option<Duration>,
    /// Put a finalizer on each parent, and a note of the clean-up into ConfigMap `<parent>-cleaned`.
    #[arg(long)]
    finalize: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
enum Kind {
    ConfigMap,
    RunnerPool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { common, sample } = Args::parse();
    let settings = sample.clone();
    launch(ABOUT, common, &settings, move |manager| {
        Ok::<_, std::convert::Infallible>(vec![component(manager, sample)])
    })
    .await
}

fn component(manager: &Manager, sample: Sample) -> Component {
    let applier = manager.applier(ABOUT.name);
    let identity = manager.leadership().identity().to_owned();
    let ours = watcher::Config::default().labels(&format!("{APP_MANAGED_BY}={}", ABOUT.name));
    match sample.kind {
        Kind::ConfigMap => {
            let parents = watcher::Config::default().labels(&format!("{PARENT}=true"));
            let mut runner = manager.runner::<ConfigMap>("sample", &parents);
            let children = runner.owns::<ConfigMap>(&ours);
            let context = Context {
                applier,
                children,
                sample,
                identity,
                ticks: AtomicU64::new(0),
            };
            Component::controller(runner, Arc::new(context), reconcile_config_map)
        }
        Kind::RunnerPool => {
            let mut runner = manager.runner::<RunnerPool>("sample", &watcher::Config::default());
            let children = runner.owns::<ConfigMap>(&ours);
            let context = Context {
                applier,
                children,
                sample,
                identity,
                ticks: AtomicU64::new(0),
            };
            Component::controller(runner, Arc::new(context), reconcile_runner_pool)
        }
    }
}

struct Context {
    applier: Applier,
    children: Cache<ConfigMap>,
    sample: Sample,
    identity: String,
    ticks: AtomicU64,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Write(#[from] apply::Error),
}

impl Classify for Error {
    fn class(&self) -> Class {
        let Self::Write(error) = self;
        error.class()
    }

    fn reason(&self) -> &'static str {
        let Self::Write(error) = self;
        error.reason()
    }
}

async fn reconcile_config_map(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Outcome, Error> {
    let parent = if context.sample.finalize {
        match context.applier.finalized(&*parent, FINALIZER).await? {
            Event::Apply(parent) => parent,
            Event::Cleanup(parent) => {
                let note = child(
                    &parent,
                    "cleaned",
                    BTreeMap::from([("cleaned".to_owned(), parent.uid().unwrap_or_default())]),
                );
                context.applier.apply(&Desired::new(&note)?, None).await?;
                context.applier.remove_finalizer(&parent, FINALIZER).await?;
                return Ok(Outcome::Done);
            }
            Event::Gone => return Ok(Outcome::Done),
        }
    } else if parent.meta().deletion_timestamp.is_some() {
        return Ok(Outcome::Done);
    } else {
        ConfigMap::clone(&parent)
    };
    let values = parent.data.clone().unwrap_or_default();
    let desired = values
        .into_iter()
        .map(|(key, value)| Desired::new(&child(&parent, &key, context.content(value))));
    let desired = desired.collect::<Result<Vec<_>, _>>()?;
    let owner = Owner::of(&parent)?;
    context
        .applier
        .sync(&owner, &desired, &[context.children.children()])
        .await?;
    Ok(context.outcome())
}

async fn reconcile_runner_pool(pool: Arc<RunnerPool>, context: Arc<Context>) -> Result<Outcome, Error> {
    if pool.meta().deletion_timestamp.is_some() {
        return Ok(Outcome::Done);
    }
    let desired = Desired::new(&child(&*pool, "image", context.content(pool.spec.image.clone())))?;
    let synced = context
        .applier
        .sync(&Owner::of(&*pool)?, &[desired], &[context.children.children()])
        .await?;

    let mut status = pool.status.clone().unwrap_or_default();
    let generation = pool.meta().generation;
    let now = Timestamp::now();
    status.observed_generation = generation;
    status.observed_image = Some(pool.spec.image.clone());
    for condition in [
        conditions::fields_stored(&synced.pruned()),
        Condition::new(types::READY, true, reasons::READY).message(format!("{} children", synced.applied.len())),
    ] {
        conditions::set(&mut status.conditions, condition.observed_generation(generation), now);
    }
    context.applier.write_status(&*pool, &status).await?;
    Ok(context.outcome())
}

impl Context {
    fn content(&self, value: String) -> BTreeMap<String, String> {
        let mut data = BTreeMap::from([("value".to_owned(), value)]);
        if self.sample.stamp {
            data.insert("writer".to_owned(), self.identity.clone());
        }
        if self.sample.tick.is_some() {
            data.insert(
                "tick".to_owned(),
                self.ticks.fetch_add(1, Ordering::Relaxed).to_string(),
            );
        }
        data
    }

    fn outcome(&self) -> Outcome {
        self.sample.tick.map_or(Outcome::Done, Outcome::After)
    }
}

fn child<K: Resource>(parent: &K, suffix: &str, data: BTreeMap<String, String>) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(format!("{}-{suffix}", parent.name_any())),
            namespace: parent.namespace(),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..ConfigMap::default()
    }
}
