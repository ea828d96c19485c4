//! What differs between an object as we want it and an object as the API server keeps it.
//!
//! The two are never equal as text: the server adds defaults, sorts some lists, rewrites quantities (`1000m` becomes `1`) and
//! drops empty values. [`differences`] sees through that and reports only what matters:
//!
//! - **missing**: we wrote it and it is gone. With a CRD older than the controller this is how fields vanish without an
//!   error, and reporting it is how the loss is noticed (incident `crd-pruning`).
//! - **changed**: it is there with another value, so somebody else wrote it.
//!
//! What the live object has beyond the desired one is not a difference. Fields that we once wrote and no longer want are
//! the business of server-side apply, which knows who owns what.

mod quantity;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

pub use quantity::same_quantity;

/// How the API server stores a kind, which decides what may be absent without being lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// A Go type with `omitempty`: zero values (`0`, `""`, `false`) are not stored.
    Builtin,
    /// A structural schema: known values are stored as they are.
    Custom,
}

impl Flavour {
    /// Judges by the API group: those of Kubernetes itself have no dot or end in `.k8s.io`.
    pub fn of_group(group: &str) -> Self {
        let builtin = !group.contains('.') || (group.ends_with(".k8s.io") && !group.ends_with(".x-k8s.io"));
        if builtin { Self::Builtin } else { Self::Custom }
    }
}

/// One difference, by path. Values are left out on purpose: they may be secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Wanted, and not there.
    Missing(String),
    /// There, with another value.
    Changed(String),
}

/// All differences, in the order of the desired object's keys.
pub fn differences(desired: &Value, live: &Value, flavour: Flavour) -> Vec<Difference> {
    let mut walk = Walk {
        flavour,
        found: Vec::new(),
        path: String::new(),
        quantity: false,
    };
    walk.value(desired, live);
    walk.found
}

/// The paths that were wanted and are not there.
pub fn missing(desired: &Value, live: &Value, flavour: Flavour) -> Vec<String> {
    differences(desired, live, flavour)
        .into_iter()
        .filter_map(|difference| match difference {
            Difference::Missing(path) => Some(path),
            Difference::Changed(_) => None,
        })
        .collect()
}

/// Whether everything desired is live.
pub fn is_subset(desired: &Value, live: &Value, flavour: Flavour) -> bool {
    differences(desired, live, flavour).is_empty()
}

/// Keys below which numbers and strings are quantities.
const QUANTITY_KEYS: [&str; 9] = [
    "limits",
    "requests",
    "capacity",
    "allocatable",
    "hard",
    "podFixed",
    "sizeLimit",
    "divisor",
    "averageValue",
];

/// The keys that identify an item of a list, most specific first. A list is treated as a map when every item of both sides
/// has them and no two desired items share them. The value is what the server fills in when the key is absent.
const IDENTITIES: [&[(&str, Option<&str>)]; 9] = [
    &[("name", None)],
    &[("containerPort", None), ("protocol", Some("TCP"))],
    &[("port", None), ("protocol", Some("TCP"))],
    &[("mountPath", None)],
    &[("devicePath", None)],
    &[("uid", None)],
    &[("type", None)],
    &[("ip", None)],
    &[("topologyKey", None), ("whenUnsatisfiable", None)],
];

struct Walk {
    flavour: Flavour,
    found: Vec<Difference>,
    path: String,
    quantity: bool,
}

impl Walk {
    fn value(&mut self, desired: &Value, live: &Value) {
        match (desired, live) {
            (Value::Null, _) => {}
            (Value::Object(desired), Value::Object(live)) => self.object(desired, live),
            (Value::Array(desired), Value::Array(live)) => self.array(desired, live),
            (desired, live) if self.same_scalar(desired, live) => {}
            _ => self.found.push(Difference::Changed(self.path.clone())),
        }
    }

    fn object(&mut self, desired: &Map<String, Value>, live: &Map<String, Value>) {
        for (key, wanted) in desired {
            self.at_key(key, |walk| match live.get(key) {
                Some(Value::Null) | None => walk.absent(wanted),
                Some(found) => walk.value(wanted, found),
            });
        }
    }

    fn array(&mut self, desired: &[Value], live: &[Value]) {
        if let Some(identity) = identity_of(desired, live) {
            let found: BTreeMap<String, &Value> = live
                .iter()
                .filter_map(|item| Some((identity_text(item, identity)?, item)))
                .collect();
            for item in desired {
                let Some(id) = identity_text(item, identity) else {
                    continue;
                };
                self.at(&format!("[{id}]"), |walk| match found.get(&id) {
                    Some(found) => walk.value(item, found),
                    None => walk.absent(item),
                });
            }
        } else if desired.iter().chain(live).all(is_scalar) {
            self.scalars(desired, live);
        } else {
            for (index, item) in desired.iter().enumerate() {
                self.at(&format!("[{index}]"), |walk| match live.get(index) {
                    Some(found) => walk.value(item, found),
                    None => walk.absent(item),
                });
            }
            if live.len() > desired.len() {
                self.found.push(Difference::Changed(self.path.clone()));
            }
        }
    }

    /// A list of scalars is either atomic or a set, and only the schema knows. Items that are nowhere to be found count as
    /// missing when the list got shorter and as changed otherwise; a different order counts as a change.
    fn scalars(&mut self, desired: &[Value], live: &[Value]) {
        // Several managers share these sets, so more than we want is fine there.
        let shared = self.path.ends_with("finalizers");
        if shared && desired.iter().all(|item| live.contains(item)) {
            return;
        }
        if live.len() < desired.len() {
            for (index, item) in desired.iter().enumerate() {
                if !live.contains(item) {
                    self.at(&format!("[{index}]"), |walk| walk.absent(item));
                }
            }
        } else if desired.len() != live.len() || !desired.iter().zip(live).all(|(a, b)| self.same_scalar(a, b)) {
            self.found.push(Difference::Changed(self.path.clone()));
        }
    }

    /// Records that `wanted` is not there, unless the server is free to leave such a value out.
    fn absent(&mut self, wanted: &Value) {
        let omissible = match wanted {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            // An object of nothing but omissible values may be omitted as a whole.
            Value::Object(fields) => fields.values().all(|value| self.may_be_omitted(value)),
            scalar => self.may_be_omitted(scalar),
        };
        if !omissible {
            self.found.push(Difference::Missing(self.path.clone()));
        }
    }

    fn may_be_omitted(&self, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.values().all(|value| self.may_be_omitted(value)),
            Value::Bool(value) => !value && self.flavour == Flavour::Builtin,
            Value::Number(number) => number.as_f64() == Some(0.0) && self.flavour == Flavour::Builtin,
            Value::String(text) => text.is_empty() && self.flavour == Flavour::Builtin,
        }
    }

    fn same_scalar(&self, desired: &Value, live: &Value) -> bool {
        if desired == live {
            return true;
        }
        match (desired, live) {
            // 1 and 1.0, which JSON keeps apart and the server does not.
            (Value::Number(desired), Value::Number(live)) => desired.as_f64() == live.as_f64(),
            _ => self.quantity && same_quantity(desired, live),
        }
    }

    fn at_key(&mut self, key: &str, visit: impl FnOnce(&mut Self)) {
        let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        let step = match (plain, self.path.is_empty()) {
            (true, true) => key.to_owned(),
            (true, false) => format!(".{key}"),
            (false, _) => format!("[{key:?}]"),
        };
        let outer = self.quantity;
        self.quantity |= QUANTITY_KEYS.contains(&key);
        self.at(&step, visit);
        self.quantity = outer;
    }

    fn at(&mut self, step: &str, visit: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push_str(step);
        visit(self);
        self.path.truncate(length);
    }
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Object(_) | Value::Array(_))
}

type Identity = &'static [(&'static str, Option<&'static str>)];

fn identity_of(desired: &[Value], live: &[Value]) -> Option<Identity> {
    let first = desired.first()?;
    let unique = |identity: Identity| {
        let mut seen: Vec<String> = Vec::new();
        desired.iter().all(|item| match identity_text(item, identity) {
            Some(id) if !seen.contains(&id) => {
                seen.push(id);
                true
            }
            _ => false,
        })
    };
    IDENTITIES.into_iter().find(|identity| {
        identity_text(first, identity).is_some()
            && unique(identity)
            && live.iter().all(|item| identity_text(item, identity).is_some())
    })
}

fn identity_text(item: &Value, identity: Identity) -> Option<String> {
    let mut text = String::new();
    for (key, default) in identity {
        let value = match item.get(key) {
            Some(Value::String(value)) => value.clone(),
            Some(Value::Number(value)) => value.to_string(),
            None => (*default)?.to_owned(),
            Some(_) => return None,
        };
        let separator = if text.is_empty() { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{key}={value}");
    }
    Some(text)
}

/// Removes one path that [`differences`] reported from a value. Used to write the rest of an object when a part of it is
/// not known to the server.
pub fn remove_paths(value: &mut Value, live: &Value, flavour: Flavour) {
    match (value, live) {
        (Value::Object(desired), Value::Object(live)) => {
            desired.retain(|key, wanted| {
                let there = live.get(key).is_some_and(|found| !found.is_null());
                there || wanted.is_null() || missing(&wrap(key, wanted), &Value::Object(Map::new()), flavour).is_empty()
            });
            for (key, wanted) in desired.iter_mut() {
                if let Some(found) = live.get(key) {
                    remove_paths(wanted, found, flavour);
                }
            }
        }
        (Value::Array(desired), Value::Array(live)) => {
            let identity = identity_of(desired, live);
            for (index, item) in desired.iter_mut().enumerate() {
                let found = match identity {
                    Some(identity) => {
                        let id = identity_text(item, identity);
                        live.iter().find(|candidate| identity_text(candidate, identity) == id)
                    }
                    None => live.get(index),
                };
                if let Some(found) = found {
                    remove_paths(item, found, flavour);
                }
            }
        }
        _ => {}
    }
}

fn wrap(key: &str, value: &Value) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value.clone())]))
}

#[cfg(test)]
mod tests;
