//! Fragments of schema that several kinds share: validation rules with a message a person can act on.
//!
//! Every rule here also holds for objects of older releases, or for those of them that could ever have worked; rules
//! that an older schema did not have are listed with the reason in `schema-history/accepted.yaml`.

use serde_json::{Value, json};

/// Longest provider id, by the Cluster API contract.
pub(crate) const PROVIDER_ID_MAX: u32 = 512;

/// Rules for `spec.providerID` of a machine kind with this scheme.
///
/// Removing the field stays possible: that is how a machine whose host went back to its pool looks for another one.
/// Rewriting it in place would silently move the Machine to another Node.
pub(crate) fn provider_id(scheme: &str) -> Value {
    json!([
        {
            "rule": "oldSelf == '' || self == oldSelf",
            "message": "providerID cannot change once it is set: it binds the Machine to its Node. Delete the Machine instead."
        },
        {
            "rule": format!("self == '' || self.startsWith('{scheme}')"),
            "message": format!("providerID must have the form {scheme}<zone>/<server id>; leave it out, the controller sets it"),
        }
    ])
}

/// Rule for a Scaleway zone. Empty means the default.
pub(crate) fn zone() -> Value {
    json!([{
        "rule": "self.matches('^([a-z]{2}-[a-z]{3}-[0-9]{1,2})?$')",
        "message": "zone must be a Scaleway zone such as fr-par-1, nl-ams-1 or pl-waw-2"
    }])
}

/// Rule for one IPv4 network. Empty means none.
pub(crate) fn ipv4_cidr(field: &str) -> Value {
    json!([{
        "rule": r"self.matches('^(([0-9]{1,3}\\.){3}[0-9]{1,3}/([0-9]|[12][0-9]|3[0-2]))?$')",
        "message": format!("{field} must be an IPv4 network such as 172.16.0.0/22")
    }])
}

/// Rule for one IPv4 or IPv6 network.
pub(crate) fn cidr(what: &str) -> Value {
    json!([{
        "rule": r"self.matches('^(([0-9]{1,3}\\.){3}[0-9]{1,3}/([0-9]|[12][0-9]|3[0-2])|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*/[0-9]{1,3})$')",
        "message": format!("{what} must be a network such as 172.16.0.0/22 or fd00::/8")
    }])
}

/// Lets the entries of a list carry fields this release does not know.
///
/// The first releases did not describe these entries at all, so whatever Kubernetes allowed there was kept.
pub(crate) fn open_items(schema: &mut schemars::Schema) {
    if let Some(items) = schema.get_mut("items").and_then(Value::as_object_mut) {
        items.insert("x-kubernetes-preserve-unknown-fields".into(), Value::Bool(true));
    }
}
