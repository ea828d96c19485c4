//! Reads the apiserver's audit log: the only witness that cannot be fooled about who asked for what.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

/// How long after a refusal a grant still shows that the request only came too early. Whoever decides hears of a Pod within moments.
const MOMENT: SignedDuration = SignedDuration::from_secs(5);

#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
}

/// One finished request.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub verb: String,
    #[serde(default, rename = "requestURI")]
    pub request_uri: String,
    #[serde(default)]
    pub stage: String,
    #[serde(default)]
    pub user: User,
    #[serde(default)]
    pub object_ref: Option<ObjectRef>,
    #[serde(default)]
    pub response_status: Option<ResponseStatus>,
    /// When the apiserver heard it.
    #[serde(rename = "requestReceivedTimestamp")]
    pub at: Timestamp,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct User {
    #[serde(default)]
    pub username: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ObjectRef {
    #[serde(default)]
    pub resource: String,
    #[serde(default)]
    pub subresource: String,
    #[serde(default)]
    pub namespace: String,
    #[serde(default)]
    pub name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct ResponseStatus {
    #[serde(default)]
    pub code: u16,
}

impl Entry {
    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
    }

    pub fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }

    pub fn object(&self) -> ObjectRef {
        self.object_ref.clone().unwrap_or_default()
    }
}

impl AuditLog {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Every request of one user, oldest first; a watch shows once when it starts and once when it ends. A line that is still being
    /// written is left for the next call.
    pub fn of_user(&self, username: &str) -> Result<Vec<Entry>> {
        let text = std::fs::read_to_string(&self.path)
            .with_context(|| format!("failed to read the audit log {}", self.path.display()))?;
        parse(&text, username)
    }

    /// How many successful writes each `namespace/name` of a resource got from one user.
    pub fn writes_per_object(&self, username: &str, resource: &str) -> Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for entry in self.of_user(username)? {
            let object = entry.object();
            if entry.is_write() && object.resource == resource && entry.code() < 300 {
                *counts
                    .entry(format!("{}/{}", object.namespace, object.name))
                    .or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// The requests of one user that the apiserver refused with 403.
    pub fn denials(&self, username: &str) -> Result<Vec<Entry>> {
        Ok(self
            .of_user(username)?
            .into_iter()
            .filter(|entry| entry.code() == 403)
            .collect())
    }

    /// The requests of a node that the apiserver refused with 403, but for those that only came too early: whoever decides what a
    /// node may read or mint for a Pod watches the Pods as well, and may hear of one later than its node. What was granted a moment
    /// later was its right.
    pub fn overreach(&self, node: &str) -> Result<Vec<Entry>> {
        Ok(overreach(&self.of_user(node)?))
    }
}

fn parse(text: &str, username: &str) -> Result<Vec<Entry>> {
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let mut entries = Vec::new();
    for line in whole.filter(|line| line.contains(username)) {
        // One that was left out would be missed by nobody.
        let entry: Entry = serde_json::from_str(line).with_context(|| format!("no audit entry: {line}"))?;
        if entry.user.username == username {
            entries.push(entry);
        }
    }
    Ok(entries)
}

fn overreach(entries: &[Entry]) -> Vec<Entry> {
    let by_pod = |object: &ObjectRef| {
        matches!(
            (object.resource.as_str(), object.subresource.as_str()),
            ("secrets" | "configmaps", "") | ("serviceaccounts", "token")
        )
    };
    let granted_after = |index: usize, refused: &Entry| {
        let same = |entry: &Entry| entry.verb == refused.verb && entry.object_ref == refused.object_ref;
        let soon = |entry: &Entry| entry.at.duration_since(refused.at) <= MOMENT;
        let mut after = entries.iter().skip(index);
        after.any(|entry| same(entry) && soon(entry) && (200..300).contains(&entry.code()))
    };
    let refused = entries
        .iter()
        .enumerate()
        .filter(|(index, entry)| entry.code() == 403 && !(by_pod(&entry.object()) && granted_after(*index, entry)));
    refused.map(|(_, entry)| entry.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(verb: &str, (resource, subresource, name): (&str, &str, &str), code: u16) -> Entry {
        let object = json!({"resource": resource, "subresource": subresource, "namespace": "default", "name": name});
        let at = "2026-03-04T05:06:07.123456Z";
        let value = json!({
            "verb": verb, "objectRef": object, "responseStatus": {"code": code}, "requestReceivedTimestamp": at,
        });
        serde_json::from_value(value).unwrap()
    }

    fn later(seconds: i64, entry: Entry) -> Entry {
        let at = entry.at + SignedDuration::from_secs(seconds);
        Entry { at, ..entry }
    }

    /// A line that could not be read was left out like one that is still being written, and with it whatever it was the witness of.
    #[test]
    fn a_line_that_is_being_written_is_left_for_later_and_any_other_is_read_or_an_error() {
        let line = json!({
            "verb": "get", "user": {"username": "mac"}, "requestReceivedTimestamp": "2026-03-04T05:06:07.123456Z",
        });
        let text = format!("{line}\n{{\"user\": \"somebody else\"}}\n{line}");
        assert_eq!(parse(&text, "mac").unwrap().len(), 1);
        let error = parse("{\"verb\": \"get\", \"user\": {\"username\": \"mac\"}}\n", "mac").unwrap_err();
        assert!(format!("{error:#}").contains("requestReceivedTimestamp"), "{error:#}");
    }

    /// One of seven Pods or so was refused its token once, since the apiserver had not heard of it yet.
    #[test]
    fn a_token_that_was_granted_a_moment_later_was_no_overreach() {
        let token = ("serviceaccounts", "token", "default");
        let early = vec![entry("create", token, 403), later(5, entry("create", token, 201))];
        assert!(overreach(&early).is_empty());
    }

    /// Every Pod of a namespace has a token of the same account. What the next Pod was granted forgave whatever was refused before it.
    #[test]
    fn a_token_that_was_granted_a_minute_later_forgives_nothing() {
        let token = ("serviceaccounts", "token", "default");
        let late = vec![entry("create", token, 403), later(60, entry("create", token, 201))];
        assert_eq!(overreach(&late).len(), 1);
    }

    #[test]
    fn what_was_never_granted_or_only_before_or_to_another_is_overreach() {
        let (token, secret) = (("serviceaccounts", "token", "default"), ("secrets", "", "a"));
        let other = ("secrets", "", "b");
        let entries = vec![
            entry("create", token, 201),
            entry("create", token, 403),
            entry("get", secret, 403),
            entry("list", secret, 200),
            entry("get", other, 200),
        ];
        assert_eq!(overreach(&entries).len(), 2);
    }

    #[test]
    fn nothing_else_is_forgiven() {
        let pod = ("pods", "", "a");
        let entries = vec![entry("delete", pod, 403), entry("delete", pod, 200)];
        assert_eq!(overreach(&entries).len(), 1);
    }
}
