use super::*;

const BASE: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.example.com
  labels: {cluster.x-k8s.io/v1beta1: v1alpha1}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing, shortNames: [th], categories: [all-things]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [a]
              properties:
                a: {type: string, maxLength: 10, default: x}
                b: {type: integer, format: int32, minimum: 0}
                c: {type: string, enum: [one, two]}
                d: {type: object, x-kubernetes-preserve-unknown-fields: true}
                e:
                  type: array
                  x-kubernetes-list-type: map
                  x-kubernetes-list-map-keys: [name]
                  items: {type: object, required: [name], properties: {name: {type: string}}}
                f: {type: object, additionalProperties: {type: string}}
                g: {type: string, nullable: true}
                h: {type: array, items: {type: string}}
";

fn crd(text: &str) -> CustomResourceDefinition {
    serde_yaml_ng::from_str(text).unwrap()
}

/// The findings after replacing one piece of the base with another.
fn after(from: &str, to: &str) -> Vec<(String, Change)> {
    assert!(BASE.contains(from), "{from} is not in the base");
    compare(&crd(BASE), &crd(&BASE.replace(from, to)))
        .into_iter()
        .map(|f| (f.path, f.change))
        .collect()
}

#[track_caller]
fn finds(from: &str, to: &str, path: &str, change: Change) {
    assert_eq!(after(from, to), [(path.to_owned(), change)]);
}

#[track_caller]
fn allows(from: &str, to: &str) {
    assert_eq!(after(from, to), []);
}

#[test]
fn a_schema_is_compatible_with_itself() {
    assert_eq!(compare(&crd(BASE), &crd(BASE)), []);
}

#[test]
fn growing_is_allowed() {
    allows(
        "g: {type: string, nullable: true}",
        "g: {type: string, nullable: true}\n                new: {type: string}",
    );
    allows("maxLength: 10", "maxLength: 20");
    allows("maxLength: 10, ", "");
    allows("format: int32, minimum: 0", "format: int64, minimum: -1");
    allows("enum: [one, two]", "enum: [one, two, three]");
    allows(", enum: [one, two]", "");
    allows("required: [a]", "required: []");
    allows("shortNames: [th]", "shortNames: [th, thi]");
    allows(
        "subresources: {status: {}}",
        "subresources: {status: {}, scale: {specReplicasPath: .spec.b, statusReplicasPath: .status.b}}",
    );
    allows(
        "{cluster.x-k8s.io/v1beta1: v1alpha1}",
        "{cluster.x-k8s.io/v1beta1: v1alpha1, cluster.x-k8s.io/v1beta2: v1alpha1}",
    );
}

#[test]
fn a_removed_property_would_be_pruned() {
    finds(
        "g: {type: string, nullable: true}",
        "",
        "spec.g",
        Change::PropertyRemoved,
    );
}

#[test]
fn a_newly_required_field_is_found_wherever_it_is() {
    finds("required: [a]", "required: [a, b]", "spec.b", Change::NewlyRequired);
    finds("required: [a]", "required: [a, new]", "spec.new", Change::NewlyRequired);
    finds(
        "required: [name], properties: {name: {type: string}}",
        "required: [name, x], properties: {name: {type: string}, x: {type: string}}",
        "spec.e[].x",
        Change::NewlyRequired,
    );
}

#[test]
fn a_required_field_with_a_default_is_never_missing() {
    let with_new = BASE.replace("required: [a]", "required: [a, new]").replace(
        "g: {type: string, nullable: true}",
        "g: {type: string, nullable: true}\n                new: {type: string, default: y}",
    );
    assert_eq!(compare(&crd(BASE), &crd(&with_new)), []);
}

#[test]
fn a_changed_type_is_found() {
    finds(
        "b: {type: integer, format: int32, minimum: 0}",
        "b: {type: string}",
        "spec.b",
        Change::TypeChanged,
    );
    finds(
        "h: {type: array, items: {type: string}}",
        "h: {type: array, items: {type: integer}}",
        "spec.h[]",
        Change::TypeChanged,
    );
    finds(
        "additionalProperties: {type: string}",
        "additionalProperties: {type: integer}",
        "spec.f{}",
        Change::TypeChanged,
    );
}

#[test]
fn tighter_limits_are_found() {
    finds("maxLength: 10", "maxLength: 5", "spec.a", Change::LimitTightened);
    finds("minimum: 0", "minimum: 1", "spec.b", Change::LimitTightened);
    finds("minimum: 0", "minimum: 0, maximum: 9", "spec.b", Change::LimitTightened);
    finds(
        "minimum: 0",
        "minimum: 0, exclusiveMinimum: true",
        "spec.b",
        Change::LimitTightened,
    );
    finds(
        "h: {type: array,",
        "h: {type: array, maxItems: 3,",
        "spec.h",
        Change::LimitTightened,
    );
    finds(
        "maxLength: 10",
        "maxLength: 10, pattern: ^a",
        "spec.a",
        Change::PatternChanged,
    );
    finds("enum: [one, two]", "enum: [one]", "spec.c", Change::EnumNarrowed);
    finds(
        "nullable: true",
        "enum: [q], nullable: true",
        "spec.g",
        Change::EnumNarrowed,
    );
    finds(
        "maxLength: 10",
        "maxLength: 10, x-kubernetes-validations: [{rule: self != ''}]",
        "spec.a",
        Change::RuleAdded,
    );
    finds(
        "nullable: true",
        "format: date-time, nullable: true",
        "spec.g",
        Change::FormatChanged,
    );
}

#[test]
fn what_was_kept_must_stay_kept() {
    finds(
        ", x-kubernetes-preserve-unknown-fields: true",
        "",
        "spec.d",
        Change::PreserveUnknownLost,
    );
    finds(
        "f: {type: object, additionalProperties: {type: string}}",
        "f: {type: object}",
        "spec.f",
        Change::MapClosed,
    );
    finds("nullable: true", "nullable: false", "spec.g", Change::NullableLost);
    finds("default: x", "default: y", "spec.a", Change::DefaultChanged);
    finds(", default: x", "", "spec.a", Change::DefaultChanged);
}

#[test]
fn lists_keep_their_kind_and_keys() {
    finds(
        "x-kubernetes-list-map-keys: [name]",
        "x-kubernetes-list-map-keys: [name, x]",
        "spec.e",
        Change::ListMapKeysChanged,
    );
    finds(
        "x-kubernetes-list-type: map\n                  x-kubernetes-list-map-keys: [name]\n",
        "x-kubernetes-list-type: atomic\n",
        "spec.e",
        Change::ListTypeChanged,
    );
    finds(
        "h: {type: array,",
        "h: {type: array, x-kubernetes-list-type: set,",
        "spec.h",
        Change::ListTypeChanged,
    );
    finds(
        "d: {type: object,",
        "d: {type: object, x-kubernetes-map-type: atomic,",
        "spec.d",
        Change::MapTypeChanged,
    );
}

#[test]
fn names_cannot_change() {
    finds("plural: things", "plural: thinges", "", Change::NameChanged);
    finds("scope: Namespaced", "scope: Cluster", "", Change::NameChanged);
    finds("shortNames: [th], ", "", "", Change::ShortNameRemoved);
    finds(", categories: [all-things]", "", "", Change::CategoryRemoved);
    finds("{cluster.x-k8s.io/v1beta1: v1alpha1}", "{}", "", Change::LabelRemoved);
    finds("- name: v1\n", "- name: v2\n", "", Change::VersionRemoved);
    finds("      subresources: {status: {}}\n", "", "", Change::SubresourceRemoved);
}

#[test]
fn a_finding_names_the_place_and_says_what_to_do() {
    let findings = compare(&crd(BASE), &crd(&BASE.replace("required: [a]", "required: [a, b]")));
    let text = findings[0].to_string();
    assert!(text.contains("things.example.com spec.b"), "{text}");
    assert!(
        text.contains("newly-required") && text.contains("make the field optional"),
        "{text}"
    );
}
