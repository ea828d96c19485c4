//! An object as we want it, in the form in which it is sent.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Resource;
use kube::api::{ApiResource, DynamicObject};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{APPLIED_HASH, Error};
use crate::compare::Flavour;

/// Which object: kind, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target(Arc<Parts>);

/// Behind a pointer, because every error and every key of [`super::Memory`] carries one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Parts {
    resource: ApiResource,
    namespace: Option<String>,
    name: String,
}

impl Target {
    /// Names an object of a kind.
    pub fn new(resource: ApiResource, namespace: Option<&str>, name: &str) -> Self {
        Self(Arc::new(Parts {
            resource,
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
        }))
    }

    /// Names an existing object.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Result<Self, Error> {
        let resource = ApiResource::erase::<K>(&());
        let meta = object.meta();
        let Some(name) = meta.name.as_deref().filter(|name| !name.is_empty()) else {
            return Err(Error::Render {
                what: resource.kind,
                problem: "metadata.name is empty".to_owned(),
            });
        };
        Ok(Self::new(resource, meta.namespace.as_deref(), name))
    }

    /// The kind and where it is served.
    pub fn resource(&self) -> &ApiResource {
        &self.0.resource
    }

    /// The kind.
    pub fn kind(&self) -> &str {
        &self.0.resource.kind
    }

    /// The namespace; none for cluster-scoped kinds.
    pub fn namespace(&self) -> Option<&str> {
        self.0.namespace.as_deref()
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn failed(&self, verb: &'static str, source: kube::Error) -> Error {
        Error::Request {
            verb,
            what: self.clone(),
            source: Box::new(source),
        }
    }

    pub(crate) fn unreadable(&self, error: &serde_json::Error) -> Error {
        Error::Render {
            what: self.to_string(),
            problem: error.to_string(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind(), self.name()),
            None => write!(f, "{} {}", self.kind(), self.name()),
        }
    }
}

/// An object ready to be applied: without status and server-made metadata, with a digest of itself.
#[derive(Debug, Clone)]
pub struct Desired {
    target: Target,
    value: Value,
    hash: String,
    flavour: Flavour,
}

impl Desired {
    /// From a typed object.
    pub fn new<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Result<Self, Error> {
        let target = Target::of(object)?;
        let value = serde_json::to_value(object).map_err(|error| target.unreadable(&error))?;
        Self::from_value(target, value)
    }

    /// From an object whose type is only known at run time.
    pub fn dynamic(resource: &ApiResource, object: &DynamicObject) -> Result<Self, Error> {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let target = Target::new(resource.clone(), object.metadata.namespace.as_deref(), name);
        let value = serde_json::to_value(object).map_err(|error| target.unreadable(&error))?;
        Self::from_value(target, value)
    }

    pub(super) fn from_value(target: Target, value: Value) -> Result<Self, Error> {
        let mut value = without_nulls(value);
        let Value::Object(root) = &mut value else {
            return Err(Error::Render {
                what: target.to_string(),
                problem: "not an object".to_owned(),
            });
        };
        root.insert("apiVersion".to_owned(), target.resource().api_version.clone().into());
        root.insert("kind".to_owned(), target.resource().kind.clone().into());
        root.remove("status");
        if let Some(Value::Object(metadata)) = root.get_mut("metadata") {
            for made_by_the_server in [
                "managedFields",
                "resourceVersion",
                "uid",
                "creationTimestamp",
                "generation",
                "selfLink",
                "deletionTimestamp",
            ] {
                metadata.remove(made_by_the_server);
            }
            if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
                annotations.remove(APPLIED_HASH);
            }
        }
        let secret = target.resource().group.is_empty() && target.resource().kind == "Secret";
        if secret {
            fold_string_data(root);
        }
        let hash = digest(&value);
        // A digest of a secret is a test for guesses, and annotations are shown where data is not. Secrets pay one needless
        // request after a restart instead.
        if !secret && let Value::Object(root) = &mut value {
            let metadata = entry_object(root, "metadata");
            if let Some(annotations) = metadata.map(|metadata| entry_object(metadata, "annotations")) {
                annotations.map(|annotations| annotations.insert(APPLIED_HASH.to_owned(), hash.clone().into()));
            }
        }
        let flavour = Flavour::of_group(&target.resource().group);
        Ok(Self {
            target,
            value,
            hash,
            flavour,
        })
    }

    /// Which object.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// What is sent.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The digest of what is wanted.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// How the server stores the kind.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }
}

/// The object under a key, made if absent; none if something else is there.
pub(super) fn entry_object<'a>(map: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    map.entry(key.to_owned())
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
}

/// A null in an applied object would claim the field and say nothing.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        scalar => scalar,
    }
}

/// `stringData` is write-only: it comes back as `data`. Sending `data` keeps what we sent comparable with what is there.
fn fold_string_data(root: &mut Map<String, Value>) {
    let Some(Value::Object(plain)) = root.remove("stringData") else {
        return;
    };
    let Some(data) = entry_object(root, "data") else { return };
    for (key, value) in plain {
        if let Value::String(text) = value {
            data.insert(key, STANDARD.encode(text).into());
        }
    }
}

/// A digest that depends on content only. Keys are sorted here, because whether `serde_json` sorts them is up to a feature
/// that any dependency may turn on.
pub(crate) fn digest(value: &Value) -> String {
    fn feed(hasher: &mut Sha256, value: &Value) {
        match value {
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                hasher.update(b"{");
                for (key, value) in entries {
                    hasher.update(Value::from(key.as_str()).to_string());
                    feed(hasher, value);
                }
                hasher.update(b"}");
            }
            Value::Array(items) => {
                hasher.update(b"[");
                for item in items {
                    feed(hasher, item);
                }
                hasher.update(b"]");
            }
            scalar => {
                hasher.update(scalar.to_string());
                hasher.update(b",");
            }
        }
    }
    let mut hasher = Sha256::new();
    feed(&mut hasher, value);
    let mut text = String::new();
    for byte in hasher.finalize().iter().take(16) {
        // Writing to a String cannot fail.
        let _ = fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use serde_json::json;

    use super::*;

    fn config_map(value: Value) -> Desired {
        let object: ConfigMap = serde_json::from_value(value).unwrap();
        Desired::new(&object).unwrap()
    }

    #[test]
    fn server_made_fields_are_not_sent_back() {
        let desired = config_map(json!({
            "metadata": {"name": "a", "namespace": "n", "resourceVersion": "7", "uid": "u", "generation": 3, "managedFields": []},
            "data": {"k": "v"},
        }));
        assert_eq!(
            desired.value(),
            &json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": "n", "annotations": {APPLIED_HASH: desired.hash()}},
                "data": {"k": "v"},
            })
        );
        assert_eq!(desired.target().to_string(), "ConfigMap n/a");
    }

    #[test]
    fn the_digest_follows_the_content_and_nothing_else() {
        let one = config_map(json!({"metadata": {"name": "a"}, "data": {"k": "v", "l": "w"}}));
        let same = config_map(
            json!({"metadata": {"name": "a", "resourceVersion": "9", "annotations": {APPLIED_HASH: "old"}}, "data": {"l": "w", "k": "v"}}),
        );
        let other = config_map(json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
        assert_ne!(one.hash(), other.hash());
        assert_eq!(one.hash().len(), 32);
        // An annotation map that only held the digest is now empty, which is a different content.
        let bare = config_map(json!({"metadata": {"name": "a", "annotations": {}}, "data": {"k": "v", "l": "w"}}));
        assert_eq!(same.hash(), bare.hash());
    }

    #[test]
    fn digests_of_neighbouring_shapes_differ() {
        let shapes = [
            json!(["a", "b"]),
            json!(["ab"]),
            json!({"a": "b"}),
            json!([["a"], "b"]),
            json!(["a,", "b"]),
            json!([1, 23]),
            json!([12, 3]),
        ];
        for (index, a) in shapes.iter().enumerate() {
            for b in &shapes[index + 1..] {
                assert_ne!(digest(a), digest(b), "{a} {b}");
            }
        }
    }

    #[test]
    fn secrets_are_sent_as_data_and_carry_no_digest() {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "n"}, "stringData": {"token": "abc"}, "data": {"old": "eA=="},
        }))
        .unwrap();
        let desired = Desired::new(&secret).unwrap();
        assert_eq!(desired.value()["data"], json!({"token": "YWJj", "old": "eA=="}));
        assert_eq!(desired.value().get("stringData"), None);
        assert!(!desired.value().to_string().contains(APPLIED_HASH));
    }

    #[test]
    fn an_object_without_a_name_is_refused() {
        let error = Desired::new(&ConfigMap::default()).unwrap_err();
        assert!(error.to_string().contains("metadata.name"), "{error}");
    }
}
