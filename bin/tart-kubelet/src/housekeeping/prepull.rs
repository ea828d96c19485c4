//! Images that come before a Pod asks for them: whoever rolls out an image names it in an annotation of the Node and sees in the
//! Node's status and labels when it is there.
//!
//! What goes wrong is said in an event of the Node and tried again. The registry is asked without credentials, or with those the
//! host was logged in with: a node may read Secrets of its own Pods and no others. What comes so is for every Pod; what came with
//! the secret of a Pod before is only looked after.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use russet_api::annotations::PREPULL;
use russet_vm::{Error, Golden, GoldenKey, ImageRef, PullPolicy};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::pods::Host;
use crate::pods::images::{self, Asker};

const AGAIN: Duration = Duration::from_secs(10);
const SLOWEST_AGAIN: Duration = Duration::from_mins(5);
/// How often is looked whether all of it is still there.
const LOOK: Duration = Duration::from_mins(5);
/// More are not fetched: two images fill the disk of most Macs.
const MOST: usize = 8;
/// What stands in the metrics for the pool of a Pod.
const POOL: &str = "prepull";

/// Fetches what the Node's annotation names, until it is dropped.
pub(super) async fn run(host: &Host) -> Infallible {
    let mut nodes = host.around.nodes();
    let mut wish = Wish::default();
    loop {
        if let Ok(node) = &*nodes.borrow_and_update() {
            wish.hear(host, node);
        }
        tokio::select! {
            heard = nodes.changed() => if heard.is_err() { std::future::pending::<()>().await },
            () = tokio::time::sleep_until(wish.due), if wish.waits() => wish.fetch(host),
            Some(done) = wish.tasks.join_next() => if let Ok((name, golden)) = done { wish.arrived(host, name, golden) },
        }
    }
}

/// What the annotation says, and how far it is.
struct Wish {
    text: String,
    names: Vec<ImageRef>,
    there: BTreeMap<ImageRef, GoldenKey>,
    due: Instant,
    pause: Duration,
    tasks: JoinSet<(ImageRef, Result<Golden, Error>)>,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            text: String::new(),
            names: Vec::new(),
            there: BTreeMap::new(),
            due: Instant::now(),
            pause: AGAIN,
            tasks: JoinSet::new(),
        }
    }
}

impl Wish {
    fn hear(&mut self, host: &Host, node: &Node) {
        let text = node.annotations().get(PREPULL).map_or("", String::as_str);
        if text == self.text {
            return;
        }
        text.clone_into(&mut self.text);
        let (names, problems) = read(text);
        for problem in problems {
            tracing::warn!(problem, "an image to be fetched early cannot be");
            host.server.tell_node("Warning", "FailedPrePull", &problem);
        }
        self.there.retain(|name, _| names.contains(name));
        (self.names, self.due, self.pause) = (names, Instant::now(), AGAIN);
        self.say(host);
    }

    fn say(&self, host: &Host) {
        let wanted: BTreeSet<GoldenKey> = self.there.values().cloned().collect();
        host.images().want(wanted);
    }

    /// Whether there is something to look after, and nobody does.
    fn waits(&self) -> bool {
        !self.names.is_empty() && self.tasks.is_empty()
    }

    /// Begins to fetch all of it, or looks whether it is still there.
    fn fetch(&mut self, host: &Host) {
        self.due = Instant::now() + LOOK;
        for name in self.names.clone() {
            // What was there once is only looked after; a tag that moves is asked for by the next Pod.
            let policy = if self.there.contains_key(&name) {
                PullPolicy::IfNotPresent
            } else {
                images::policy(&name.to_string(), None)
            };
            let images = host.images().clone();
            self.tasks.spawn(async move {
                let golden = images
                    .ensure(name.clone(), policy, Asker::Owner, POOL.to_owned(), || {})
                    .await;
                (name, golden)
            });
        }
    }

    fn arrived(&mut self, host: &Host, name: ImageRef, golden: Result<Golden, Error>) {
        match golden {
            Ok(golden) if self.names.contains(&name) => {
                self.pause = AGAIN;
                let message = format!("Image \"{name}\" is present on the host");
                if self.there.insert(name, GoldenKey::of(&golden.image)).is_none() {
                    host.server.tell_node("Normal", "PrePulled", &message);
                }
                self.say(host);
            }
            // Nobody wants it any more.
            Ok(_) => {}
            Err(error) => {
                let problem = format!("Failed to pull image \"{name}\" early: {error}");
                tracing::info!(problem, "it is tried again");
                host.server.tell_node("Warning", "FailedPrePull", &problem);
                self.due = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(SLOWEST_AGAIN);
            }
        }
    }
}

/// The images of an annotation, and what is wrong with others.
fn read(text: &str) -> (Vec<ImageRef>, Vec<String>) {
    let (mut names, mut problems) = (Vec::new(), Vec::new());
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        match ImageRef::parse(item) {
            Ok(name) if names.contains(&name) => {}
            Ok(name) if names.len() < MOST => names.push(name),
            Ok(name) => problems.push(format!(
                "{PREPULL}: {name} is one too many; at most {MOST} are fetched early"
            )),
            Err(error) => problems.push(format!("{PREPULL}: {error}")),
        }
    }
    (names, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_names_images_and_what_is_none_is_said() {
        let (names, problems) = read(" ghcr.io/acme/mac:v2 , ghcr.io/acme/mac:v2,,mac");
        let found = names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(found, ["ghcr.io/acme/mac:v2"]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("names no registry"), "{problems:?}");
        assert_eq!(read("").0, []);
        let many: Vec<String> = (0..20).map(|number| format!("ghcr.io/acme/mac:v{number}")).collect();
        let (names, problems) = read(&many.join(","));
        assert_eq!((names.len(), problems.len()), (MOST, 20 - MOST));
    }
}
