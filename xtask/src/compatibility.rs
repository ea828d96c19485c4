//! Whether every object that one schema admits is still admitted, and kept whole, under another.
//!
//! Objects outlive releases. Cluster API clones templates that were written long ago, Helm rolls back to old manifests,
//! and nobody rewrites what is stored. So a schema may only grow: new optional fields, wider limits. Everything else is a
//! finding, and the person who makes it has to say why no stored object is hurt.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
mod finding;

pub(crate) use finding::{Change, Finding};

/// All changes from `old` to `new` that could hurt an object stored under `old`.
pub(crate) fn compare(old: &CustomResourceDefinition, new: &CustomResourceDefinition) -> Vec<Finding> {
    let mut findings = Findings {
        crd: old.metadata.name.clone().unwrap_or_default(),
        list: Vec::new(),
    };
    names(&mut findings, old, new);
    for old_version in old.spec.versions.iter().filter(|v| v.served) {
        let same = new
            .spec
            .versions
            .iter()
            .find(|v| v.name == old_version.name && v.served);
        match same {
            Some(new_version) => version(&mut findings, old_version, new_version),
            None => findings.add(
                "",
                Change::VersionRemoved,
                format!("version {} is no longer served", old_version.name),
            ),
        }
    }
    findings.list
}

/// The finding for a kind that is gone.
pub(crate) fn removed(old: &CustomResourceDefinition) -> Finding {
    Finding {
        crd: old.metadata.name.clone().unwrap_or_default(),
        path: String::new(),
        change: Change::CrdRemoved,
        detail: "the kind is no longer generated".into(),
    }
}

struct Findings {
    crd: String,
    list: Vec<Finding>,
}

impl Findings {
    fn add(&mut self, path: &str, change: Change, detail: impl Into<String>) {
        self.list.push(Finding {
            crd: self.crd.clone(),
            path: path.to_owned(),
            change,
            detail: detail.into(),
        });
    }
}

fn names(findings: &mut Findings, old: &CustomResourceDefinition, new: &CustomResourceDefinition) {
    let (was, is) = (&old.spec.names, &new.spec.names);
    let pairs = [
        ("group", &old.spec.group, &new.spec.group),
        ("scope", &old.spec.scope, &new.spec.scope),
        ("kind", &was.kind, &is.kind),
        ("plural", &was.plural, &is.plural),
    ];
    for (what, was, is) in pairs {
        if was != is {
            findings.add("", Change::NameChanged, format!("{what} was {was}, is {is}"));
        }
    }
    if let (Some(was), Some(is)) = (&was.singular, &is.singular)
        && was != is
    {
        findings.add("", Change::NameChanged, format!("singular was {was}, is {is}"));
    }
    for gone in missing(was.short_names.as_deref(), is.short_names.as_deref()) {
        findings.add("", Change::ShortNameRemoved, format!("short name {gone} is gone"));
    }
    for gone in missing(was.categories.as_deref(), is.categories.as_deref()) {
        findings.add("", Change::CategoryRemoved, format!("category {gone} is gone"));
    }
    for (label, value) in old.metadata.labels.iter().flatten() {
        let now = new.metadata.labels.as_ref().and_then(|l| l.get(label));
        if now != Some(value) {
            findings.add("", Change::LabelRemoved, format!("label {label}: {value} is gone"));
        }
    }
}

fn version(findings: &mut Findings, old: &CustomResourceDefinitionVersion, new: &CustomResourceDefinitionVersion) {
    if let Some(was) = &old.subresources {
        let is = new.subresources.clone().unwrap_or_default();
        if was.status.is_some() && is.status.is_none() {
            findings.add("", Change::SubresourceRemoved, "the status subresource is gone");
        }
        if was.scale.is_some() && is.scale != was.scale {
            findings.add(
                "",
                Change::SubresourceRemoved,
                "the scale subresource is gone or points elsewhere",
            );
        }
    }
    let root = |v: &CustomResourceDefinitionVersion| v.schema.clone().and_then(|s| s.open_api_v3_schema);
    match (root(old), root(new)) {
        (Some(was), Some(is)) => schema(findings, &was, &is, ""),
        (Some(_), None) => findings.add("", Change::PropertyRemoved, "the schema is gone"),
        (None, _) => {}
    }
}

fn schema(findings: &mut Findings, old: &JSONSchemaProps, new: &JSONSchemaProps, path: &str) {
    types(findings, old, new, path);
    values(findings, old, new, path);
    limits(findings, old, new, path);
    lists(findings, old, new, path);
    children(findings, old, new, path);
}

fn types(findings: &mut Findings, old: &JSONSchemaProps, new: &JSONSchemaProps, path: &str) {
    let describe = |s: &JSONSchemaProps| match (&s.type_, s.x_kubernetes_int_or_string) {
        (_, Some(true)) => "integer or string".to_owned(),
        (Some(name), _) => name.clone(),
        (None, _) => "any".to_owned(),
    };
    let (was, is) = (describe(old), describe(new));
    let wider = match was.as_str() {
        "integer" => matches!(is.as_str(), "number" | "integer or string" | "any"),
        "string" => matches!(is.as_str(), "integer or string" | "any"),
        _ => is == "any",
    };
    if was != is && !wider {
        findings.add(path, Change::TypeChanged, format!("was {was}, is {is}"));
    }
    // A 64-bit integer is any integer JSON can carry here, so these two only widen.
    let wider = matches!(
        (old.format.as_deref(), new.format.as_deref()),
        (_, None) | (None | Some("int32"), Some("int64"))
    );
    if old.format != new.format && !wider {
        let show = |f: &Option<String>| f.clone().unwrap_or_else(|| "none".into());
        findings.add(
            path,
            Change::FormatChanged,
            format!("was {}, is {}", show(&old.format), show(&new.format)),
        );
    }
    if old.nullable == Some(true) && new.nullable != Some(true) {
        findings.add(path, Change::NullableLost, "null was allowed");
    }
    if old.x_kubernetes_preserve_unknown_fields == Some(true) && new.x_kubernetes_preserve_unknown_fields != Some(true)
    {
        findings.add(
            path,
            Change::PreserveUnknownLost,
            "fields that are not described were kept",
        );
    }
}

fn values(findings: &mut Findings, old: &JSONSchemaProps, new: &JSONSchemaProps, path: &str) {
    let texts = |s: &JSONSchemaProps| -> Option<BTreeSet<String>> {
        s.enum_
            .as_ref()
            .map(|values| values.iter().map(|v| v.0.to_string()).collect())
    };
    match (texts(old), texts(new)) {
        (None, Some(is)) => {
            let is: Vec<_> = is.into_iter().collect();
            findings.add(
                path,
                Change::EnumNarrowed,
                format!("was any value, is one of {}", is.join(", ")),
            );
        }
        (Some(was), Some(is)) => {
            let gone: Vec<_> = was.difference(&is).cloned().collect();
            if !gone.is_empty() {
                findings.add(
                    path,
                    Change::EnumNarrowed,
                    format!("{} no longer allowed", gone.join(", ")),
                );
            }
        }
        (_, None) => {}
    }
    if let Some(is) = new.pattern.as_ref().filter(|is| old.pattern.as_ref() != Some(*is)) {
        let was = old.pattern.as_deref().unwrap_or("none");
        findings.add(path, Change::PatternChanged, format!("was {was}, is {is}"));
    }
    let rules = |s: &JSONSchemaProps| -> BTreeSet<String> {
        s.x_kubernetes_validations
            .iter()
            .flatten()
            .map(|r| r.rule.clone())
            .collect()
    };
    for rule in rules(new).difference(&rules(old)) {
        findings.add(path, Change::RuleAdded, format!("new rule {rule}"));
    }
    if let Some(was) = old.default.as_ref().filter(|was| new.default.as_ref() != Some(*was)) {
        let is = new
            .default
            .as_ref()
            .map_or_else(|| "none".to_owned(), |d| d.0.to_string());
        findings.add(path, Change::DefaultChanged, format!("was {}, is {is}", was.0));
    }
}

fn limits(findings: &mut Findings, old: &JSONSchemaProps, new: &JSONSchemaProps, path: &str) {
    // Lengths and counts as numbers: they are far below what a float holds exactly.
    #[expect(clippy::cast_precision_loss, reason = "limits of lengths and counts are small")]
    let int = |n: Option<i64>| n.map(|n| n as f64);
    let lower = [
        ("minimum", old.minimum, new.minimum),
        ("minLength", int(old.min_length), int(new.min_length)),
        ("minItems", int(old.min_items), int(new.min_items)),
        ("minProperties", int(old.min_properties), int(new.min_properties)),
    ];
    let upper = [
        ("maximum", old.maximum, new.maximum),
        ("maxLength", int(old.max_length), int(new.max_length)),
        ("maxItems", int(old.max_items), int(new.max_items)),
        ("maxProperties", int(old.max_properties), int(new.max_properties)),
    ];
    let tighter = lower
        .into_iter()
        .filter(|(_, was, is)| is.is_some_and(|is| was.is_none_or(|was| is > was)))
        .chain(
            upper
                .into_iter()
                .filter(|(_, was, is)| is.is_some_and(|is| was.is_none_or(|was| is < was))),
        );
    for (what, was, is) in tighter {
        let was = was.map_or_else(|| "none".to_owned(), |w| w.to_string());
        findings.add(
            path,
            Change::LimitTightened,
            format!("{what} was {was}, is {}", is.unwrap_or_default()),
        );
    }
    let flags = [
        ("exclusiveMinimum", old.exclusive_minimum, new.exclusive_minimum),
        ("exclusiveMaximum", old.exclusive_maximum, new.exclusive_maximum),
        ("uniqueItems", old.unique_items, new.unique_items),
    ];
    for (what, was, is) in flags {
        if is == Some(true) && was != Some(true) {
            findings.add(path, Change::LimitTightened, format!("{what} is new"));
        }
    }
    if new.multiple_of.is_some() && new.multiple_of != old.multiple_of {
        findings.add(path, Change::LimitTightened, "multipleOf is new or different");
    }
}

fn lists(findings: &mut Findings, old: &JSONSchemaProps, new: &JSONSchemaProps, path: &str) {
    let list = |s: &JSONSchemaProps| s.x_kubernetes_list_type.clone().unwrap_or_else(|| "atomic".into());
    if old.type_.as_deref() == Some("array") && list(old) != list(new) {
        findings.add(
            path,
            Change::ListTypeChanged,
            format!("was {}, is {}", list(old), list(new)),
        );
    } else if old.x_kubernetes_list_map_keys != new.x_kubernetes_list_map_keys {
        let show = |keys: &Option<Vec<String>>| keys.clone().unwrap_or_default().join(", ");
        let (was, is) = (
            show(&old.x_kubernetes_list_map_keys),
            show(&new.x_kubernetes_list_map_keys),
        );
        findings.add(path, Change::ListMapKeysChanged, format!("was [{was}], is [{is}]"));
    }
    let map = |s: &JSONSchemaProps| s.x_kubernetes_map_type.clone().unwrap_or_else(|| "granular".into());
    if map(old) != map(new) {
        findings.add(
            path,
            Change::MapTypeChanged,
            format!("was {}, is {}", map(old), map(new)),
        );
    }
}

fn children(findings: &mut Findings, old: &JSONSchemaProps, new: &JSONSchemaProps, path: &str) {
    let child = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    let open = new.x_kubernetes_preserve_unknown_fields == Some(true);
    let now = |name: &str| new.properties.as_ref().and_then(|p| p.get(name));
    for (name, was) in old.properties.iter().flatten() {
        // Every object has these three, described or not.
        if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        match now(name) {
            Some(is) => schema(findings, was, is, &child(name)),
            None if open || new.additional_properties.is_some() => {}
            None => findings.add(
                &child(name),
                Change::PropertyRemoved,
                "the field is no longer described",
            ),
        }
    }
    let required = |s: &JSONSchemaProps| -> BTreeSet<String> { s.required.iter().flatten().cloned().collect() };
    for name in required(new).difference(&required(old)) {
        // The API server fills in a default before it looks for required fields.
        if now(name).is_none_or(|field| field.default.is_none()) {
            findings.add(&child(name), Change::NewlyRequired, "the field was optional or unknown");
        }
    }
    if let (Some(JSONSchemaPropsOrArray::Schema(was)), Some(JSONSchemaPropsOrArray::Schema(is))) =
        (&old.items, &new.items)
    {
        schema(findings, was, is, &format!("{path}[]"));
    }
    match (&old.additional_properties, &new.additional_properties) {
        (Some(JSONSchemaPropsOrBool::Schema(was)), Some(JSONSchemaPropsOrBool::Schema(is))) => {
            schema(findings, was, is, &format!("{path}{{}}"));
        }
        (
            Some(JSONSchemaPropsOrBool::Schema(_) | JSONSchemaPropsOrBool::Bool(true)),
            None | Some(JSONSchemaPropsOrBool::Bool(false)),
        ) if !open => {
            findings.add(path, Change::MapClosed, "any key was allowed");
        }
        _ => {}
    }
}

fn missing<'a>(old: Option<&'a [String]>, new: Option<&[String]>) -> impl Iterator<Item = &'a String> {
    let new: BTreeSet<String> = new.unwrap_or_default().iter().cloned().collect();
    old.unwrap_or_default().iter().filter(move |name| !new.contains(*name))
}

#[cfg(test)]
mod tests;
