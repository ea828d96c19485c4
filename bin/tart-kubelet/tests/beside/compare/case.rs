//! A Pod and what is done to it, as data.

use std::fmt;

use russet_testkit::overlay::merge;
use serde_json::{Value, json};

use super::View;

/// A small system that is in the registry of Macs and in the store of the Linux node.
pub(crate) const IMAGE: &str = "localhost/busybox:1";
/// The same under another name.
pub(crate) const OTHER_IMAGE: &str = "localhost/busybox:2";
/// The same, but nowhere until [`Step::Publish`].
pub(crate) const LATE_IMAGE: &str = "localhost/late:1";
/// Where every container finds the volume through which the test speaks to it.
pub(crate) const VOLUME: &str = "/opt/work";

/// A Pod, and what is done to it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The name of the Pod.
    pub(crate) name: &'static str,
    /// What it shows, in a few words.
    pub(crate) shows: &'static str,
    /// The Pod without its name and node.
    pub(crate) pod: Value,
    /// A Pod that is there and runs before this one comes.
    pub(crate) before: Option<Value>,
    pub(crate) steps: Vec<Step>,
}

/// Something to do, or to wait for. What is seen until the last of them counts.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Until(Moment),
    /// Puts a file into the volume that the Pod has.
    Touch(&'static str),
    /// Takes it away.
    Remove(&'static str),
    /// Waits until the Pod has put a file there. That a container runs does not say how far its program has come, and a signal may be
    /// there before whoever is to hear it.
    Found(&'static str),
    /// Fills a file in the volume with so many KiB.
    Fill(&'static str, usize),
    /// Deletes the Pod, with a grace other than its own.
    Delete(Option<u32>),
    /// Makes an object beside the Pod.
    Make(Value),
    /// Changes the Pod.
    Patch(Value),
    /// Sets a condition of the Pod, as a controller of others would.
    Set(&'static str, bool),
    /// Gives the Pod an owner, and deletes that.
    DeleteOwner,
    /// Taints the Node with `NoExecute`.
    Taint,
    /// Publishes [`LATE_IMAGE`].
    Publish,
}

/// Something to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The condition is true.
    True(&'static str),
    /// The condition is there and not true.
    NotTrue(&'static str),
    /// A container is in this state.
    State(&'static str, &'static str),
    /// A container says that it has started.
    Started(&'static str),
    /// A container runs for the n-th time after its first.
    Again(&'static str, i32),
    /// A container has ended and waits to be started again.
    Down(&'static str),
    /// The phase is a last one, and nothing is left of the Pod on its node.
    Over,
    /// It is ready or over: for Pods that one of the two does not take on.
    Settled,
    Gone,
}

impl Moment {
    /// Whether this is it.
    pub(crate) fn is(&self, view: &View) -> bool {
        let condition = |kind: &str| view.conditions.get(kind).map(String::as_str).unwrap_or_default();
        let container = |name: &str| view.containers.get(name).cloned().unwrap_or_default();
        match self {
            Self::True(kind) => condition(kind).starts_with("True"),
            Self::NotTrue(kind) => condition(kind).starts_with("False"),
            Self::State(name, state) => container(name).state == *state,
            Self::Started(name) => container(name).started,
            Self::Again(name, times) => {
                let container = container(name);
                container.restarts == *times && container.state == "running"
            }
            Self::Down(name) => {
                let state = container(name).state;
                state.starts_with("ended") || state == "waiting (CrashLoopBackOff)"
            }
            Self::Over => {
                let last = ["Succeeded", "Failed"]
                    .iter()
                    .any(|phase| view.phase.starts_with(phase));
                // A Pod that was refused never had anything on its node, and does not say so.
                last && !condition("PodReadyToStartContainers").starts_with("True")
            }
            Self::Settled => Self::True("Ready").is(view) || Self::Over.is(view),
            Self::Gone => view.gone,
        }
    }
}

impl Step {
    /// Reads one of the steps of [`Case::goes`]; a word that is none of theirs is the name of a condition.
    fn read(text: &'static str) -> Self {
        if let Some((name, state)) = text.split_once(" is ") {
            return Self::Until(Moment::State(name, state));
        }
        let words: Vec<&'static str> = text.split(' ').collect();
        Self::Until(match words[..] {
            ["make", file] => return Self::Touch(file),
            ["remove", file] => return Self::Remove(file),
            ["found", file] => return Self::Found(file),
            ["delete"] => return Self::Delete(None),
            ["delete", "within", grace] => return Self::Delete(Some(grace.parse().unwrap())),
            ["fill", file, kib] => return Self::Fill(file, kib.parse().unwrap()),
            ["lose", "owner"] => return Self::DeleteOwner,
            ["taint", "node"] => return Self::Taint,
            ["publish"] => return Self::Publish,
            ["over"] => Moment::Over,
            ["settled"] => Moment::Settled,
            ["gone"] => Moment::Gone,
            ["not", kind] => Moment::NotTrue(kind),
            [name, "started"] => Moment::Started(name),
            [name, "down"] => Moment::Down(name),
            [name, "again", times] => Moment::Again(name, times.parse().unwrap()),
            [kind] => Moment::True(kind),
            _ => unreachable!("no step is called {text:?}"),
        })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::True(kind) => write!(f, "until {kind}"),
            Self::NotTrue(kind) => write!(f, "until not {kind}"),
            Self::State(name, state) => write!(f, "until {name} is {state}"),
            Self::Started(name) => write!(f, "until {name} has started"),
            Self::Again(name, times) => write!(f, "until {name} runs after restart {times}"),
            Self::Down(name) => write!(f, "until {name} is down"),
            Self::Over => f.write_str("until it is over"),
            Self::Settled => f.write_str("until it is ready or over"),
            Self::Gone => f.write_str("until it is gone"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(moment) => moment.fmt(f),
            Self::Touch(file) => write!(f, "make {file}"),
            Self::Remove(file) => write!(f, "remove {file}"),
            Self::Found(file) => write!(f, "until it has made {file}"),
            Self::Fill(file, kib) => write!(f, "write {kib} KiB to {file}"),
            Self::Delete(None) => f.write_str("delete it"),
            Self::Delete(Some(grace)) => write!(f, "delete it with grace {grace}"),
            Self::Make(object) => {
                let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
                write!(f, "make {} {}", text("/kind"), text("/metadata/name"))
            }
            Self::Patch(change) => write!(f, "patch {}", change.get("spec").unwrap_or(change)),
            Self::Set(kind, is) => write!(f, "set {kind} {is}"),
            Self::DeleteOwner => f.write_str("give it an owner and delete that"),
            Self::Taint => f.write_str("taint the Node"),
            Self::Publish => f.write_str("publish the image"),
        }
    }
}

fn under(key: &str, value: Value) -> Value {
    Value::Object([(key.to_owned(), value)].into_iter().collect())
}

impl Case {
    /// A Pod whose container `main` runs a script.
    pub(super) fn new(name: &'static str, shows: &'static str, script: &str) -> Self {
        Self {
            name,
            shows,
            pod: json!({"spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 60,
                "tolerations": [{"operator": "Exists"}],
                "containers": [container("main", script)],
                "volumes": [{"name": "work", "emptyDir": {}}],
            }}),
            before: None,
            steps: Vec::new(),
        }
    }

    /// With these fields of the Pod's spec.
    pub(super) fn spec(mut self, more: Value) -> Self {
        merge(&mut self.pod, under("spec", more));
        self
    }

    /// With these fields of the container `main`.
    pub(super) fn main(self, more: Value) -> Self {
        self.spec(under("containers", Value::Array(vec![more])))
    }

    pub(super) fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Further steps, as `Ready, make go, main is ended 3 (Error), main again 1, not Ready, delete within 2, gone`.
    pub(super) fn goes(mut self, steps: &'static str) -> Self {
        self.steps.extend(steps.split(", ").map(Step::read));
        self
    }

    /// Everything that is done, as a line.
    pub(crate) fn story(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(ToString::to_string).collect();
        steps.join("; ")
    }
}

/// A container that runs a script and has the volume.
pub(super) fn container(name: &str, script: &str) -> Value {
    json!({
        "name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", script],
        "volumeMounts": [{"name": "work", "mountPath": VOLUME}],
    })
}
